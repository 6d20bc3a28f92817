"""The web console: what agents remember, shown to a person and put right by them."""
