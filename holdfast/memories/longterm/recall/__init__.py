"""Recall of long-term memory by meaning."""
