"""Contracts, written once; every engine and door subclasses them."""
