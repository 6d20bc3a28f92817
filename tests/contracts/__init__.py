"""Contracts of the memories, written once; each engine and interface runs them."""
