"""Runs of an agent, each with a fencing token."""

from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import InvalidInput, RunRequired
from holdfast.ground.scope import checked_name
from holdfast.ground.validation import check_one_of
from holdfast.memories.durable.context import LAPSES_AFTER, AgentContext, refuse_stale
from holdfast.memories.durable.hydration import (
    Hydration,
    ToSee,
    checked_budget,
    counted,
    event_data,
    hydrate_in,
)
from holdfast.memories.durable.idempotency import Replay
from holdfast.memories.durable.records import (
    RunEnded,
)
from holdfast.memories.durable.rows import by_text
from holdfast.memories.durable.transaction import (
    RUNS,
    AgentTransaction,
    put_to_end,
    refusals,
    write,
)

Ending = Literal["ok", "failed"]


class Begun(Struct, frozen=True, kw_only=True):
    """A new run: its context, lane, fencing token and first hydration."""

    context: AgentContext
    hydration: Hydration
    run_id: str
    token: int
    lane: str


class _Lane(Struct, frozen=True, kw_only=True):
    forgot_seq: int
    shared_forgot_seq: int | None
    size_bytes: int
    shared_size_bytes: int | None
    first_expiry: int | None
    budget: int | None
    run_id: str | None
    token: int | None
    seen_at: int | None
    talked: int


class OpenRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a new run; without a `run_id` it gets a new id."""

    run_id: str | None = None
    lane: str = "main"
    budget: int | None = None
    resume: bool = False


def begin(context: AgentContext, opening: OpenRun) -> Begun:
    """Open a run in its lane, supersede the run open there, and hydrate.

    The run takes the next fencing token. With *resume* it takes over the conversation entries of a
    crashed run with the same id; otherwise they are deleted.
    """
    with refusals(context):
        checked_budget(opening.budget)
        checked_name("lane", opening.lane)
        if opening.run_id is None and opening.resume:
            raise InvalidInput("resume", "needs the run_id of the run to resume")
        given = opening.run_id
        run_id = context.ids.new("run", context.now()) if given is None else given
        checked_name("run_id", run_id)
    return write(context, lambda tx: _begin(context, tx, opening, run_id))


def _begin(context: AgentContext, tx: Transaction, opening: OpenRun, run_id: str) -> Begun:
    unit, lane = AgentTransaction(context, tx), opening.lane
    rows = unit.lock(lambda: tx.all(_Lane, unit.sql.open_lane, lane=lane, run=run_id))
    there, token = rows[0], tx.seq
    within = context.within(run_id, token)
    unit.context, unit.by = within, by_text(within.by)
    unit.expire(there.first_expiry)
    for row in rows:
        if row.run_id is not None and row.token is not None:
            lapsed = unit.now - (row.seen_at or 0) > LAPSES_AFTER
            outcome = "lapsed" if lapsed else "superseded"
            keep = not row.talked or (opening.resume and row.run_id == run_id)
            put_to_end(unit, row.run_id, row.token, outcome, keep=keep)
    # Before the hydration, so that it does not see deleted entries.
    unit.pending.write(tx, by=unit.by, at=unit.now)
    tx.send(
        unit.sql.begin_run,
        token=token,
        run=run_id,
        lane=lane,
        knew_seq=there.forgot_seq,
        knew_shared_seq=there.shared_forgot_seq or 0,
        now=unit.now,
    )
    size, shared = there.size_bytes, there.shared_size_bytes or 0
    see = ToSee(size_bytes=size, shared_size_bytes=shared, budget=there.budget)
    hydration = hydrate_in(within, tx, opening.budget, see, fresh=not opening.resume)
    unit.note("run_opened", token=token)
    unit.note("hydrated", **event_data(hydration))
    unit.count(RUNS, "opened")
    for counter, values, by in counted(hydration):
        unit.count(counter, *values, by=by)
    unit.close(seen=False)
    return Begun(context=within, hydration=hydration, run_id=run_id, token=token, lane=lane)


def end(context: AgentContext, outcome: Ending) -> RunEnded:
    """End the run and delete its conversation entries.

    Raises StaleRun if it is no longer live, RunRequired outside a run.
    """
    with refusals(context):
        check_one_of("outcome", outcome, get_args(Ending), "must be ok or failed")
        if context.run is None:
            raise RunRequired
        run = context.run
        replay = Replay(context.idempotency_key, "end", run, outcome)

    def work(tx: Transaction) -> RunEnded:
        unit = AgentTransaction(context, tx)
        unit.open(live=not replay)
        first = replay.answer(unit, RunEnded)
        if first is not None:
            return first
        if replay:
            refuse_stale(context, tx, unit.opened.standing, now=unit.now)
        removed = put_to_end(unit, run.run_id, run.token, outcome)
        ended = RunEnded(ended=True, removed=removed)
        replay.keep(unit, ended)
        unit.close(seen=False)
        return ended

    return write(context, work)


def heartbeat(context: AgentContext) -> datetime:
    """Extend the lease of the run; return when it would lapse."""
    with refusals(context):
        if context.run is None:
            raise RunRequired

    def work(tx: Transaction) -> datetime:
        unit = AgentTransaction(context, tx)
        unit.open()
        unit.close()
        return from_microseconds(unit.now + LAPSES_AFTER)

    return write(context, work)
