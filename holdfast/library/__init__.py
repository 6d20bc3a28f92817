"""Floor 3: open() and Holdfast, one engine with the memories on it."""
