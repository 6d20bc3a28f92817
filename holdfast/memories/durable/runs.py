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
from holdfast.memories.durable.context import LAPSES_AFTER, AgentContext, refuse_stale
from holdfast.memories.durable.forget import forget
from holdfast.memories.durable.hydration import (
    Hydration,
    ToSee,
    checked_budget,
    counted,
    explain,
    hydrate,
    hydrate_in,
    told,
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
from holdfast.memories.durable.transaction import AgentTransaction, put_to_end, refusals, write
from holdfast.memories.durable.write import OnError, set_many, set_one
from holdfast.memories.durable.write_entry import EntryWrite

Ending = Literal["ok", "failed"]


class Begun(Struct, frozen=True, kw_only=True):
    """A run that has begun: its caller, its lane, and what its agent sees at the start."""

    caller: AgentContext
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
    """What a run is begun with."""

    run_id: str
    lane: str
    budget: int | None
    resume: bool


def begin(
    caller: AgentContext, run_id: str | None, *, lane: str, budget: int | None, resume: bool
) -> Begun:
    """Take the next token of *lane*, supersede the run that was open there, and hydrate.

    With *resume* the conversation entries that a crashed run of the same id left are the new
    one's; else they go.
    """
    with refusals(caller):
        checked_budget(budget)
        checked_name("lane", lane)
        if run_id is None and resume:
            raise InvalidInput("resume", "needs the run_id of the run to resume")
        name = caller.ids.new("run", caller.now()) if run_id is None else run_id
        checked_name("run_id", name)
    opening = _Opening(run_id=name, lane=lane, budget=budget, resume=resume)
    return write(caller, lambda tx: _begin(caller, tx, opening))


def _begin(caller: AgentContext, tx: Transaction, opening: _Opening) -> Begun:
    book = AgentTransaction(caller, tx)
    rows = book.lock(
        lambda: tx.all(_Lane, book.sql.open_lane, lane=opening.lane, run=opening.run_id)
    )
    there, token = rows[0], tx.seq
    within = caller.within(opening.run_id, token)
    book.caller, book.by = within, by_text(within.by)
    book.expire(there.first_expiry)
    for row in rows:
        if row.run_id is not None and row.token is not None:
            lapsed = book.now - (row.seen_at or 0) > LAPSES_AFTER
            outcome = "lapsed" if lapsed else "superseded"
            keep = not row.talked or (opening.resume and row.run_id == opening.run_id)
            put_to_end(book, row.run_id, row.token, outcome, keep=keep)
    # Before it hydrates, so that it does not see what went.
    book.pending.write(tx, by=book.by, at=book.now)
    tx.send(
        book.sql.begin_run,
        token=token,
        run=opening.run_id,
        lane=opening.lane,
        knew_seq=there.forgot_seq,
        knew_shared_seq=there.shared_forgot_seq or 0,
        now=book.now,
    )
    size, shared = there.size_bytes, there.shared_size_bytes or 0
    see = ToSee(size_bytes=size, shared_size_bytes=shared, budget=there.budget)
    hydration = hydrate_in(within, tx, opening.budget, see, fresh=not opening.resume)
    book.note("run_opened", token=token)
    book.note("hydrated", **told(hydration))
    book.count("runs_total", "opened")
    for each in counted(hydration):
        book.count(*each)
    book.close(seen=False)
    run_id, lane = opening.run_id, opening.lane
    return Begun(caller=within, hydration=hydration, run_id=run_id, token=token, lane=lane)


def end(caller: AgentContext, outcome: Ending, *, idempotency_key: str | None = None) -> RunEnded:
    """End the caller's run and delete its conversation entries; StaleRun if it is not live."""
    with refusals(caller):
        if outcome not in get_args(Ending):
            raise InvalidInput("outcome", "must be ok or failed", given=outcome)
        if caller.run is None:
            raise RunRequired
        run = caller.run
        replay = Replay.of(idempotency_key, "end", run, outcome)

    def work(tx: Transaction) -> RunEnded:
        book = AgentTransaction(caller, tx)
        book.open(live=replay is None)
        first = None if replay is None else replay.answer(book, RunEnded)
        if first is not None:
            return first
        if replay is not None:
            refuse_stale(caller, tx, book.opened.standing, now=book.now)
        removed = put_to_end(book, run.run_id, run.token, outcome)
        ended = RunEnded(ended=True, removed=removed)
        if replay is not None:
            replay.keep(book, ended)
        book.close(seen=False)
        return ended

    return write(caller, work)


def heartbeat(caller: AgentContext) -> datetime:
    """Say that the caller's run is alive; return when it would lapse."""
    with refusals(caller):
        if caller.run is None:
            raise RunRequired

    def work(tx: Transaction) -> datetime:
        book = AgentTransaction(caller, tx)
        book.open()
        book.close()
        return from_microseconds(book.now + LAPSES_AFTER)

    return write(caller, work)


class DurableRun:
    """A run under way, made by `DurableMemory.run`; as a context manager it ends on every way out.

    Everything it does is refused with StaleRun once another run took its lane, or it ended.
    """

    def __init__(self, begun: Begun) -> None:
        self.caller: AgentContext = begun.caller
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
        """Write the whole entry under *key*, replacing what was there."""
        wish = EntryWrite(
            refresh=refresh, expected_seq=expected_seq, idempotency_key=idempotency_key
        )
        return set_one(self.caller, key, content, category, tags, wish=wish)

    def set_many(
        self, items: Iterable[object], *, on_error: OnError = "abort", refresh: bool = True
    ) -> StoredMany:
        """Write at most 1,000 entries in one transaction, in their order."""
        return set_many(self.caller, items, on_error=on_error, refresh=refresh)

    def capture(self, entries: Iterable[object]) -> StoredMany:
        """Store of *entries* those that differ from what is stored; the others stay as they are."""
        return set_many(self.caller, entries, on_error="skip", refresh=False)

    def get(self, key: str) -> DurableEntry | None:
        """Return the nearest entry under exactly *key*, or None."""
        with coded():
            return get(self.caller, key)

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
            return list_entries(self.caller, filters, limit=limit, page=page)

    def forget(self, key: str, *, scope: EntryScope | None = None) -> bool:
        """Forget *key*; True when something was removed."""
        return forget(self.caller, key, scope)

    def hydrate(self, budget: int | None = None) -> Hydration:
        """Return what the agent would see now."""
        with coded():
            return hydrate(self.caller, budget)

    def explain(self, key: str, budget: int | None = None) -> Explanation:
        """Say whether a hydration with *budget* bytes takes the entry under *key*, and why."""
        return explain(self.caller, key, budget)

    def heartbeat(self) -> datetime:
        """Say that the run is alive; return when it would lapse."""
        return heartbeat(self.caller)

    def end(self, outcome: Ending = "ok") -> RunEnded:
        """End the run and delete its conversation entries."""
        ended = end(self.caller, outcome)
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
            # It is over already: another run has its lane.
            self._over = True
