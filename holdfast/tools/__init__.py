"""Floor 4: what a model may call, and the words that tell it so."""
