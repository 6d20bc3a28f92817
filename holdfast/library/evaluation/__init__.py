"""How well recall finds what was said, measured on conversations with questions about them."""
