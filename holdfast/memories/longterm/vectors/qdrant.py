"""Vectors in Qdrant: at a server, or in the memory of the process."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID, uuid5

from holdfast.ground.errors import MissingExtra
from holdfast.memories.longterm.background.worker import bounded
from holdfast.memories.longterm.vectors.base import Near, Rows, in_order
from holdfast.memories.longterm.vectors.table import rounded

IN_MEMORY: Final = ":memory:"
"""The address of vectors in the memory of the process; the client's own word for it."""
_PREFIX: Final = "holdfast_"
"""Names of our collections in Qdrant begin so; the dimension follows."""
_POINT: Final = UUID("6a0bd1a5-0f0c-5a43-9a53-2a0b7d1c4f10")
"""Namespace of the ids of points, which Qdrant wants as UUIDs."""
_QUERY_SECONDS: Final = 5.0
"""Time limit of a query. A recall waits for it, and goes on by words after it."""
_SECONDS: Final = 60
"""Time limit of other requests, which are made in the background."""
_AT_ONCE: Final = 256
"""Rows in one request: 16 MiB of JSON at 3,072 dimensions; a server takes 32 MiB."""
_PAGE: Final = 1_000


class QdrantVectors:
    """Vectors at the server *url*, or in memory with ":memory:".

    Qdrant receives vectors, ids of rows and ids of collections alone: no text.
    """

    # One collection of Qdrant for each dimension, and the id of ours in the payload: a collection
    # of its own costs a server memory and files for every user, and a cluster admits 1,000 of
    # them by default (qdrant.tech/documentation/manage-data/multitenancy). The index of the
    # payload says `is_tenant`, so that a server stores the points of one collection together.
    # Queries are exact, within one collection of ours: no graph is built, none is searched.

    name = "qdrant"

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        try:
            from qdrant_client import QdrantClient, models
            from qdrant_client.http.exceptions import UnexpectedResponse
        except ImportError as error:
            raise MissingExtra("qdrant") from error
        self._models: Any = models
        # The second is what the client in memory raises. It always searches exactly, and warns
        # of parameters.
        self._refusals = (UnexpectedResponse, ValueError)
        self._served = url != IN_MEMORY
        self._exactly = models.SearchParams(exact=True) if self._served else None
        # Vectors in memory are of one thread at a time; a client of a server locks for itself.
        self._lock = threading.RLock()
        self._ready: set[str] = set()
        self._client: Any = (
            QdrantClient(url=url, api_key=api_key, timeout=_SECONDS, check_compatibility=False)
            if self._served
            else QdrantClient(location=IN_MEMORY, force_disable_check_same_thread=True)
        )

    def upsert(self, collection: str, dimension: int, rows: Rows) -> None:
        """Store *rows*, each in place of the vector of its id."""
        name = f"{_PREFIX}{dimension}"
        self._prepare(name, dimension)
        for start in range(0, len(rows), _AT_ONCE):
            points = [
                self._models.PointStruct(
                    id=_point(collection, id),
                    vector=[float(number) for number in vector],
                    payload={"collection": collection, "id": id},
                )
                for id, vector in rows[start : start + _AT_ONCE]
            ]
            try:
                self._call("upsert", name, points=points, wait=True)
            except self._refusals:
                # The next try makes the collection, should it have been deleted at the server.
                self._ready.discard(name)
                raise

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete the vectors of *ids*; a missing one is not an error."""
        if ids:
            points = [_point(collection, id) for id in ids]
            self._delete(self._models.PointIdsList(points=points))

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids with the vectors nearest to *vector*, by exact cosine."""
        name = f"{_PREFIX}{len(vector)}"
        if k < 1:
            return []
        try:
            found = bounded(
                lambda: self._query(name, collection, vector, k),
                _QUERY_SECONDS,
                name="holdfast-qdrant",
            )
        except self._refusals:
            if self._call("collection_exists", name):
                raise
            return []
        return in_order([(each.payload["id"], rounded(each.score)) for each in found.points], k)

    def ids(self, collection: str) -> Iterator[str]:
        """Yield the id of every vector, in order."""
        found: list[str] = []
        for name in self._names():
            offset: object = None
            while True:
                points, offset = self._call(
                    "scroll",
                    name,
                    scroll_filter=self._of(collection),
                    limit=_PAGE,
                    offset=offset,
                    with_payload=["id"],
                )
                found += [each.payload["id"] for each in points]
                if offset is None:
                    break
        yield from sorted(found)

    def drop(self, collection: str) -> None:
        """Delete the collection. The server rewrites its segments when it comes to that."""
        self._delete(self._models.FilterSelector(filter=self._of(collection)))

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _query(self, name: str, collection: str, vector: Sequence[float], k: int) -> Any:
        return self._call(
            "query_points",
            name,
            query=[float(number) for number in vector],
            query_filter=self._of(collection),
            search_params=self._exactly,
            limit=k,
            with_payload=["id"],
        )

    def _call(self, what: str, *args: object, **named: object) -> Any:
        call = getattr(self._client, what)
        if self._served:
            return call(*args, **named)
        with self._lock:
            return call(*args, **named)

    def _prepare(self, name: str, dimension: int) -> None:
        """Make the collection *name* of Qdrant and its index, once in each process."""
        with self._lock:
            if name in self._ready:
                return
            if not self._call("collection_exists", name):
                self._make(name, dimension)
            if self._served:
                self._call(
                    "create_payload_index",
                    name,
                    field_name="collection",
                    field_schema=self._models.KeywordIndexParams(type="keyword", is_tenant=True),
                    wait=True,
                )
            self._ready.add(name)

    def _make(self, name: str, dimension: int) -> None:
        distance = self._models.Distance.COSINE
        try:
            self._call(
                "create_collection",
                name,
                vectors_config=self._models.VectorParams(size=dimension, distance=distance),
                hnsw_config=self._models.HnswConfigDiff(m=0),
            )
        except self._refusals:
            # Another process may have made it meanwhile.
            if not self._call("collection_exists", name):
                raise

    def _delete(self, selector: object) -> None:
        for name in self._names():
            self._call("delete", name, points_selector=selector, wait=True)

    def _names(self) -> list[str]:
        names = [each.name for each in self._call("get_collections").collections]
        return [name for name in names if name.removeprefix(_PREFIX).isdigit()]

    def _of(self, collection: str) -> Any:
        match = self._models.MatchValue(value=collection)
        return self._models.Filter(
            must=[self._models.FieldCondition(key="collection", match=match)]
        )


def _point(collection: str, id: str) -> str:
    return str(uuid5(_POINT, f"{collection}/{id}"))
