"""Vector providers, embedders, and the similarity of texts."""
