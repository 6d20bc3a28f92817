"""Import memories and conversations from the exports of other programs."""
