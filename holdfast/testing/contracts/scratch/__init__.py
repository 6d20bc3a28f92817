"""One small table, to hold an engine to its word with."""
