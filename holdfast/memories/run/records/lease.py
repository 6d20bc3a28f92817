"""Leases and queues of runs: submit, claim, renew, cancel, and find the lost ones.

A run has one owner at a time. Each acquisition raises its fencing token, and nothing of a former
owner is written any more. A claimed run is still queued: it is its claimant's to acquire.
"""

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.clock import Clock, from_microseconds, to_microseconds, to_rfc3339
from holdfast.ground.errors import (
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotPermitted,
    StaleRun,
    Unavailable,
)
from holdfast.ground.json_values import JSON
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import EVERYBODY, Scope, checked_name
from holdfast.ground.validation import check_whole
from holdfast.memories.run.records.event import Ending, Reason, RunEvent
from holdfast.memories.run.records.question import withdraw
from holdfast.memories.run.records.record import (
    LEASE,
    MILLISECOND,
    HeldRun,
    RunReport,
    RunRow,
    RunsContext,
    this_process,
)
from holdfast.memories.run.records.run import (
    NO_METADATA,
    RunKind,
    checked_metadata,
    checked_run_id,
    checked_run_name_or_none,
)
from holdfast.memories.run.records.write import (
    PACKAGE,
    TAKEOVERS,
    add_events,
    count_end,
    missing,
    numbered,
    published,
    refused,
    statements,
    take,
)

LOST: Final = REGISTRY.counter("run_lost_total", "Runs whose owner let their lease run out.")
QUEUE_WAIT: Final = REGISTRY.histogram(
    "run_queue_wait_seconds",
    "Time from when a run may be taken up until a worker claims it.",
    (0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 3600.0, 86_400.0),
    queue=(),
)
LOSSES: Final = 5
"""Times that a run is lost in a row, without a version in between, until it is failed."""

INPUT_BYTES: Final = 4_194_304
"""Limit of the input of a queued run as JSON."""

_log = logging.getLogger(__name__)
_text: Final = msgspec.json.Encoder(order="deterministic").encode


class _Sign(Struct, frozen=True, kw_only=True):
    id: str
    holder: str
    cancel_wanted: str | None


def renew(
    context: RunsContext, held: Sequence[HeldRun], *, extend: bool = True
) -> Mapping[str, str | None]:
    """Extend the leases of *held* in one statement; with *extend* False, only look.

    Return, by holder, why another process wants the end of the run, or None. A holder that is not
    in it has the run no more.
    """
    params = {
        "ids": _text([each.run_id for each in held]).decode(),
        "holders": _text([each.holder for each in held]).decode(),
    }
    sql = statements(context)
    if not extend:
        found = context.engine.all(_Sign, sql.held_runs, **params)
    else:
        now = context.now()
        found = context.engine.write(
            lambda tx: tx.all(_Sign, sql.renew_runs, **params, now=now, until=now + LEASE)
        )
    return {each.holder: each.cancel_wanted for each in found}


def stale(held: HeldRun) -> StaleRun:
    """Return the error for an owner that has its run no more."""
    return StaleRun("superseded", token=held.fence, live_token=None)


def want_cancel(context: RunsContext, run_id: str, reason: str) -> None:
    """Cancel the run *run_id*: at once without an owner, else store it for its owner.

    Raise `NotFound` if there is none, `Conflict` if it is over.
    """
    now = context.now()

    def work(tx: Transaction) -> None:
        sql = statements(context)
        run = tx.first(RunRow, sql.lock_run, run=run_id)
        if run is None:
            raise missing(run_id)
        if run.ended:
            raise over(run_id, run.status)
        if run.live_at(now):
            tx.run(sql.want_cancel, run=run_id, reason=reason)
            return
        _end(context, tx, run, _cancelled(reason, now))

    context.engine.write(work)


def _cancelled(detail: str, now: int) -> RunEvent:
    return _ended("cancelled", "cancelled", detail, now)


def _ended(status: Ending, reason: Reason, detail: str, now: int) -> RunEvent:
    """Return the event of the end of a run that has no owner; it is not numbered."""
    data: dict[str, Any] = {"reason": reason, "detail": detail, "error": None, "usage": None}
    return RunEvent(type=f"run.{status}", seq=0, at=now // MILLISECOND, run_id="", data=data)


def _end(context: RunsContext, tx: Transaction, run: RunRow, end: RunEvent) -> RunEvent:
    """Store the *end* of *run*, which has no owner, and return its numbered event."""
    sql, now = statements(context), end.at * MILLISECOND
    events = numbered(run, (*withdraw(tx, sql, run.id, now), end))
    add_events(tx, sql, run.id, events)
    tx.run(
        sql.end_ownerless,
        run=run.id,
        status=end.type.removeprefix("run."),
        reason=end.data["reason"],
        detail=end.data["detail"],
        seq=events[-1].seq,
        ended_at=now,
    )
    tx.after_commit(lambda: published(context, events))
    count_end(tx, run.kind, events[-1])
    return events[-1]


def over(run_id: str, status: str) -> Conflict:
    """Return the error for what only a run that is not over takes."""
    return Conflict(
        f"The run {run_id} is {status}.",
        reason="ended",
        next="Only a run that is running takes it.",
    )


def lose(context: RunsContext, runs: Iterable[str]) -> None:
    """Store that *runs* are lost, each with an event, unless they were renewed.

    One that a worker would take up for ever, because it ends each of them, is failed instead.
    """
    now, ids = context.now(), list(runs)

    def work(tx: Transaction) -> None:
        sql = statements(context)
        for id in ids:
            lost = tx.first(_Lost, sql.lose_run, run=id, now=now)
            if lost is None:
                continue
            tx.after_commit(partial(published, context, (_record(tx, sql, id, lost, now),)))
            tx.after_commit(LOST.add)
            if lost.is_stalled:
                _end(context, tx, tx.one(RunRow, sql.lock_run, run=id), _stalled(lost.losses, now))

    context.engine.write(work)


class _Lost(Struct, frozen=True, kw_only=True):
    seq: int
    seen_at: int
    place: str | None
    losses: int
    definition: str | None
    queue: str | None

    @property
    def is_stalled(self) -> bool:
        """Whether workers would take it up for ever."""
        return self.losses >= LOSSES and self.definition is not None and self.queue is not None


def _stalled(losses: int, now: int) -> RunEvent:
    detail = (
        f"Its owner was lost {losses} times in a row, and nothing was kept in between. "
        "Fork the run to try again."
    )
    return _ended("failed", "stalled", detail, now)


def _record(tx: Transaction, sql: SimpleNamespace, run: str, lost: _Lost, now: int) -> RunEvent:
    """Store and return the event that *run* is lost."""
    event = RunEvent(
        type="run.lost",
        seq=lost.seq,
        at=now // MILLISECOND,
        run_id=run,
        data={"seen_at": to_rfc3339(from_microseconds(lost.seen_at)), "place": lost.place},
    )
    add_events(tx, sql, run, (event,))
    return event


def lose_seen(context: RunsContext, runs: Iterable[RunRow]) -> None:
    """Store which of *runs* are lost, if the caller may write."""
    now = context.now()
    lapsed = [run.id for run in runs if run.lapsed_at(now)]
    if not lapsed:
        return
    try:
        context.demand("write")
        lose(context, lapsed)
    except (NotPermitted, Unavailable) as error:
        # Each reader computes it from the lease, so nothing depends on this.
        _log.debug("a lost run is not stored as such: %s", type(error).__name__)


class _Lapsed(Struct, frozen=True, kw_only=True):
    workspace: str
    id: str


def sweep_lost(engine: Engine, clock: Clock) -> None:
    """Store which runs of all workspaces of *engine* are lost."""
    everywhere = engine.scoped(EVERYBODY)
    sql = everywhere.queries(PACKAGE)
    found = everywhere.all(_Lapsed, sql.lapsed_runs, now=to_microseconds(clock.now()))
    by_workspace: dict[str, list[str]] = {}
    for each in found:
        by_workspace.setdefault(each.workspace, []).append(each.id)
    for workspace, ids in by_workspace.items():
        lose(upkeep_context(engine, workspace, clock), ids)


def upkeep_context(engine: Engine, workspace: str, clock: Clock) -> RunsContext:
    """Return the context of upkeep, which may do everything, in *workspace*."""
    return RunsContext(
        engine=engine.scoped(Scope(workspace=workspace)),
        workspace=workspace,
        clock=clock,
        demand=lambda _: None,
    )


QUEUE: Final = "default"
"""The queue of a definition that names none."""

PRIORITY: Final = 5
"""The priority of a run that is given none; a lower number goes first."""

PRIORITY_MOST: Final = 1_000


class RunSubmission(Struct, frozen=True, kw_only=True):
    """A run to queue: its definition by name, and its input, a value of JSON.

    Without a *queue* it is in that of its definition. It is not taken up before *not_before*. It
    may do an item of a step of the run *parent*.
    """

    run_id: str
    definition: str
    input: JSON = None
    kind: RunKind = "task"
    queue: str | None = None
    priority: int = PRIORITY
    not_before: datetime | None = None
    metadata: Mapping[str, str] = NO_METADATA
    parent: str | None = None


def submit(context: RunsContext, given: RunSubmission) -> None:
    """Store the run *given* as queued, with its event; a repeat does nothing.

    Raise `Conflict` if its id is that of a run of another definition or input.
    """
    row, now = _submitted(given), context.now()

    def work(tx: Transaction) -> None:
        sql = statements(context)
        if tx.run(sql.submit_run, **row, now=now):
            add_queued(context, tx, sql, given.run_id, seq=1, queue=given.queue)
            return
        held = tx.one(_Submitted, sql.submitted_run, run=given.run_id)
        if (held.definition, held.input) != (given.definition, row["input"]):
            raise Conflict(
                f"The run {given.run_id} is there, with another definition or input.",
                reason="another_input",
                next="Give another run_id, or none.",
            )

    context.engine.write(work)


class _Submitted(Struct, frozen=True, kw_only=True):
    definition: str | None
    input: str | None


def _submitted(given: RunSubmission) -> dict[str, object]:
    """Return the parameters of the row of *given*; raise `InvalidInput`."""
    reason = f"must be a whole number from 0 to {PRIORITY_MOST:,}"
    check_whole("priority", given.priority, reason, most=PRIORITY_MOST)
    if given.queue is not None:
        checked_name("queue", given.queue)
    not_before = given.not_before
    if not_before is not None and not_before.tzinfo is None:
        raise InvalidInput("not_before", "must have a time zone", given=not_before.isoformat())
    try:
        input = _text(given.input).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        raise InvalidInput("input", "must be a value of JSON") from None
    if len(input.encode()) > INPUT_BYTES:
        raise LimitExceeded("input_bytes", allowed=INPUT_BYTES, actual=len(input.encode()))
    return {
        "run": checked_run_id("run_id", given.run_id),
        "kind": given.kind,
        "name": checked_run_name_or_none("definition", given.definition),
        "definition": given.definition,
        "metadata": _text(checked_metadata(given.metadata)).decode(),
        "input": input,
        # '' is the queue of the definition; without a queue no worker takes a run.
        "queue": given.queue or "",
        "priority": given.priority,
        "not_before": None if not_before is None else to_microseconds(not_before),
        "parent": given.parent,
    }


def add_queued(
    context: RunsContext,
    tx: Transaction,
    sql: SimpleNamespace,
    run_id: str,
    *,
    seq: int,
    queue: str | None,
) -> RunEvent:
    """Store and publish the event that a run is queued."""
    at, data = context.now() // MILLISECOND, {"queue": queue or None}
    event = RunEvent(type="run.queued", seq=seq, at=at, run_id=run_id, data=data)
    add_events(tx, sql, run_id, (event,))
    tx.after_commit(lambda: published(context, (event,)))
    return event


class KnownDefinition(Struct, frozen=True, kw_only=True):
    """A definition for a claim; *versions* are those of the runs that it takes."""

    name: str
    version: str
    queue: str
    versions: tuple[str, ...]


class ClaimTerms(Struct, frozen=True, kw_only=True):
    """Which runs are claimed: of *known* definitions, in *queues*, none *full*.

    Without *queues* it is every queue; *run* names one run, for which no instant is waited.
    """

    known: tuple[KnownDefinition, ...]
    queues: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    run: str = ""

    def params(self) -> dict[str, str]:
        """Return the parameters of a statement."""
        facts = {"known": self.known, "queues": self.queues, "full": self.full}
        return {name: _text(each).decode() for name, each in facts.items()}


class _Claimed(Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    name: str
    definition: str
    definition_version: str
    input: str | None
    metadata: str
    thread_id: str | None
    parent_id: str | None
    queue: str
    priority: int | None
    fence: int
    not_before: int | None
    seen_at: int
    losses: int


class ClaimedRun(Struct, frozen=True, kw_only=True):
    """A queued run that *holder* may acquire until its claim runs out, 60 s later.

    With *parent_id* it does an item of a step of that run, which its own id ends with.
    """

    id: str
    holder: str
    kind: RunKind
    name: str
    definition: str
    input: JSON
    metadata: dict[str, str]
    thread_id: str | None
    parent_id: str | None
    queue: str
    priority: int | None

    @property
    def item(self) -> tuple[str, int] | None:
        """The step and the index of the item that it does; None for a whole run."""
        prefix = f"{self.parent_id}."
        step, _, index = self.id.removeprefix(prefix).rpartition(".")
        if self.parent_id is None or not (self.id.startswith(prefix) and index.isdecimal()):
            return None
        return step, int(index)


def claimable(engine: Engine, terms: ClaimTerms, now: int) -> list[str]:
    """Return the workspaces of *engine*'s scope with runs to claim or to free."""
    sql = engine.queries(PACKAGE)
    return engine.all(scalar, sql.claimable, known=terms.params()["known"], now=now)


def claim(context: RunsContext, terms: ClaimTerms) -> ClaimedRun | None:
    """Claim the first queued run of *terms*, by priority, then age; None without one.

    One that ended each of its workers before it began is failed.
    """
    now, holder = context.now(), secrets.token_hex(12)
    params = {**terms.params(), "run": terms.run, "now": now, "until": now + LEASE}

    def work(tx: Transaction) -> _Claimed | None:
        sql, owner = statements(context), {"holder": holder, "place": this_process()}
        found = tx.first(_Claimed, sql.claim_run, **params, **owner)
        while found is not None and found.losses >= LOSSES:
            run = tx.one(RunRow, sql.lock_run, run=found.id)
            _end(context, tx, run, _stalled(found.losses, now))
            found = tx.first(_Claimed, sql.claim_run, **params, **owner)
        if found is not None and found.parent_id is not None:
            # The run of an item is built from the input of its run.
            input = tx.first(scalar, sql.input_of_run, run=found.parent_id)
            found = replace(found, input=found.input if input is None else input)
        return found

    found = context.engine.write(work)
    if found is None:
        return None
    QUEUE_WAIT.observe(max(0, now - max(found.seen_at, found.not_before or 0)) / 1e6, found.queue)
    facts: dict[str, Any] = asdict(found)
    for name in ("definition_version", "fence", "not_before", "seen_at", "losses"):
        del facts[name]
    facts["input"] = msgspec.json.decode(found.input or "null")
    facts["metadata"] = msgspec.json.decode(found.metadata)
    return ClaimedRun(holder=holder, **facts)


DUE_MOST: Final = 200
"""Runs of one queue in a look for what is due."""


class DueRun(Struct, frozen=True, kw_only=True):
    """A queued run that may be taken up, with the *queue* that it is in."""

    id: str
    queue: str
    priority: int
    metadata: str

    def partition(self, key: str) -> str:
        """Return the value of *key* in its metadata, or ''."""
        return str(msgspec.json.decode(self.metadata).get(key, ""))


def due_runs(context: RunsContext, terms: ClaimTerms) -> list[DueRun]:
    """Return the queued runs of *terms* that may be taken up.

    They are the first 200 of each queue, by priority, then age.
    """
    given = terms.params()
    params = {name: given[name] for name in ("known", "queues")}
    sql = statements(context)
    return context.engine.all(DueRun, sql.due_runs, **params, now=context.now(), most=DUE_MOST)


class _Status(Struct, frozen=True, kw_only=True):
    id: str
    status: str


def statuses(context: RunsContext, ids: Sequence[str]) -> dict[str, str]:
    """Return the stored statuses of those of the runs *ids* that there are."""
    found = context.engine.all(_Status, statements(context).run_statuses, ids=_text(ids).decode())
    return {each.id: each.status for each in found}


class _Freed(Struct, frozen=True, kw_only=True):
    id: str
    seq: int
    queue: str | None


def free_lost(context: RunsContext, terms: ClaimTerms) -> int:
    """Queue the lost runs of the definitions of *terms*; return how many."""
    now, sql = context.now(), statements(context)
    lapsed = context.engine.all(_Lapsed, sql.lapsed_runs, now=now)
    if lapsed:
        lose(context, [each.id for each in lapsed])

    def work(tx: Transaction) -> bool:
        known = terms.params()["known"]
        freed = tx.first(_Freed, sql.free_run, known=known, run=terms.run, now=now)
        if freed is None:
            return False
        add_queued(context, tx, sql, freed.id, seq=freed.seq, queue=freed.queue)
        tx.after_commit(lambda: TAKEOVERS.add("worker"))
        return True

    count = 0
    while context.engine.write(work):
        count += 1
    return count


def give_back(context: RunsContext, run_id: str, holder: str) -> RunEvent | None:
    """Queue the run again that *holder* has; None if it has it no more.

    One that is to be cancelled is cancelled instead, and its event returned.
    """
    now = context.now()

    def work(tx: Transaction) -> RunEvent | None:
        sql = statements(context)
        run = tx.first(RunRow, sql.lock_run, run=run_id)
        if run is None or run.holder != holder or run.ended:
            return None
        if run.cancel_wanted is not None:
            return _end(context, tx, run, _cancelled(run.cancel_wanted, now))
        tx.run(sql.requeue_run, run=run_id, seq=run.seq + 1, now=now)
        return add_queued(context, tx, sql, run_id, seq=run.seq + 1, queue=run.queue)

    return context.engine.write(work)


def release(context: RunsContext, held: HeldRun, ending: Ending | None) -> RunEvent | None:
    """End a run as *ending*, or queue it again and return that event.

    A repeat does nothing. Raise `StaleRun` for a former owner, `NotFound` without the run.
    """
    run = context.engine.first(RunRow, statements(context).get_run, run=held.run_id)
    if run is None:
        raise missing(held.run_id)
    if run.fence != held.fence or (run.holder or held.holder) != held.holder:
        raise refused("superseded", held.fence, run.fence)
    if ending is None:
        return give_back(context, held.run_id, held.holder)
    if not run.ended:
        report = RunReport(holder=held.holder, number=run.batch + 1, fence=held.fence, ended=ending)
        take(context, held.run_id, report, relay=True)
    return None


class QueueDepth(Struct, frozen=True, kw_only=True):
    """The number of queued *runs* in a queue that may be taken up."""

    queue: str
    runs: int


def queue_depths(engine: Engine, now: int) -> list[QueueDepth]:
    """Return the depths of the queues of *engine*'s scope."""
    return engine.all(QueueDepth, engine.queries(PACKAGE).queued_runs, now=now)
