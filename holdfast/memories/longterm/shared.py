"""What all long-term memories on one engine have in common, in one process."""

from holdfast.memories.longterm.background.mined import Mined
from holdfast.memories.longterm.background.worker import Tender, Worker
from holdfast.memories.longterm.cache_budget import CACHE_BYTES, ByteBudget
from holdfast.memories.longterm.metrics import LongTermCounters, counts
from holdfast.memories.longterm.model_thread import ModelThread
from holdfast.memories.longterm.recall.access_log import Marks
from holdfast.memories.longterm.recall.cache import Place, PostingsCache
from holdfast.memories.longterm.vectors.registry import Keepers

QUERY_SECONDS = 2.0
"""Seconds that a call waits for the vector of one text."""


class Shared:
    """What is kept in memory, what waits to be written, and who works in the background."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.room = ByteBudget(cache_bytes)
        self.kept = PostingsCache(self.room)
        self.marks = Marks()
        self.worker = Worker()
        self.models = ModelThread()
        self.keepers = Keepers(self.room)
        self.mined = Mined()
        self.query_seconds = QUERY_SECONDS
        self.troubles: dict[str, str] = {}
        """Why an embedder's vectors could not be had last, by its model."""
        self.reindexing: dict[Place, Tender] = {}
        """Who makes the terms of a collection anew, by what names it."""
        self.counts: LongTermCounters = counts

    def close(self) -> None:
        """Write what waits, and let go of the rest; the engine is still open."""
        self.worker.close()
        self.marks.flush()
        self.models.close()
        self.keepers.close()
        self.kept.clear()
