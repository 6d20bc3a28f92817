"""Records of runs in an engine."""
