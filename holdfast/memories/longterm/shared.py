"""What all long-term memories on one engine have in common, in one process."""

from holdfast.memories.longterm.counts import Counts, counts
from holdfast.memories.longterm.kept import Kept
from holdfast.memories.longterm.marks import Marks

CACHE_BYTES = 268_435_456
"""About how much memory the postings of collections may take together."""


class Shared:
    """The postings that are kept, and the access marks that wait to be written."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.kept = Kept(cache_bytes)
        self.marks = Marks()
        self.counts: Counts = counts

    def close(self) -> None:
        """Write what waits, and let go of the rest; the engine is still open."""
        self.marks.flush()
        self.kept.clear()
