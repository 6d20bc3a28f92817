"""How a collection stands: what it holds, how it is recalled from, what waits and what failed."""

from msgspec import Struct

from holdfast.engines.base import Reader, Transaction
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.read import collection_of
from holdfast.memories.longterm.records import LongTermStatus, Mode
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.vectors.compare import PACKAGE, EmbeddingState, compared, fits

EXTRACT, FAILED = "extract", "failed"


class JobStatus(Struct, frozen=True, kw_only=True):
    """How many jobs of one kind are in one state."""

    kind: str
    state: str
    jobs: int


def status(caller: CollectionContext) -> LongTermStatus:
    """Return how the caller's collection stands."""
    sql = caller.engine.queries("holdfast.memories.longterm")

    def work(reader: Reader) -> LongTermStatus:
        collection = collection_of(caller, reader)
        jobs = (
            reader.all(JobStatus, sql.count_jobs, collection=collection.number)
            if collection
            else []
        )
        waiting = [each for each in jobs if each.state != FAILED]
        return LongTermStatus(
            mode=_mode(caller, reader),
            reason=caller.degraded or reason_of(caller),
            embedding_model=collection.embedding_model if collection else None,
            vector_provider=collection.vector_provider if collection else None,
            items=collection.items - collection.superseded if collection else 0,
            superseded=collection.superseded if collection else 0,
            turns=collection.turns if collection else 0,
            pending_extraction=sum(each.jobs for each in waiting if each.kind == EXTRACT),
            pending_embedding=sum(each.jobs for each in waiting if each.kind != EXTRACT),
            failed=sum(each.jobs for each in jobs if each.state == FAILED),
            max_items=caller.max_items,
        )

    return caller.engine.read(work)


def _mode(caller: CollectionContext, reader: Reader) -> Mode:
    """Return how the caller recalls from the collection."""
    by = compared(caller)
    if by is None:
        return "lexical"
    found = reader.first(EmbeddingState, caller.engine.queries(PACKAGE).standing, **caller.named)
    if found is None or (fits(by, found) and not found.reembedding):
        return "hybrid"
    return "re-embedding"


def reason_of(caller: CollectionContext) -> str | None:
    """Return why vectors could not be had last; None while they can."""
    model = caller.embedder.model if caller.embedder else ""
    return caller.shared.troubles.get(model) if caller.embedder else None


def jobs_of(caller: CollectionContext) -> list[JobStatus]:
    """Return how many jobs of the caller's collection are in which state."""
    sql = caller.engine.queries("holdfast.memories.longterm")

    def work(reader: Reader) -> list[JobStatus]:
        collection = collection_of(caller, reader)
        if collection is None:
            return []
        return reader.all(JobStatus, sql.count_jobs, collection=collection.number)

    return caller.engine.read(work)


def retry(caller: CollectionContext) -> int:
    """Queue the jobs again that failed; return how many."""

    def work(tx: Transaction) -> int:
        book = CollectionTransaction(caller, tx, make=False)
        if book.found is None:
            return 0
        return tx.run(book.sql.retry_jobs, collection=book.number, now=book.now)

    return caller.engine.write(work)
