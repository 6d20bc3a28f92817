"""Leases on runs: renew, cancel, and find the lost ones.

A run has one owner at a time. Each acquisition raises its fencing token, and nothing of a former
owner is written any more.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.clock import Clock, from_microseconds, to_microseconds, to_rfc3339
from holdfast.ground.errors import Conflict, NotPermitted, StaleRun, Unavailable
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.question import withdraw
from holdfast.memories.run.records.record import (
    LEASE,
    MILLISECOND,
    HeldRun,
    RunRow,
    RunsContext,
)
from holdfast.memories.run.records.write import (
    PACKAGE,
    add_events,
    missing,
    numbered,
    published,
    statements,
)

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
        end = RunEvent(
            type="run.cancelled",
            seq=0,
            at=now // MILLISECOND,
            run_id=run_id,
            data={"reason": "cancelled", "detail": reason, "error": None, "usage": None},
        )
        events = numbered(run, (*withdraw(tx, sql, run_id, now), end))
        add_events(tx, sql, run_id, events)
        ended_at = now - now % MILLISECOND
        tx.run(sql.cancel_run, run=run_id, detail=reason, seq=events[-1].seq, ended_at=ended_at)
        tx.after_commit(lambda: published(context, events))

    context.engine.write(work)


def over(run_id: str, status: str) -> Conflict:
    """Return the error for what only a run that is not over takes."""
    return Conflict(
        f"The run {run_id} is {status}.",
        reason="ended",
        next="Only a run that is running takes it.",
    )


def lose(context: RunsContext, runs: Iterable[str]) -> None:
    """Store that *runs* are lost, each with an event, unless they were renewed."""
    now, ids = context.now(), list(runs)

    def work(tx: Transaction) -> None:
        sql = statements(context)
        for id in ids:
            lost = tx.first(_Lost, sql.lose_run, run=id, now=now)
            if lost is not None:
                tx.after_commit(partial(published, context, (_record(tx, sql, id, lost, now),)))

    context.engine.write(work)


class _Lost(Struct, frozen=True, kw_only=True):
    seq: int
    seen_at: int
    place: str | None


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
