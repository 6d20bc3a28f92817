"""Storage of a mount: calls with deadlines, the change feed, and the spool."""
