"""Similarity of texts by vectors, with fallbacks.

Nothing here fails a call. If a vector cannot be computed, or the provider cannot be reached,
recall and dedupe compare by words, and the reason is logged once.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from holdfast.memories.longterm.background.worker import bounded
from holdfast.memories.longterm.context import CollectionContext, publish
from holdfast.memories.longterm.recall.cache import Speaker, participants_of
from holdfast.memories.longterm.recall.query import without_names
from holdfast.memories.longterm.vectors.base import (
    MOST_COMPARED,
    TellsAll,
    VectorProvider,
    provider_call,
)
from holdfast.memories.longterm.vectors.embedder import (
    Embedder,
    EmbeddingFailed,
    InputType,
    Vector,
    embedded,
)

TEXT_FORM: Final = 2
"""The form of the texts that are embedded: 2 is each turn alone, 1 was with the turn before it.

It is stored with a collection's model; vectors of another form are made again.
"""
_ONE_TABLE: Final = frozenset(("sqlite", "pgvector"))
"""Providers that share one table."""

_log = logging.getLogger(__name__)


class EmbeddingState(Struct, frozen=True, kw_only=True):
    """Embedding model and size of a collection."""

    number: int
    id: str
    embedding_model: str | None
    dimension: int | None
    vector_provider: str | None
    text_form: int
    version: int
    items: int
    superseded: int
    turns: int
    reembedding: int
    vectors_seq: int | None
    """Number of the last change of its vectors in the table; None if it has none there."""


class Meant(Struct, frozen=True, kw_only=True):
    """The vector of a text, and the cosines of the collection's rows to it, by id."""

    vector: Vector
    cosines: Mapping[str, float] | None


class Compared(Struct, frozen=True, kw_only=True):
    """Embedder and vector provider of a caller."""

    embedder: Embedder
    vectors: VectorProvider


def compared(context: CollectionContext) -> Compared | None:
    """Return *context*'s embedder and provider; None if it compares by words."""
    if context.embedder is None or context.vectors is None:
        return None
    return Compared(embedder=context.embedder, vectors=context.vectors)


def standing_of(context: CollectionContext) -> EmbeddingState | None:
    """Return the embedding state of the caller's collection; None if there is none."""
    return context.engine.first(EmbeddingState, context.job_sql.standing, **context.named)


def cosines_to(context: CollectionContext, query: str) -> Mapping[str, float] | None:
    """Return the cosines of rows to *query*, by id; None if recall compares by words.

    The embedder gets the query without the names of those who speak in the collection. Wait for
    the query's vector no longer than the caller's `query_seconds`.
    """
    by = compared(context)
    standing = standing_of(context) if by and query.strip() else None
    if by is None or standing is None:
        return None
    if not fits(by, standing):
        context.tend()
        return None
    try:
        text = without_names(query, _participants(context, standing))
        vector = vector_of(context, by, text, "query", standing.dimension)
        return near(by, standing, vector)
    except EmbeddingFailed as failed:
        degraded(context, failed.reason)
        return None


def _participants(context: CollectionContext, standing: EmbeddingState) -> tuple[str, ...]:
    """Return the participants of the collection, cached or from its turns."""
    entry = context.shared.kept.at(context.place)
    if entry is not None:
        with entry.lock:
            known = entry.participants(standing.version)
        if known is not None:
            return known
    speakers = context.engine.all(Speaker, context.sql.speakers, collection=standing.number)
    return participants_of(speakers)


def meant(context: CollectionContext, text: str) -> Meant | None:
    """Return the vector of *text*, which is to be stored, and the cosines to it.

    None if texts are compared by words.
    """
    by = compared(context)
    if by is None:
        return None
    standing = standing_of(context)
    mixed = standing is not None and not fits(by, standing)
    dimension = standing.dimension if standing and not mixed else None
    try:
        vector = vector_of(context, by, text, "document", dimension)
        whole = standing is not None and not mixed and standing.embedding_model is not None
        cosines = near(by, standing, vector) if standing and whole else None
        return Meant(vector=vector, cosines=cosines)
    except EmbeddingFailed as failed:
        degraded(context, failed.reason)
        return None


def vector_of(
    context: CollectionContext,
    by: Compared,
    text: str,
    input_type: InputType,
    dimension: int | None,
) -> Vector:
    """Return the vector of *text*; raise `EmbeddingFailed` if it is not ready in time."""
    seconds = context.shared.query_seconds
    try:
        (vector,) = bounded(
            lambda: embedded(by.embedder, [text], input_type, dimension=dimension),
            seconds,
            name="holdfast-query",
        )
    except TimeoutError as error:
        raise EmbeddingFailed(f"no vector came within {seconds:g} s") from error
    context.shared.troubles.pop(by.embedder.model, None)
    return vector


def near(by: Compared, standing: EmbeddingState, vector: Sequence[float]) -> Mapping[str, float]:
    """Return the cosines of rows to *vector*, by id.

    Raise `EmbeddingFailed` if the provider cannot be reached.
    """
    rows, vectors = standing.items + standing.turns, by.vectors
    if isinstance(vectors, TellsAll):
        return provider_call(lambda: vectors.cosines(standing.id, vector, seq=standing.vectors_seq))
    return dict(
        provider_call(lambda: vectors.nearest(standing.id, vector, min(rows, MOST_COMPARED)))
    )


def fits(by: Compared, standing: EmbeddingState) -> bool:
    """Check whether the collection's vectors are of the caller's model and provider.

    They must also be of texts in the form of today. A collection that never had vectors fits too.
    """
    model, provider = standing.embedding_model, standing.vector_provider
    return (model is None and not standing.items + standing.turns) or (
        model == by.embedder.model
        and one_place(provider, by.vectors.name)
        and standing.text_form == TEXT_FORM
    )


def one_place(one: str | None, other: str | None) -> bool:
    """Check whether two providers, by name, share their vectors."""
    return one == other or (one in _ONE_TABLE and other in _ONE_TABLE)


def degraded(context: CollectionContext, reason: str) -> None:
    """Log and publish, once until it works again, that recall compares by words."""
    model = context.embedder.model if context.embedder else ""
    if context.shared.troubles.get(model) != reason:
        context.shared.troubles[model] = reason
        _log.warning("long-term memory goes by words: %s", reason)
        publish(context, "degraded", reason=reason)
