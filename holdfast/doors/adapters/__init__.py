"""Adapters to other frameworks; each imports what its user already has."""
