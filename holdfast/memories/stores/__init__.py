"""Memory stores: small documents by path, every change an immutable version."""
