"""Background work of long-term memory: extraction of items and embedding."""
