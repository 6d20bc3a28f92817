"""Floor 1: where rows live. Dialects end here."""
