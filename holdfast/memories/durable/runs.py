"""Runs of an agent, each with a fencing token."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Literal, Self, get_args

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import InvalidInput, RunRequired, StaleRun
from holdfast.ground.pages import Page
from holdfast.ground.scope import checked_name
from holdfast.ground.validation import check_one_of
from holdfast.memories.durable.context import LAPSES_AFTER, AgentContext, refuse_stale
from holdfast.memories.durable.forget import forget
from holdfast.memories.durable.hydration import (
    Hydration,
    ToSee,
    checked_budget,
    counted,
    event_data,
    explain,
    hydrate,
    hydrate_in,
)
from holdfast.memories.durable.idempotency import Replay
from holdfast.memories.durable.read import LISTED, EntryQuery, get, list_entries
from holdfast.memories.durable.records import (
    DurableEntry,
    EntryScope,
    Explanation,
    RunEnded,
    StoredEntry,
    StoredMany,
    coded,
)
from holdfast.memories.durable.rows import by_text
from holdfast.memories.durable.transaction import (
    RUNS,
    AgentTransaction,
    put_to_end,
    refusals,
    write,
)
from holdfast.memories.durable.write import OnError, set_many, set_one
from holdfast.memories.durable.write_entry import EntryWrite

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


class _Opening(Struct, frozen=True, kw_only=True):
    """Parameters of a new run."""

    run_id: str
    lane: str
    budget: int | None
    resume: bool


def begin(
    context: AgentContext, run_id: str | None, *, lane: str, budget: int | None, resume: bool
) -> Begun:
    """Open a run in *lane*, supersede the run open there, and hydrate.

    The run takes the next fencing token. With *resume* it takes over the conversation entries of a
    crashed run with the same id; otherwise they are deleted.
    """
    with refusals(context):
        checked_budget(budget)
        checked_name("lane", lane)
        if run_id is None and resume:
            raise InvalidInput("resume", "needs the run_id of the run to resume")
        name = context.ids.new("run", context.now()) if run_id is None else run_id
        checked_name("run_id", name)
    opening = _Opening(run_id=name, lane=lane, budget=budget, resume=resume)
    return write(context, lambda tx: _begin(context, tx, opening))


def _begin(context: AgentContext, tx: Transaction, opening: _Opening) -> Begun:
    unit = AgentTransaction(context, tx)
    rows = unit.lock(
        lambda: tx.all(_Lane, unit.sql.open_lane, lane=opening.lane, run=opening.run_id)
    )
    there, token = rows[0], tx.seq
    within = context.within(opening.run_id, token)
    unit.context, unit.by = within, by_text(within.by)
    unit.expire(there.first_expiry)
    for row in rows:
        if row.run_id is not None and row.token is not None:
            lapsed = unit.now - (row.seen_at or 0) > LAPSES_AFTER
            outcome = "lapsed" if lapsed else "superseded"
            keep = not row.talked or (opening.resume and row.run_id == opening.run_id)
            put_to_end(unit, row.run_id, row.token, outcome, keep=keep)
    # Before the hydration, so that it does not see deleted entries.
    unit.pending.write(tx, by=unit.by, at=unit.now)
    tx.send(
        unit.sql.begin_run,
        token=token,
        run=opening.run_id,
        lane=opening.lane,
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
    run_id, lane = opening.run_id, opening.lane
    return Begun(context=within, hydration=hydration, run_id=run_id, token=token, lane=lane)


def end(context: AgentContext, outcome: Ending, *, idempotency_key: str | None = None) -> RunEnded:
    """End the run and delete its conversation entries.

    Raises StaleRun if it is no longer live, RunRequired outside a run.
    """
    with refusals(context):
        check_one_of("outcome", outcome, get_args(Ending), "must be ok or failed")
        if context.run is None:
            raise RunRequired
        run = context.run
        replay = Replay.of(idempotency_key, "end", run, outcome)

    def work(tx: Transaction) -> RunEnded:
        unit = AgentTransaction(context, tx)
        unit.open(live=replay is None)
        first = None if replay is None else replay.answer(unit, RunEnded)
        if first is not None:
            return first
        if replay is not None:
            refuse_stale(context, tx, unit.opened.standing, now=unit.now)
        removed = put_to_end(unit, run.run_id, run.token, outcome)
        ended = RunEnded(ended=True, removed=removed)
        if replay is not None:
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


class DurableRun:
    """An open run, made by `DurableMemory.run`.

    As a context manager it ends on every exit. Every call raises StaleRun once another run took its
    lane, or it ended.
    """

    def __init__(self, begun: Begun) -> None:
        self.context: AgentContext = begun.context
        self.hydration: Hydration = begun.hydration
        self.run_id, self.token, self.lane = begun.run_id, begun.token, begun.lane
        self._over = False

    def set(
        self,
        key: str,
        content: str,
        *,
        category: str,
        tags: Iterable[str] = (),
        refresh: bool = True,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
    ) -> StoredEntry:
        """Write the whole entry under *key*, replacing an earlier one."""
        wish = EntryWrite(
            refresh=refresh, expected_seq=expected_seq, idempotency_key=idempotency_key
        )
        return set_one(self.context, key, content, category, tags, wish=wish)

    def set_many(
        self, items: Iterable[object], *, on_error: OnError = "abort", refresh: bool = True
    ) -> StoredMany:
        """Write at most 1,000 entries in one transaction, in their order."""
        return set_many(self.context, items, on_error=on_error, refresh=refresh)

    def capture(self, entries: Iterable[object]) -> StoredMany:
        """Store the items of *entries* that differ from the stored entries."""
        return set_many(self.context, entries, on_error="skip", refresh=False)

    def get(self, key: str) -> DurableEntry | None:
        """Return the nearest entry under exactly *key*, or None."""
        with coded():
            return get(self.context, key)

    def list(  # noqa: PLR0917 - the filters, each of which may be left out
        self,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        since: datetime | timedelta | None = None,
        key_prefix: str | None = None,
        query: str | None = None,
        limit: int | None = LISTED,
        page: str | None = None,
    ) -> Page[DurableEntry]:
        """Return the entries that pass all filters, newest first, shadowed ones included."""
        filters = EntryQuery(
            category=category, tags=tags, since=since, key_prefix=key_prefix, query=query
        )
        with coded():
            return list_entries(self.context, filters, limit=limit, page=page)

    def forget(self, key: str, *, scope: EntryScope | None = None) -> bool:
        """Forget *key*; True when something was removed."""
        return forget(self.context, key, scope)

    def hydrate(self, budget: int | None = None) -> Hydration:
        """Return what the agent sees now."""
        with coded():
            return hydrate(self.context, budget)

    def explain(self, key: str, budget: int | None = None) -> Explanation:
        """Explain whether a hydration takes the entry under *key*, and why.

        *budget* is in bytes; None is the agent's limit.
        """
        return explain(self.context, key, budget)

    def heartbeat(self) -> datetime:
        """Extend the lease of the run; return when it would lapse."""
        return heartbeat(self.context)

    def end(self, outcome: Ending = "ok") -> RunEnded:
        """End the run and delete its conversation entries."""
        ended = end(self.context, outcome)
        self._over = True
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._over:
            return
        try:
            self.end("ok" if kind is None else "failed")
        except StaleRun:
            # It has ended already: another run has its lane.
            self._over = True
