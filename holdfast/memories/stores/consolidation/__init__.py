"""Consolidation of memory stores."""
