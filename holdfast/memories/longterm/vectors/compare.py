"""Similarity of texts by vectors, with fallbacks.

Nothing here fails a call. Where a vector cannot be had, or its keeper cannot be asked, recall and
dedupe go by words, and the reason is told once.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from holdfast.memories.longterm.background.worker import bounded
from holdfast.memories.longterm.context import CollectionContext, publish
from holdfast.memories.longterm.vectors.base import TellsAll, VectorProvider, asked
from holdfast.memories.longterm.vectors.embedder import (
    Embedder,
    EmbeddingFailed,
    InputType,
    Vector,
    embedded,
)

PACKAGE: Final = "holdfast.memories.longterm.background"
MOST_COMPARED: Final = 5_000
"""Rows whose cosines a recall knows, the nearest first; the others count as without a vector."""
_ONE_TABLE: Final = frozenset(("sqlite", "pgvector"))
"""Keepers that read what the other wrote."""

_log = logging.getLogger(__name__)


class EmbeddingState(Struct, frozen=True, kw_only=True):
    """By which model a collection is compared, and how much there is to compare."""

    number: int
    id: str
    embedding_model: str | None
    dimension: int | None
    vector_provider: str | None
    items: int
    superseded: int
    turns: int
    reembedding: int


class Meant(Struct, frozen=True, kw_only=True):
    """A text by its vector, and how near every row of the collection is to it, by id."""

    vector: Vector
    cosines: Mapping[str, float] | None


class Compared(Struct, frozen=True, kw_only=True):
    """With what a caller compares by meaning."""

    embedder: Embedder
    vectors: VectorProvider


def compared(caller: CollectionContext) -> Compared | None:
    """Return with what *caller* compares by meaning; None for one who goes by words."""
    if caller.embedder is None or caller.vectors is None:
        return None
    return Compared(embedder=caller.embedder, vectors=caller.vectors)


def standing_of(caller: CollectionContext) -> EmbeddingState | None:
    """Return how the caller's collection stands; None if there is none."""
    sql = caller.engine.queries(PACKAGE)
    return caller.engine.first(EmbeddingState, sql.standing, **caller.named)


def cosines_to(caller: CollectionContext, query: str) -> Mapping[str, float] | None:
    """Return how near rows are to *query*, by id; None where recall is to go by words.

    Waits for the query's vector no longer than the caller's `query_seconds`.
    """
    by = compared(caller)
    standing = standing_of(caller) if by and query.strip() else None
    if by is None or standing is None:
        return None
    if not fits(by, standing):
        caller.tend()
        return None
    try:
        vector = vector_of(caller, by, query, "query", standing.dimension)
        return near(by, standing, vector)
    except EmbeddingFailed as failed:
        degraded(caller, failed.reason)
        return None


def meant(caller: CollectionContext, text: str) -> Meant | None:
    """Return what *text*, which is to be remembered, means; None where it goes by words."""
    by = compared(caller)
    if by is None:
        return None
    standing = standing_of(caller)
    mixed = standing is not None and not fits(by, standing)
    dimension = standing.dimension if standing and not mixed else None
    try:
        vector = vector_of(caller, by, text, "document", dimension)
        whole = standing is not None and not mixed and standing.embedding_model is not None
        cosines = near(by, standing, vector) if standing and whole else None
        return Meant(vector=vector, cosines=cosines)
    except EmbeddingFailed as failed:
        degraded(caller, failed.reason)
        return None


def vector_of(
    caller: CollectionContext, by: Compared, text: str, input_type: InputType, dimension: int | None
) -> Vector:
    """Return the vector of *text*; EmbeddingFailed if it does not come in time."""
    seconds = caller.shared.query_seconds
    try:
        (vector,) = bounded(
            lambda: embedded(by.embedder, [text], input_type, dimension=dimension),
            seconds,
            name="holdfast-query",
        )
    except TimeoutError as error:
        raise EmbeddingFailed(f"no vector came within {seconds:g} s") from error
    caller.shared.troubles.pop(by.embedder.model, None)
    return vector


def near(by: Compared, standing: EmbeddingState, vector: Sequence[float]) -> Mapping[str, float]:
    """Return how near rows are to *vector*; EmbeddingFailed where their keeper cannot be asked."""
    rows, vectors = standing.items + standing.turns, by.vectors
    if isinstance(vectors, TellsAll) and rows <= MOST_COMPARED:
        return asked(lambda: vectors.cosines(standing.id, vector))
    return dict(asked(lambda: vectors.nearest(standing.id, vector, min(rows, MOST_COMPARED))))


def fits(by: Compared, standing: EmbeddingState) -> bool:
    """Tell whether the collection's vectors are of the caller's model, in the caller's keeper.

    A collection that never had any fits too.
    """
    model, provider = standing.embedding_model, standing.vector_provider
    return (model is None and not standing.items + standing.turns) or (
        model == by.embedder.model and one_place(provider, by.vectors.name)
    )


def one_place(one: str | None, other: str | None) -> bool:
    """Tell whether two keepers, by name, hold the same vectors."""
    return one == other or (one in _ONE_TABLE and other in _ONE_TABLE)


def degraded(caller: CollectionContext, reason: str) -> None:
    """Tell, once until it is mended, that recall goes by words because of *reason*."""
    model = caller.embedder.model if caller.embedder else ""
    if caller.shared.troubles.get(model) != reason:
        caller.shared.troubles[model] = reason
        _log.warning("long-term memory goes by words: %s", reason)
        publish(caller, "degraded", reason=reason)
