"""Extract items from turns, and choose the worker for jobs of a collection.

The items of a chunk of a conversation and the progress of its job are written in one transaction:
each turn is mined once, also with several processes and after a crash. Orphaned jobs are included.
"""

import logging
from collections.abc import Collection, Sequence
from time import monotonic, perf_counter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.metrics import REGISTRY, WORK_SECONDS
from holdfast.ground.scope import EVERYBODY
from holdfast.memories.longterm.background import embed_jobs
from holdfast.memories.longterm.background.extractor import (
    MOST_EXISTING,
    ConversationChunk,
    ExtractedItem,
    ExtractionRequest,
    UnreadableAnswer,
    candidates,
    parts,
    request,
)
from holdfast.memories.longterm.background.jobs import (
    AGAIN,
    CRASHED,
    LEASE,
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
from holdfast.memories.longterm.context import CollectionContext, Extractor, Results, publish
from holdfast.memories.longterm.read import FAILED, ItemFilter, JobStatus, jobs_of, list_rows
from holdfast.memories.longterm.recall.recall import nearest_items
from holdfast.memories.longterm.records import Flushed, Item, Outcome, Remembered, alike, terms_hash
from holdfast.memories.longterm.remember import (
    OUTCOMES,
    Grave,
    HeldItem,
    graves,
    item_numbered,
    store,
    turns_there,
)
from holdfast.memories.longterm.rows import NumberedRow, TurnRow, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange
from holdfast.memories.longterm.vectors.compare import EmbeddingState, Meant, meant, standing_of
from holdfast.memories.longterm.write import ItemRequest, Ready, ready, screen

_SECONDS: Final = REGISTRY.histogram(
    "ltm_extraction_seconds", "From the request to the model's answer.", WORK_SECONDS
)


_MOST_SOURCE: Final = 256


class Ripe(Struct, frozen=True, kw_only=True):
    """A candidate ready to be stored, unless the collection holds a tombstone of it."""

    request: ItemRequest
    text: Ready
    meant: Meant | None
    reasons: tuple[str, ...]
    supersedes: tuple[str, ...]


class Proposed(Struct, frozen=True, kw_only=True):
    """Candidates of one chunk, and the results that are known before storing."""

    part: ConversationChunk
    ripe: tuple[Ripe | Remembered, ...] = ()


def propose(
    context: CollectionContext,
    part: ConversationChunk,
    known: Sequence[Item],
    given: Sequence[ExtractedItem],
) -> Proposed:
    """Screen, analyse and embed *given* before their transaction."""
    return Proposed(part=part, ripe=tuple(_ripe(context, part, known, each) for each in given))


def keep(unit: CollectionTransaction, proposed: Proposed) -> tuple[Remembered, ...]:
    """Store the candidates in the transaction of *unit*; return one result for each."""
    named = sorted({turn.id for turn in proposed.part.turns})
    there = {each.id for each in turns_there(unit, named)}
    buried = graves(unit) if unit.there.buried else []
    results: list[Remembered] = []
    for each in proposed.ripe:
        if isinstance(each, Remembered):
            done = each
        elif not there.issuperset(each.request.turns) or _is_buried(unit, each, buried):
            done = Remembered(stored=None, outcome="forgotten")
        else:
            done = _stored(unit, each)
        results.append(done)
        if done.stored is None:
            unit.tx.after_commit(lambda outcome=done.outcome: OUTCOMES.add(outcome))
    return tuple(results)


def _ripe(
    context: CollectionContext, part: ConversationChunk, known: Sequence[Item], given: ExtractedItem
) -> Ripe | Remembered:
    if given.outcome is not None:
        return _not_kept(given.outcome)
    if not given.text:
        return _not_kept("blank")
    turns = [part.turns[place] for place in given.turns]
    thread = next((turn.thread_id for turn in turns if turn.thread_id), None)
    found = screen(context, (given.text, thread or ""))
    if found.refused:
        return _not_kept("secret", found.refused)
    text = ready(found.texts[0])
    ids = tuple(turn.id for turn in turns)
    return Ripe(
        request=ItemRequest(
            text=found.texts[0],
            kind=given.kind,
            importance=given.importance,
            source=_source(found.texts[1]),
            turns=ids,
            origin="extraction",
        ),
        text=text,
        meant=meant(context, text.text),
        reasons=found.redacted,
        supersedes=tuple(known[place].id for place in given.supersedes),
    )


def _stored(unit: CollectionTransaction, ripe: Ripe) -> Remembered:
    done = replace(store(unit, ripe.request, ripe.text, meant=ripe.meant), reasons=ripe.reasons)
    new = done.stored
    if done.outcome != "stored" or new is None:
        return done
    older = [id for id in ripe.supersedes if id not in done.evicted]
    superseded = [id for id in older if _supersede(unit, id, by=new.id)]
    if not superseded:
        return done
    number = unit.tx.one(
        NumberedRow, unit.sql.item_number, collection=unit.number, id=new.id
    ).number
    return replace(done, stored=item_numbered(unit, number))


def _supersede(unit: CollectionTransaction, id: str, *, by: str) -> bool:
    """Mark the item *id* as superseded if it is live; return whether it was.

    It keeps its text, and is not recalled.
    """
    place = {"collection": unit.number}
    number = unit.tx.first(NumberedRow, unit.sql.item_number, id=id, **place)
    if number is None:
        return False
    held = unit.tx.one(HeldItem, unit.sql.held_item, number=number.number, **place)
    if held.superseded_at is not None:
        return False
    unit.tx.send(unit.sql.supersede_item, by=by, id=id, now=unit.now, **place)
    unit.superseded(PostingChange(held.number, held.body))
    unit.vectors.drop(id)
    unit.note("superseded", {"item": [id]}, by=by)
    return True


def _is_buried(unit: CollectionTransaction, ripe: Ripe, buried: Sequence[Grave]) -> bool:
    """Check whether a tombstone matches the text of *ripe*."""
    if not buried:
        return False
    terms = terms_hash(unit.secret, ripe.text.said.terms)
    return any(alike(terms, grave.terms) for grave in buried)


def _source(thread: str) -> str:
    """Return the source of an item, cut to its limit of 256 bytes."""
    if not thread:
        return ""
    return f"thread:{thread}".encode()[:_MOST_SOURCE].decode(errors="ignore")


def _not_kept(outcome: Outcome, reasons: tuple[str, ...] = ()) -> Remembered:
    return Remembered(stored=None, outcome=outcome, reasons=reasons)


SECONDS: Final = 60.0
"""Time limit for one response of an extractor."""

_log = logging.getLogger(__name__)


class ExtractionFailed(Exception):
    """The extractor returned no response, or none that can be parsed.

    *reason* is the name of the exception's type.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Mining(Struct, frozen=True):
    """Background task that mines the turns of one collection."""

    context: CollectionContext

    def tend(self) -> float | None:
        """Do one job that is due; see `Tender`."""
        context, standing = self.context, standing_of(self.context)
        if standing is None or context.extractor is None:
            return None
        job = claim(context, standing.number, "extract")
        if job is None:
            return seconds_to_next(context, standing.number, "extract")
        if job.attempts > len(AGAIN):
            self._failed(standing, job, CRASHED)
            return 0.0
        try:
            mine(context, context.extractor, standing, job)
        except LostJob:
            return 0.0
        except ExtractionFailed as failed:
            self._failed(standing, job, failed.reason)
        return 0.0

    def _failed(self, standing: EmbeddingState, job: Job, reason: str) -> None:
        _log.warning("an extraction failed: %s", reason)
        if put_off(self.context, job, reason):
            publish(self.context, "extraction_failed", collection=standing.id, error=reason)


def mine(
    context: CollectionContext, extractor: Extractor, standing: EmbeddingState, job: Job
) -> None:
    """Mine the turns of *job* in chunks, each in its own transaction.

    Raise `ExtractionFailed`, or `LostJob` if another worker has the job now.
    """
    rows = _turns(context, standing, job)
    numbers = {row.id: row.number for row in rows}
    left = [row.number for row in rows]
    found = False
    for part in parts(row.record() for row in rows):
        found = True
        done = {numbers[turn.id] for turn in part.turns}
        left = [number for number in left if number not in done]
        proposed = _proposed(context, extractor, job, part)
        _keep(context, job, proposed, left)
    if not found:
        _keep(
            context, job, Proposed(part=ConversationChunk(turns=(), shown=(), conversation="")), ()
        )


def _proposed(
    context: CollectionContext, extractor: Extractor, job: Job, part: ConversationChunk
) -> Proposed:
    said = "\n".join(turn.text for turn in part.turns if turn.role == "user")
    known = _known(context, said)
    sent = request(part, known)
    answer = _answer(context, extractor, job, sent)
    try:
        given = candidates(answer, sent)
    except UnreadableAnswer as error:
        raise ExtractionFailed(type(error).__name__) from error
    return propose(context, part, known, given)


def _known(context: CollectionContext, said: str) -> list[Item]:
    """Return the live items nearest to *said*, filled up with the newest ones."""
    near = nearest_items(context, said, MOST_EXISTING)
    if len(near) < MOST_EXISTING:
        newest = list_rows(context, ItemFilter(), limit=MOST_EXISTING, page=None).data
        ids = {item.id for item in near}
        near += [each for each in newest if isinstance(each, Item) and each.id not in ids]
    return near[:MOST_EXISTING]


def _answer(
    context: CollectionContext, extractor: Extractor, job: Job, sent: ExtractionRequest
) -> str:
    def ask() -> str:
        try:
            answer = extractor(sent)
        except Exception as error:
            # The message of a caller's exception may hold the turns, so only its type is logged.
            raise ExtractionFailed(type(error).__name__) from error
        if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's function
            raise ExtractionFailed(UnreadableAnswer.__name__)
        return answer

    begun = perf_counter()
    try:
        answer = bounded(ask, SECONDS, name="holdfast-extraction", beat=lambda: renew(context, job))
    except TimeoutError as error:
        raise ExtractionFailed(type(error).__name__) from error
    _SECONDS.observe(perf_counter() - begun)
    return answer


def _keep(context: CollectionContext, job: Job, proposed: Proposed, left: Sequence[int]) -> None:
    """Store the candidates, and reduce *job* to the rows *left*, or end it."""

    def work(tx: Transaction) -> tuple[Remembered, ...]:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None:
            raise LostJob
        check_held(context, tx, job)
        results = keep(unit, proposed)
        if left:
            shrink(context, tx, job, left)
        else:
            end(context, tx, job)
        stored = sum(each.outcome == "stored" for each in results)
        unit.note("extracted", items=stored, turns=len(proposed.part.turns))
        unit.close()
        return results

    context.shared.mined.tell(context.place, context.engine.write(work))


def _turns(context: CollectionContext, standing: EmbeddingState, job: Job) -> list[TurnRow]:
    """Return the turns of *job* that still exist, in order of recording."""

    def work(reader: Reader) -> list[TurnRow]:
        numbers = numbers_text(list(job.about))
        place = {"collection": standing.number, "numbers": numbers}
        rows = reader.all(TurnRow, context.sql.turns_numbered, **place) if job.about else []
        return sorted(rows, key=lambda row: row.number)

    return context.engine.read(work)


_PIECE: Final = 0.25
"""Seconds between checks for the work of other processes."""


class PendingWork:
    """Schedules jobs of callers on the worker that they share."""

    def wake(self, context: CollectionContext) -> None:
        """Wake the worker for *context*'s jobs."""
        tender = embed_jobs.tender_of(context)
        if tender is not None:
            context.shared.worker.wake(("embed", context.place), tender)
        if context.mines:
            context.shared.worker.wake(("extract", context.place), Mining(context))


def flush(context: CollectionContext, results: Results, timeout: float | None) -> Flushed:
    """Wait at most *timeout* seconds until *context* has no runnable jobs left.

    *results* has the mining results that the caller's memory has received. A job that waits for a
    retry is waited for too, until it is done or has failed.
    """
    end = None if timeout is None else monotonic() + timeout
    context.shared.access_log.flush()
    context.tend()
    doable = kinds_of(context)
    while True:
        # In this order: jobs that a change of model queues exist once the change is made.
        settled = embed_jobs.settled(context)
        jobs = jobs_of(context)
        left = _PIECE if end is None else end - monotonic()
        if left <= 0 or (settled and not _waiting(jobs, doable)):
            break
        context.shared.worker.wait(min(left, _PIECE))
    pending = sum(each.jobs for each in jobs if each.state != FAILED)
    failed = sum(each.jobs for each in jobs if each.state == FAILED)
    return Flushed(done=not pending, results=results.take(), pending=pending, failed=failed)


def kinds_of(context: CollectionContext) -> Collection[str]:
    """Return the kinds of jobs that this process can do for *context*."""
    embeds = ("embed", "reembed") if embed_jobs.tender_of(context) is not None else ()
    return (*embeds, "extract") if context.mines else embeds


def _waiting(jobs: list[JobStatus], kinds: Collection[str]) -> bool:
    return any(each.kind in kinds and each.state != FAILED for each in jobs)


MOST: Final = 1_000
"""Largest number of collections in one result of `left_over`."""


class LeftOver(Struct, frozen=True, kw_only=True):
    """A collection with overdue jobs, and the names of the models they need."""

    workspace: str
    user_id: str
    namespace: str
    workspace_id: str
    vector_provider: str | None
    miner: str | None
    embedder: str | None


def left_over(engine: Engine, now: int) -> list[LeftOver]:
    """Return the collections of all workspaces with jobs overdue at *now*.

    Jobs for an extractor that is a function are left out: only its process can do them.
    """
    everybody = engine.scoped(EVERYBODY)
    sql = everybody.queries("holdfast.memories.longterm.background")
    return everybody.all(LeftOver, sql.left_over, now=now, grace=LEASE, most=MOST)
