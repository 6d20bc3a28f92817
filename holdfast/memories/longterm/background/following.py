"""Keepers of vectors that are not beside the rows, told what went."""

import logging
from typing import Final

from msgspec import Struct

from holdfast.memories.longterm.embed import EmbeddingFailed
from holdfast.memories.longterm.vectors.base import VectorProvider, asked

_log: Final = logging.getLogger(__name__)


class Following(Struct, frozen=True):
    """Vectors of rows that went, or all with None, to be let go of. None is recalled meanwhile."""

    vectors: VectorProvider
    collection: str
    ids: tuple[str, ...] | None

    def tend(self) -> None:
        """Let go of them; a keeper that is down keeps them, and says so in the log."""
        try:
            asked(self._let_go)
        except EmbeddingFailed as failed:
            _log.warning("vectors of rows that went are still kept: %s", failed.reason)

    def _let_go(self) -> None:
        if self.ids is None:
            self.vectors.drop(self.collection)
        else:
            self.vectors.delete(self.collection, self.ids)
