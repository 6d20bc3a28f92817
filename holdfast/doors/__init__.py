"""Floor 6: ways in. Each is thin; none imports another."""
