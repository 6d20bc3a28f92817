"""Extract items from turns, and choose the worker for jobs of a collection.

The items of a chunk of a conversation and the progress of its job are written in one transaction:
each turn is mined once, also with several processes and after a crash. Orphaned jobs are included.
"""

import logging
from collections.abc import Container, Sequence
from time import monotonic, perf_counter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.metrics import REGISTRY, WORK_SECONDS
from holdfast.ground.scope import EVERYBODY
from holdfast.ground.trust import USERS
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
    tokens_of,
)
from holdfast.memories.longterm.background.jobs import (
    AGAIN,
    CRASHED,
    LEASE,
    SECOND,
    Job,
    LostJob,
    check_held,
    claim,
    end,
    put_off,
    release,
    renew,
    seconds_to_next,
    shrink,
)
from holdfast.memories.longterm.background.wishes import (
    BUDGET,
    MiningState,
    is_wished,
    note_state,
    seconds_to_tomorrow,
    spend,
    state_of,
    tokens_left,
)
from holdfast.memories.longterm.background.worker import bounded
from holdfast.memories.longterm.context import CollectionContext, Extractor, Results, publish
from holdfast.memories.longterm.read import (
    FAILED,
    ItemFilter,
    JobStatus,
    collection_of,
    jobs_of,
    list_rows,
)
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
from holdfast.memories.longterm.rows import Collection, NumberedRow, TurnRow, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange
from holdfast.memories.longterm.trust.evidence import mined_trust
from holdfast.memories.longterm.trust.rules import may_supersede, names_written, quotations
from holdfast.memories.longterm.vectors.compare import Meant, meant
from holdfast.memories.longterm.write import ItemRequest, ItemTrust, Ready, ready, screen

_SECONDS: Final = REGISTRY.histogram(
    "ltm_extraction_seconds", "From the request to the model's answer.", WORK_SECONDS
)


_MOST_SOURCE: Final = 256


class Ripe(Struct, frozen=True, kw_only=True):
    """A candidate ready to be stored, unless the collection holds a tombstone of it."""

    request: ItemRequest
    text: Ready
    trust: ItemTrust
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
    others = names_written(
        (
            *(quotations(turn.text) if turn.tier == "said" else turn.text for turn in part.turns),
            *(item.text for item in known if item.tier not in USERS),
        )
    )
    ripe = (_ripe(context, part, known, each, others) for each in given)
    return Proposed(part=part, ripe=tuple(ripe))


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
    context: CollectionContext,
    part: ConversationChunk,
    known: Sequence[Item],
    given: ExtractedItem,
    others: frozenset[str],
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
    trust = mined_trust(context, text, turns, others)
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
        trust=trust,
        # A text that will be held is not sent to an embedder.
        meant=meant(context, text.text) if trust.hold is None else None,
        reasons=found.redacted,
        supersedes=tuple(known[place].id for place in given.supersedes),
    )


def _stored(unit: CollectionTransaction, ripe: Ripe) -> Remembered:
    done = store(unit, ripe.request, ripe.text, ripe.trust, meant=ripe.meant)
    done = replace(done, reasons=(*ripe.reasons, *done.reasons))
    new = done.stored
    if done.outcome != "stored" or new is None:
        return done
    older = [id for id in ripe.supersedes if id not in done.evicted]
    superseded = [id for id in older if _supersede(unit, id, by=new)]
    if not superseded:
        return done
    number = unit.tx.one(
        NumberedRow, unit.sql.item_number, collection=unit.number, id=new.id
    ).number
    return replace(done, stored=item_numbered(unit, number))


def _supersede(unit: CollectionTransaction, id: str, *, by: Item) -> bool:
    """Mark the item *id* as superseded if it is live, and of no higher tier than *by*.

    Return whether it was.

    It keeps its text, and is not recalled.
    """
    place = {"collection": unit.number}
    number = unit.tx.first(NumberedRow, unit.sql.item_number, id=id, **place)
    if number is None:
        return False
    held = unit.tx.one(HeldItem, unit.sql.held_item, number=number.number, **place)
    guarded = unit.context.guarded
    if held.superseded_at is not None or held.held is not None:
        return False
    if guarded and not may_supersede(by.tier, held.tier):
        return False
    unit.keep_state(held.number)
    unit.tx.send(unit.sql.supersede_item, by=by.id, id=id, now=unit.now, **place)
    unit.record_state(held.number, "supersede")
    unit.superseded(PostingChange(held.number, held.body))
    unit.vectors.drop(id)
    unit.note("superseded", {"item": [id]}, by=by.id)
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
PATIENCE: Final = 7 * 86_400 * SECOND
"""Microseconds for which an extraction that fails is tried again."""

_log = logging.getLogger(__name__)


class ExtractionFailed(Exception):
    """The extractor returned no response, or none that can be parsed.

    *reason* is the name of the exception's type.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BudgetSpent(Exception):
    """The workspace has no tokens left for mining today."""


class Mining(Struct, frozen=True):
    """Background task that mines the turns of one collection."""

    context: CollectionContext

    def tend(self) -> float | None:
        """Do one job that is due; see `Tender`.

        Jobs wait while their extractor cannot be used, or has spent the day's tokens.
        """
        context = self.context
        collection, state = context.engine.read(lambda reader: _looked_at(context, reader))
        note_state(context, collection, state)
        wish = context.wish(collection.extractor if collection else None)
        if collection is None or wish.extractor is None:
            return None
        after = seconds_to_next(context, collection.number, "extract")
        if after is None or state.reason == BUDGET:
            return None if after is None else seconds_to_tomorrow(context)
        job = claim(context, collection.number, "extract")
        if job is None:
            return after
        if job.crashed and job.attempts > len(AGAIN):
            self._failed(collection, job, CRASHED)
        else:
            self._mine(wish.extractor, collection, job)
        return 0.0

    def _mine(self, extractor: Extractor, collection: Collection, job: Job) -> None:
        try:
            mine(self.context, extractor, collection, job)
        except LostJob:
            return
        except BudgetSpent:
            release(self.context, job)
        except ExtractionFailed as failed:
            self._failed(collection, job, failed.reason)

    def _failed(self, collection: Collection, job: Job, reason: str) -> None:
        _log.warning("an extraction failed: %s", reason)
        if put_off(self.context, job, reason, patience=PATIENCE):
            publish(self.context, "extraction_failed", collection=collection.id, error=reason)


def _looked_at(context: CollectionContext, reader: Reader) -> tuple[Collection | None, MiningState]:
    collection = collection_of(context, reader)
    return collection, state_of(context, reader, collection)


def mine(
    context: CollectionContext, extractor: Extractor, collection: Collection, job: Job
) -> None:
    """Mine the turns of *job* in chunks, each in its own transaction.

    Raise `ExtractionFailed`, `BudgetSpent`, or `LostJob` if another worker has the job now.
    """
    rows = _turns(context, collection, job)
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

    if context.engine.read(lambda reader: tokens_left(context, reader)) <= 0:
        raise BudgetSpent
    begun = perf_counter()
    try:
        answer = bounded(ask, SECONDS, name="holdfast-extraction", beat=lambda: renew(context, job))
    except TimeoutError as error:
        # The model has read the request, and may have answered.
        spend(context, tokens_of(sent, ""))
        raise ExtractionFailed(type(error).__name__) from error
    _SECONDS.observe(perf_counter() - begun)
    spend(context, tokens_of(sent, answer))
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
        tx.send(context.job_sql.set_mined, collection=unit.number, now=unit.now)
        stored = sum(each.outcome == "stored" for each in results)
        unit.note("extracted", items=stored, turns=len(proposed.part.turns))
        unit.close()
        return results

    context.shared.mined.tell(context.place, context.engine.write(work))


def _turns(context: CollectionContext, collection: Collection, job: Job) -> list[TurnRow]:
    """Return the turns of *job* that exist and may be mined, in order of recording."""

    def work(reader: Reader) -> list[TurnRow]:
        numbers = numbers_text(list(job.about))
        place = {"collection": collection.number, "numbers": numbers}
        rows = reader.all(TurnRow, context.sql.turns_numbered, **place) if job.about else []
        fit = [row for row in rows if row.held is None and row.tier != "outside"]
        return sorted(fit, key=lambda row: row.number)

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
        if is_wished(context):
            context.shared.worker.wake(("extract", context.mining_place), Mining(context))


def flush(context: CollectionContext, results: Results, timeout: float | None) -> Flushed:
    """Wait at most *timeout* seconds until *context* has no runnable jobs left.

    *results* has the mining results that the caller's memory has received. A job that waits for an
    early retry is waited for too; one that has failed several times, or that no extractor can
    do now, is not. With the day's tokens spent, only a job at work is waited for.
    """
    end = None if timeout is None else monotonic() + timeout
    context.shared.access_log.flush()
    context.tend()
    while True:
        # In this order: jobs that a change of model queues exist once the change is made, and a
        # job that spends the budget has ended or is at work.
        settled = embed_jobs.settled(context)
        doable = _doable(context)
        jobs = jobs_of(context)
        left = _PIECE if end is None else end - monotonic()
        if left <= 0 or (settled and not _waiting(jobs, doable)):
            break
        context.shared.worker.wait(min(left, _PIECE))
    pending = sum(each.jobs for each in jobs if each.state != FAILED)
    failed = sum(each.jobs for each in jobs if each.state == FAILED)
    return Flushed(done=not pending, results=results.take(), pending=pending, failed=failed)


_RUNNABLE: Final = ("queued", "running")


def _doable(context: CollectionContext) -> dict[str, Container[str]]:
    """Return which states of jobs, by kind, this process will do something about now."""
    states: dict[str, Container[str]] = {}
    if embed_jobs.tender_of(context) is not None:
        states = {"embed": _RUNNABLE, "reembed": _RUNNABLE}
    _, mining = context.engine.read(lambda reader: _looked_at(context, reader))
    if mining.state in ("ready", "failing"):
        states["extract"] = _RUNNABLE
    elif mining.reason == BUDGET:
        states["extract"] = ("running",)
    return states


def _waiting(jobs: list[JobStatus], doable: dict[str, Container[str]]) -> bool:
    return any(each.state in doable.get(each.kind, ()) for each in jobs)


MOST: Final = 1_000
"""Largest number of collections in one result of `left_over`."""


class LeftOver(Struct, frozen=True, kw_only=True):
    """A collection with overdue jobs, and the names of the models they need."""

    workspace: str
    user_id: str
    namespace: str
    workspace_id: str
    vector_provider: str | None
    extractor: str | None
    miner: str | None
    embedder: str | None


def left_over(engine: Engine, now: int, *, mines_all: bool = False) -> list[LeftOver]:
    """Return the collections of all workspaces with jobs overdue at *now*.

    Jobs for an extractor that is a function are left out, unless this process *mines_all*
    collections that have no extractor of their own.
    """
    everybody = engine.scoped(EVERYBODY)
    sql = everybody.queries("holdfast.memories.longterm.background")
    return everybody.all(
        LeftOver, sql.left_over, now=now, grace=LEASE, most=MOST, any=int(mines_all)
    )
