"""The binding to libfuse: requests received, translated, answered, and names forgotten."""
