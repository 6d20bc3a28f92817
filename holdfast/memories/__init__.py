"""Floor 2: the five memories; none imports another."""
