"""Managed memory stores and sessions below /v1, as the official SDK calls them."""
