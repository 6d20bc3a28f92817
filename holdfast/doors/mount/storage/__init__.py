"""What a mount asks of its stores, within a time, and what it keeps when they do not answer."""
