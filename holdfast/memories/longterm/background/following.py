"""Keepers of vectors that are not beside the rows, told what went."""

import logging
from typing import Final

from msgspec import Struct

from holdfast.memories.longterm.embed import EmbeddingFailed
from holdfast.memories.longterm.vectors.base import VectorProvider, asked

_log: Final = logging.getLogger(__name__)


class Following(Struct, frozen=True):
    """The vectors of rows that went, to be let go of once. None of them is recalled meanwhile."""

    vectors: VectorProvider
    collection: str
    ids: tuple[str, ...]

    def tend(self) -> None:
        """Let go of them; a keeper that is down keeps them, and says so in the log."""
        try:
            asked(lambda: self.vectors.delete(self.collection, self.ids))
        except EmbeddingFailed as failed:
            _log.warning("vectors of rows that went are still kept: %s", failed.reason)
