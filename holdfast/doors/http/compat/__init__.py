"""Somebody else's contract: managed memory stores and sessions, as the official SDK speaks them."""
