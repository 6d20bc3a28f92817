"""Jobs that embed items and turns."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Reader, Transaction
from holdfast.memories.longterm.background.jobs import (
    AGAIN,
    CRASHED,
    Job,
    LostJob,
    check_held,
    claim,
    end,
    put_off,
    renew,
    seconds_to_next,
    shrink,
)
from holdfast.memories.longterm.background.worker import bounded
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.rows import numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.vectors.base import WithRows, provider_call
from holdfast.memories.longterm.vectors.compare import (
    Compared,
    EmbeddingState,
    compared,
    degraded,
    fits,
    standing_of,
)
from holdfast.memories.longterm.vectors.embedder import (
    MOST_TEXTS,
    EmbeddingFailed,
    Vector,
    embedded,
)

SECONDS: Final = 60.0
"""Time limit for the vectors of one batch."""
_EMPTIED: Final = (0,)
"""What a job that embeds all rows is about once the earlier vectors are deleted; no row has it."""


class _Row(Struct, frozen=True):
    number: int
    id: str


class _Item(Struct, frozen=True, kw_only=True):
    number: int
    id: str
    text: str


class _Turn(Struct, frozen=True, kw_only=True):
    number: int
    id: str
    text: str
    caption: str


class Texts(Struct, frozen=True):
    """Ids of rows, and the texts to embed for them."""

    ids: list[str]
    texts: list[str]


class Embedding(Struct, frozen=True):
    """Background task that embeds the rows of one collection."""

    context: CollectionContext
    by: Compared

    def tend(self) -> float | None:
        """Do one job that is due; see `Tender`."""
        standing = standing_of(self.context)
        if standing is None:
            return None
        if not fits(self.by, standing):
            adopt(self.context, self.by)
            return 0.0
        job = claim(self.context, standing.number, "embed")
        if job is None:
            return seconds_to_next(self.context, standing.number, "embed")
        if job.attempts > len(AGAIN):
            put_off(self.context, job, CRASHED)
        else:
            self._do(standing, job)
        return 0.0

    def _do(self, standing: EmbeddingState, job: Job) -> None:
        try:
            embed(self.context, self.by, standing, job)
            self.context.shared.troubles.pop(self.by.embedder.model, None)
        except LostJob:
            return
        except EmbeddingFailed as failed:
            degraded(self.context, failed.reason)
            put_off(self.context, job, failed.reason)


def tender_of(context: CollectionContext) -> Embedding | None:
    """Return the task that embeds for *context*; None without an embedding model."""
    by = compared(context)
    return None if by is None else Embedding(context, by)


def settled(context: CollectionContext) -> bool:
    """Check that the collection's vectors match the caller's embedding model.

    True also for a caller without an embedding model.
    """
    by = compared(context)
    standing = standing_of(context) if by else None
    return by is None or standing is None or fits(by, standing)


def adopt(context: CollectionContext, by: Compared) -> None:
    """Switch the caller's collection to the caller's embedding model."""

    def work(tx: Transaction) -> str | None:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None:
            return None
        unit.vectors.adopt(by)
        unit.close()
        return unit.there.id

    collection = context.engine.write(work)
    if collection is not None and not isinstance(by.vectors, WithRows):
        _drop(context, by, collection)


def embed(context: CollectionContext, by: Compared, standing: EmbeddingState, job: Job) -> None:
    """Embed the rows of *job* in batches, each in its own transaction.

    Raise `EmbeddingFailed`, or `LostJob` if another worker has the job now.
    """
    if job.kind == "reembed" and not isinstance(by.vectors, WithRows):
        _empty(context, by, standing, job)
    numbers = job.about if job.kind == "embed" else missing(context, by, standing)
    batches = [numbers[at : at + MOST_TEXTS] for at in range(0, len(numbers), MOST_TEXTS)]
    for batch in batches[:-1]:
        _embed_batch(context, by, job, batch, last=False)
    _embed_batch(context, by, job, batches[-1] if batches else (), last=True)


def _empty(context: CollectionContext, by: Compared, standing: EmbeddingState, job: Job) -> None:
    """Delete the vectors of an earlier model from an external provider, once in *job*.

    They are deleted when the collection changes its model, too, but then the provider may be down.
    """
    if job.about == _EMPTIED:
        return
    provider_call(lambda: by.vectors.drop(standing.id))

    def work(tx: Transaction) -> None:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None:
            raise LostJob
        shrink(context, tx, job, _EMPTIED)
        unit.close()

    context.engine.write(work)


def missing(context: CollectionContext, by: Compared, standing: EmbeddingState) -> Sequence[int]:
    """Return the numbers of the rows without a vector."""
    sql, place = context.job_sql, {"collection": standing.number}
    there = set(provider_call(lambda: list(by.vectors.ids(standing.id))))

    def work(reader: Reader) -> list[_Row]:
        rows = reader.all(_Row, sql.live_items, **place)
        turns = context.options.embed_turns
        return [*rows, *(reader.all(_Row, sql.all_turns, **place) if turns else ())]

    return sorted(row.number for row in context.engine.read(work) if row.id not in there)


def _embed_batch(
    context: CollectionContext, by: Compared, job: Job, numbers: Sequence[int], *, last: bool
) -> None:
    standing = standing_of(context)
    if standing is None:
        raise LostJob
    rows = context.engine.read(lambda reader: _texts(context, reader, standing.number, numbers))
    vectors = _vectors(by, rows.texts, standing.dimension, lambda: renew(context, job))
    made = list(zip(rows.ids, vectors, strict=True))
    if made and not isinstance(by.vectors, WithRows):
        size = len(vectors[0])
        provider_call(lambda: by.vectors.upsert(standing.id, size, made))

    def work(tx: Transaction) -> None:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None or unit.vectors.model != by.embedder.model:
            raise LostJob
        check_held(context, tx, job)
        # A row that was forgotten while its vector was computed is not stored again.
        still = set(_texts(context, tx, unit.number, numbers).ids)
        kept = [(id, vector) for id, vector in made if id in still]
        if kept and isinstance(by.vectors, WithRows):
            if not unit.vectors.put(kept):
                raise LostJob
        elif kept:
            unit.vectors.measure(len(kept[0][1]))
        if last:
            end(context, tx, job)
            if job.kind == "reembed":
                unit.note("reembedded", model=by.embedder.model)
        unit.close()

    context.engine.write(work)


def _vectors(
    by: Compared,
    texts: list[str],
    dimension: int | None,
    beat: Callable[[], None],
) -> list[Vector]:
    if not texts:
        return []
    try:
        return bounded(
            lambda: embedded(by.embedder, texts, "document", dimension=dimension),
            SECONDS,
            name="holdfast-embedding",
            beat=beat,
        )
    except TimeoutError as error:
        raise EmbeddingFailed(f"no vectors came within {SECONDS:g} s") from error


def _texts(
    context: CollectionContext, reader: Reader, collection: int, numbers: Sequence[int]
) -> Texts:
    place = {"collection": collection, "numbers": numbers_text(list(numbers))}
    if not numbers:
        return Texts([], [])
    items = reader.all(_Item, context.job_sql.items_to_embed, **place)
    turns = (
        reader.all(_Turn, context.job_sql.turns_to_embed, **place)
        if context.options.embed_turns
        else []
    )
    return Texts(
        [*(each.id for each in items), *(each.id for each in turns)],
        [*(each.text for each in items), *(_said(each) for each in turns)],
    )


def _said(turn: _Turn) -> str:
    """Return the text to embed; a change of it is a change of `TEXT_FORM`."""
    return f"{turn.text} {turn.caption}" if turn.caption else turn.text


def _drop(context: CollectionContext, by: Compared, collection: str) -> None:
    try:
        provider_call(lambda: by.vectors.drop(collection))
    except EmbeddingFailed as failed:
        degraded(context, failed.reason)
