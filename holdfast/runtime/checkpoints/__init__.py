"""What is kept of a run while it goes, so that it can be gone on with after the process died."""
