"""Memory stores: small documents by path; every change is an immutable version."""
