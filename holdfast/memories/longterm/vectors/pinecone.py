"""Vectors in an index of Pinecone, in a namespace for each collection."""

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

from holdfast.ground.errors import MissingExtra
from holdfast.memories.longterm.background.worker import bounded
from holdfast.memories.longterm.vectors.base import Near, Rows, in_order
from holdfast.memories.longterm.vectors.embedder import EmbeddingFailed
from holdfast.memories.longterm.vectors.table import rounded

_AT_ONCE: Final = 1_000
"""Most vectors in a request."""
_REQUEST_BYTES: Final = 1_900_000
"""Most bytes of a request's body; Pinecone's limit is 2 MB."""
_NUMBER_BYTES: Final = 24
_ROW_BYTES: Final = 200
"""Bytes of a number, and of a row besides, as JSON."""
_MOST: Final = 10_000
"""Most results of a query."""
_PAGE: Final = 100
_QUERY_SECONDS: Final = 3.0
"""Time limit of a query. A recall waits for it, and goes on by words after it."""
_SECONDS: Final = 20.0
"""Time limit of one try of a request; the client makes up to four."""
_WAITS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between looks at whether a deletion is visible."""
_METRICS: Final = {None, "cosine", "dotproduct"}
"""Metrics with the cosine as score of unit vectors; None is not stated."""


class PineconeVectors:
    """Vectors in the serverless index at *host*.

    Pinecone receives vectors and ids alone: no text. The index has one dimension; a shorter vector
    is padded with zeros, which changes no cosine, and a longer one is refused. Which ones are
    nearest is as near as Pinecone searches.

    Reads follow writes within seconds. A vector that is not visible yet counts as missing, and one
    that is still visible has no row any more, so that neither is recalled. `drop` waits until the
    collection is empty: `ids` must not list vectors of a model that was replaced.
    """

    name = "pinecone"

    def __init__(
        self, host: str, *, api_key: str, pause: Callable[[float], object] | None = None
    ) -> None:
        try:
            from pinecone import Pinecone
            from pinecone.exceptions import NotFoundException
        except ImportError as error:
            raise MissingExtra("pinecone") from error
        self._missing: type[Exception] = NotFoundException
        self._index: Any = Pinecone(api_key=api_key).Index(host=host)
        self._closed = threading.Event()
        self._pause = pause or self._closed.wait
        self._size: int | None = None

    def upsert(self, collection: str, dimension: int, rows: Rows) -> None:
        """Store *rows*, each in place of the vector of its id."""
        size = self._dimension(dimension)
        most = max(1, min(_AT_ONCE, _REQUEST_BYTES // (_NUMBER_BYTES * size + _ROW_BYTES)))
        for start in range(0, len(rows), most):
            vectors = [
                {"id": id, "values": _padded(vector, size)}
                for id, vector in rows[start : start + most]
            ]
            self._index.upsert(vectors=vectors, namespace=collection, timeout=_SECONDS)

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete the vectors of *ids*; a missing one is not an error."""
        for start in range(0, len(ids), _AT_ONCE):
            self._delete(collection, ids=list(ids[start : start + _AT_ONCE]))

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids with the vectors nearest to *vector*, with their cosines."""
        if k < 1:
            return []
        # The client tries four times, whatever limit it is given for one.
        try:
            found = bounded(
                lambda: self._query(collection, vector, k),
                _QUERY_SECONDS,
                name="holdfast-pinecone",
            )
        except self._missing:
            return []
        return in_order([(each.id, rounded(each.score)) for each in found.matches], k)

    def ids(self, collection: str) -> Iterator[str]:
        """Yield the id of every vector that is visible, in order."""
        found: list[str] = []
        token: str | None = None
        while True:
            ids, token = self._page(collection, token)
            found += ids
            if token is None:
                break
        yield from sorted(found)

    def drop(self, collection: str) -> None:
        """Delete the collection, and wait until no vector of it is visible.

        Raise `EmbeddingFailed` if that takes more than 16 s.
        """
        self._delete(collection, delete_all=True)
        for wait in (*_WAITS, None):
            if not self._page(collection, None)[0]:
                return
            if wait is not None:
                self._pause(wait)
        raise EmbeddingFailed("Pinecone still lists vectors that were deleted")

    def close(self) -> None:
        """Close the client."""
        self._closed.set()
        self._index.close()

    def _query(self, collection: str, vector: Sequence[float], k: int) -> Any:
        return self._index.query(
            vector=_padded(vector, self._dimension(len(vector))),
            top_k=min(k, _MOST),
            namespace=collection,
            timeout=_QUERY_SECONDS,
        )

    def _delete(self, collection: str, **which: object) -> None:
        try:
            self._index.delete(namespace=collection, timeout=_SECONDS, **which)
        except self._missing:
            return

    def _page(self, collection: str, token: str | None) -> tuple[list[str], str | None]:
        """Return ids of one page, and the token of the next page, if any."""
        try:
            page = self._index.list_paginated(
                namespace=collection, limit=_PAGE, pagination_token=token, timeout=_SECONDS
            )
        except self._missing:
            return [], None
        following = page.pagination.next if page.pagination else None
        return [each.id for each in page.vectors], following or None

    def _dimension(self, wanted: int) -> int:
        """Return the index's dimension; raise `EmbeddingFailed` if *wanted* does not fit."""
        if self._size is None:
            stats = self._index.describe_index_stats(timeout=_SECONDS)
            if stats.metric not in _METRICS:
                raise EmbeddingFailed(
                    f"the index of Pinecone has the metric {stats.metric}: make one with cosine"
                )
            self._size = int(stats.dimension or wanted)
        if wanted > self._size:
            raise EmbeddingFailed(
                f"the index of Pinecone has {self._size} dimensions, the embedder {wanted}"
            )
        return self._size


def _padded(vector: Sequence[float], size: int) -> list[float]:
    return [*(float(number) for number in vector), *repeat(0.0, size - len(vector))]
