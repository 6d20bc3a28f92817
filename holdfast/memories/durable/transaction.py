"""The unit of work on one agent's entries.

Use cases read entries here and schedule changes. Nothing is written before `close`, so a write of
many entries may refuse one of them and store the others.
"""

import inspect
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from typing import Final, Literal, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import EventFacts, Numbered, Row, Transaction, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import HoldfastError
from holdfast.ground.events import Event, Fact
from holdfast.ground.metrics import REGISTRY, Counter, Increment, add_all
from holdfast.memories.durable.context import (
    LAPSES_AFTER,
    AgentContext,
    LaneState,
    refuse_stale,
)
from holdfast.memories.durable.records import (
    CHANGES_KEPT,
    CODES,
    CORE,
    ENDED_KEPT,
    EVICTED_KEPT,
    LABELS,
    REPLAYS_KEPT,
    TIDY_EVERY,
    Cause,
    DurableLimits,
    Gone,
    Op,
    give_code,
    label_of,
    new_secret,
)
from holdfast.memories.durable.rows import SHARED, EntryLocation, EntryRow, Logged, Pending, by_text
from holdfast.memories.durable.rules import ScopeSize

T = TypeVar("T")


def write(context: AgentContext, work: Callable[[Transaction], T]) -> T:
    """Run *work* in a transaction; return its result once the commit is durable.

    With an engine whose writes are awaited, return an awaitable of the result.
    """
    with refusals(context):
        written = context.engine.write(work)
    if inspect.isawaitable(written):
        return cast("T", _awaited(context, written))
    return written


@contextmanager
def refusals(context: AgentContext) -> Generator[None, None, None]:
    """Add its code to an error raised within; count and publish it, once."""
    try:
        yield
    except HoldfastError as error:
        if error.code is None:
            give_code(error)
            tell_refused(context, error)
        raise


def tell_refused(context: AgentContext, error: HoldfastError) -> None:
    """Count and publish that a write was refused with *error*, which has its code."""
    if error.code is not None:
        REFUSED.add(error.code)
        publish(context, "refused", code=error.code)


def publish(context: AgentContext, what: str, **data: Fact) -> None:
    """Publish `durable.<what>` to this process only, outside a transaction."""
    if context.engine.events.heard:
        context.engine.events.publish(event_of(context, what, data))


def event_of(
    context: AgentContext,
    what: str,
    data: Mapping[str, Fact],
    *,
    at: int | None = None,
    run_id: str = "",
) -> Event:
    """Return the event `durable.<what>` of the run *run_id*, or the context's.

    Events never contain content or a key.
    """
    run = run_id or context.run_id
    return Event(
        type=f"durable.{what}",
        at=from_microseconds(context.now() if at is None else at),
        workspace=context.workspace,
        owner=context.agent or None,
        actor=context.by.actor,
        ids={"run_id": run} if run else {},
        data=dict(data),
    )


async def _awaited(context: AgentContext, written: Awaitable[T]) -> T:
    with refusals(context):
        return await written


_DRAWN: Final = 8
"""Sequence numbers drawn at a time after the first: a write may evict and expire entries."""

_COLD_AT_ONCE: Final = 50
"""Candidates for eviction read at a time, with contents."""

_DELETIONS: Final[dict[Op, str]] = {"evict": "evicted", "expire": "expired"}
"""Deletions that publish an event and increment a counter, with the name of the event."""

_DELETED: Final = {
    "evicted": REGISTRY.counter(
        "durable_evicted_total", "Entries evicted for new ones.", category=LABELS
    ),
    "expired": REGISTRY.counter(
        "durable_expired_total", "Entries removed because they expired.", category=LABELS
    ),
}
RUNS: Final = REGISTRY.counter(
    "durable_runs_total", "Runs.", event=("opened", "ended", "superseded", "lapsed")
)
REFUSED: Final = REGISTRY.counter(
    "durable_refused_total", "Writes refused.", code=sorted(set(CODES.values()))
)


class AgentTotals(Struct, frozen=True):
    """Sizes and limits when the unit of work was opened.

    The fields are in the order of the statement's columns.
    """

    entries: int
    core_entries: int
    first_expiry: int | None
    forgot_seq: int
    tidy_at: int
    shared_entries: int | None
    shared_forgot_seq: int | None
    cap: int | None
    workspace_cap: int | None
    run_cap: int | None
    content_bytes: int | None
    budget: int | None
    daily_hours: int | None
    secret: bytes | None
    lane: str | None
    knew_seq: int | None
    knew_shared_seq: int | None
    seen_at: int | None
    run_outcome: str | None
    live_token: int | None

    @property
    def limits(self) -> DurableLimits:
        """The limits in force."""
        return _limits(*(getattr(self, name) for name in _LIMITS))

    @property
    def standing(self) -> LaneState | None:
        """The state of the context's run; None if there is no such run."""
        if self.lane is None:
            return None
        return LaneState(
            lane=self.lane,
            live_token=self.live_token or 0,
            seen_at=self.seen_at or 0,
            run_outcome=self.run_outcome,
        )


_LIMITS: Final = DurableLimits.__struct_fields__


@lru_cache(maxsize=256)
def _limits(*given: int | None) -> DurableLimits:
    """Return the limits *given*, in the order of the fields; None is the default."""
    named = zip(_LIMITS, given, strict=True)
    return DurableLimits(**{name: value for name, value in named if value is not None})


_HEAD: Final = len(AgentTotals.__struct_fields__)
"""Columns of `open_book` before those of an entry."""


class AgentTransaction:
    """An agent's entries, locked for one transaction.

    `open` comes first, `close` last. Expired entries are deleted with the other changes. `taken`
    maps the `seq` of each deleted entry to that of its row in the log.
    """

    def __init__(self, context: AgentContext, tx: Transaction, *, source: str = "write") -> None:
        self.context, self.tx, self._source = context, tx, source
        self.sql = context.sql
        self.now, self.by = context.now(), by_text(context.by)
        self.secret: bytes | None = None
        self.expired: tuple[Gone, ...] = ()
        self.taken: dict[int, int] = {}
        self._remote = context.engine.dialect == "postgres"
        self.pending = Pending(self.sql, batched=self._remote)
        self._at: dict[tuple[EntryLocation, str], EntryRow | None] = {}
        self._held: dict[EntryLocation, ScopeSize] = {}
        self._more: defaultdict[EntryLocation, ScopeSize] = defaultdict(
            lambda: ScopeSize(entries=0)
        )
        self._cold: dict[tuple[EntryLocation, bool], _Cold] = {}
        self._numbers: deque[int] = deque()
        self._mutations, self._drew = 1, False
        self._heads: dict[str, Event] = {}
        self.noted: list[tuple[Event, EventFacts]] = []
        self._counted: list[Increment] = []
        self._due: list[EntryRow] | None = None
        self._gone: defaultdict[tuple[str, str], int] = defaultdict(int)

    def lock(
        self, ask: Callable[[], list[T]], *, shared: bool = False, making: bool = True
    ) -> list[T]:
        """Lock the agent's entries and return the rows of *ask*.

        With *shared* locks the workspace's entries too. *ask* returns no rows while the agent has
        no row; with *making* that row is created then.
        """
        locked = self._lock(shared=shared)
        rows = ask()
        if rows and not (self._locked_by_now() if locked is None else locked):
            # Another transaction created it after the lock was requested, and may hold its lock.
            making, rows = True, []
        if rows or not making:
            return rows
        self._make_agents(shared=shared)
        return ask()

    def open(
        self,
        keys: Sequence[str] = (),
        *,
        shared: bool = False,
        mutations: int = 1,
        live: bool = True,
        making: bool = True,
    ) -> bool:
        """Lock the agent's entries and read those under *keys*.

        With *shared* locks the workspace's entries too. *mutations* is the expected number of
        changes. With *live* raises StaleRun when the context's run no longer holds its lane.
        Returns False, without *making*, if the agent has no row.
        """
        key = keys[0] if len(keys) == 1 else ""
        rows = self.lock(lambda: self._ask(key), shared=shared, making=making)
        if not rows:
            return False
        self.opened = AgentTotals(*rows[0][:_HEAD])
        if shared and self.opened.shared_entries is None:
            self._make_agents(shared=True)
            rows = self._ask(key)
            self.opened = AgentTotals(*rows[0][:_HEAD])
        self.limits, self.secret = self.opened.limits, self.opened.secret
        self._mutations = mutations
        if live and self.context.run is not None:
            refuse_stale(self.context, self.tx, self.opened.standing, now=self.now)
        for each in keys:
            for place in self.context.places:
                self._at[place, each] = None
        self._read([EntryRow(*row[_HEAD:]) for row in rows if row[_HEAD] is not None])
        if len(keys) > 1:
            wanted = msgspec.json.encode(keys).decode()
            run_id = self.context.run_id
            self._read(self.tx.all(EntryRow, self.sql.entries_under, keys=wanted, run_id=run_id))
        self.expire(self.opened.first_expiry)
        return True

    def expire(self, first: int | None) -> None:
        """Delete the agent's expired entries; *first* is the earliest expiry, or None."""
        if first is None or first >= self.now:
            return
        due = self.tx.all(EntryRow, self.sql.due_entries, now=self.now)
        for row in due:
            self.pending.found(row)
            self.take(row, "expire", cause={"source": self._source})
        self._due = due
        self.expired = tuple(row.gone() for row in due)

    def at(self, place: EntryLocation, key: str) -> EntryRow | None:
        """Return the entry under *key* at *place* with pending changes applied, or None."""
        return self._at[place, key]

    def held(self, place: EntryLocation) -> ScopeSize:
        """Return the size of *place* with pending changes applied."""
        found, more = self._held.get(place), self._more[place]
        if found is None:
            found = self._held[place] = self._held_before(place)
        return ScopeSize(entries=found.entries + more.entries, core=found.core + more.core)

    def coldest(self, place: EntryLocation, *, pinned: bool) -> EntryRow | None:
        """Return the entry of one tier of *place* with the oldest write, or None."""
        cold = self._cold.get((place, pinned))
        if cold is None:
            cold = self._cold[place, pinned] = _Cold(
                place, pinned=pinned, rows=min(self._mutations, _COLD_AT_ONCE)
            )
        while (row := cold.first(self)) is not None:
            if self.pending.untouched(row):
                return row
            cold.drop()
        return self.pending.coldest_put(place, pinned=pinned)

    def put(self, row: EntryRow, op: Op, cause: Cause) -> EntryRow:
        """Schedule *row* to be written with the next number; return it with that number."""
        numbered, spot = replace(row, seq=self.number()), (row.place, row.key)
        before = self._at.get(spot)
        self._hold(spot[0], int(before is None), _core(numbered) - _core(before))
        self._at[spot] = numbered
        self.pending.put(numbered)
        self.pending.log(Logged.of(numbered, op, seq=numbered.seq, cause=cause))
        return numbered

    def take(
        self,
        row: EntryRow,
        op: Op,
        *,
        cause: Cause | None = None,
        evicted_for: str | None = None,
        key_hash: bytes | None = None,
    ) -> int:
        """Schedule *row* for deletion; return the number of the change.

        *row* is stored or pending. With a *key_hash* the log stores that instead of the key.
        """
        self._hold(row.place, -1, -_core(row))
        self._at[row.place, row.key] = None
        self.pending.remove(row)
        self.taken[row.seq] = seq = self.number()
        logged = Logged.of(
            row, op, seq=seq, cause=cause, evicted_for=evicted_for, key_hash=key_hash
        )
        self.pending.log(logged)
        if (what := _DELETIONS.get(op)) is not None:
            self._gone[what, label_of(row.category)] += 1
        return seq

    def note(self, what: str, **data: Fact) -> None:
        """Add the event `durable.<what>` to the feed; never content or a key."""
        head = self._heads.get(what)
        if head is None:
            self._heads[what] = head = event_of(self.context, what, {}, at=self.now)
        self.noted.append((head, (head.ids, data)))

    def count(self, counter: Counter, *values: str, by: int = 1) -> None:
        """Add *by* to *counter* once the transaction is durable."""
        self._counted.append((counter, values, by))

    def close(self, *, seen: bool = True) -> None:
        """Write all pending changes, the log and the events.

        With *seen* the lease of the context's run is extended.
        """
        if self._due:
            self._erase_contents(self._due)
        self.pending.write(self.tx, by=self.by, at=self.now)
        if self._due is not None:
            self.tx.send(self.sql.set_first_expiry)
        if seen and (run := self.context.run) is not None:
            self.tx.send(self.sql.see_run, token=run.token, now=self.now)
        for (what, label), number in self._gone.items():
            self.note(what, category=label, entries=number)
            self.count(_DELETED[what], label, by=number)
        for _, several in groupby(self.noted, key=lambda noted: id(noted[0])):
            noted = list(several)
            self.tx.tell(noted[0][0], [facts for _, facts in noted])
        if self._counted:
            counted = tuple(self._counted)
            self.tx.after_commit(lambda: add_all(counted))

    def number(self) -> int:
        """Return the next number of the engine-wide order.

        The first one is the transaction's own.
        """
        if not self._drew:
            self._drew = True
            return self.tx.seq
        if not self._numbers:
            # On PostgreSQL each draw is a round trip, so some are drawn ahead.
            ahead = max(_DRAWN, self._mutations) if self._remote else 1
            self._numbers.extend(self.tx.numbers(ahead))
        return self._numbers.popleft()

    def _lock(self, *, shared: bool) -> bool | None:
        """Lock the existing rows; return whether all of them exist.

        None if that is known only after the next statement.
        """
        if not self._remote:
            return True
        if shared:
            wanted = {self.context.agent, SHARED}
            return len(self.tx.rows(self.sql.lock_agent, shared=1)) == len(wanted)
        self.tx.send(self.sql.lock_agent, shared=0)
        return None

    def _locked_by_now(self) -> bool:
        """Return whether the lock, sent with the statements since, found a row.

        The server numbers a transaction when it first locks or writes a row. A transaction for
        several agents has only agents with rows.
        """
        return not isinstance(self.tx, Numbered) or self.tx.xid is not None

    def _erase_contents(self, due: list[EntryRow]) -> None:
        """Erase the logged contents of expired entries; their keys stay in the log."""
        keys = msgspec.json.encode([row.key for row in due]).decode()
        self.tx.send(self.sql.erase_expired, keys=keys)
        self.tx.after_commit(self.context.engine.scrub_later)

    def _make_agents(self, *, shared: bool) -> None:
        for owner in (self.context.agent, *((SHARED,) if shared else ())):
            self.tx.send(self.sql.make_agent, owner=owner, tidy_at=self.now + TIDY_EVERY)
        self._lock(shared=shared)

    def _ask(self, key: str) -> list[Row]:
        context = self.context
        return self.tx.rows(self.sql.open_book, key=key, run_id=context.run_id, token=context.token)

    def _read(self, rows: Sequence[EntryRow]) -> None:
        for row in rows:
            self._at[row.place, row.key] = row
            self.pending.found(row)

    def _held_before(self, place: EntryLocation) -> ScopeSize:
        opened = self.opened
        if place.run:
            return self.tx.one(ScopeSize, self.sql.held_by_run, run=place.run)
        if place.owner:
            return ScopeSize(entries=opened.entries, core=opened.core_entries)
        return ScopeSize(entries=opened.shared_entries or 0)

    def _hold(self, place: EntryLocation, entries: int, core: int) -> None:
        if not (entries or core):
            return
        more = self._more[place]
        self._more[place] = ScopeSize(entries=more.entries + entries, core=more.core + core)


class _Cold:
    """The stored entries of one tier of a location, coldest first."""

    def __init__(self, place: EntryLocation, *, pinned: bool, rows: int) -> None:
        self._place, self._pinned, self._rows = place, pinned, rows
        self._next: deque[EntryRow] = deque()
        self._after, self._more = 0, True

    def first(self, unit: AgentTransaction) -> EntryRow | None:
        """Return the coldest entry that was not dropped, or None."""
        if not self._next and self._more:
            rows = unit.tx.all(
                EntryRow,
                unit.sql.coldest,
                owner=self._place.owner,
                run=self._place.run,
                pinned=int(self._pinned),
                after=self._after,
                rows=self._rows,
            )
            self._more = len(rows) == self._rows
            self._next.extend(rows)
            for row in rows:
                self._after = row.seq
                unit.pending.found(row)
        return self._next[0] if self._next else None

    def drop(self) -> None:
        """Drop the coldest entry."""
        self._next.popleft()


def _core(row: EntryRow | None) -> int:
    return int(row is not None and row.category == CORE)


def secret_of(unit: AgentTransaction) -> bytes:
    """Return the secret of the workspace; create it on its first use."""
    if unit.secret is not None:
        return unit.secret
    unit.tx.run(unit.sql.make_secret, secret=new_secret())
    unit.secret = secret = unit.tx.one(scalar, unit.sql.get_secret)
    return secret


Outcome = Literal["ok", "failed", "superseded", "lapsed"]

_COUNTED: Final[dict[Outcome, str]] = {
    "ok": "ended",
    "failed": "ended",
    "superseded": "superseded",
    "lapsed": "lapsed",
}


class Ended(Struct, frozen=True, kw_only=True):
    """Number of ended runs, and of their deleted conversation entries."""

    runs: int
    removed: int


class _Run(Struct, frozen=True, kw_only=True):
    run_id: str
    token: int


def put_to_end(
    unit: AgentTransaction, run_id: str, token: int, outcome: Outcome, *, keep: bool = False
) -> int:
    """End a run of the agent and delete its conversation entries.

    Returns how many were deleted: none with *keep*.
    """
    rows = [] if keep else unit.tx.all(EntryRow, unit.sql.entries_of_run, run=run_id)
    if rows:
        unit.tx.send(unit.sql.unlink_entries_of_run, run=run_id)
    for row in rows:
        unit.pending.found(row)
        unit.take(row, "end", cause={"source": "run"})
    unit.tx.send(unit.sql.end_run, token=token, now=unit.now, outcome=outcome)
    what = "run_superseded" if outcome == "superseded" else "run_ended"
    data: dict[str, Fact] = {"token": token, "outcome": outcome, "removed": len(rows)}
    event = event_of(unit.context, what, data, at=unit.now, run_id=run_id)
    unit.noted.append((event, (event.ids, data)))
    unit.count(RUNS, _COUNTED[outcome])
    return len(rows)


def end_lapsed(unit: AgentTransaction) -> Ended:
    """End the agent's runs without a write or heartbeat for `LAPSES_AFTER`."""
    lapsed = unit.tx.all(_Run, unit.sql.lapsed_runs, lapsed=unit.now - LAPSES_AFTER)
    removed = sum(put_to_end(unit, run.run_id, run.token, "lapsed") for run in lapsed)
    return Ended(runs=len(lapsed), removed=removed)


def tidy_when_due(unit: AgentTransaction) -> None:
    """Sweep the agent once a day, for servers where no sweep is scheduled."""
    if unit.now >= unit.opened.tidy_at:
        end_lapsed(unit)
        tidy(unit)


def tidy(unit: AgentTransaction) -> None:
    """Delete the agent's rows past their retention, with the log of shared entries."""
    tx, sql, now = unit.tx, unit.sql, unit.now
    tx.send(sql.drop_changes, before=now - CHANGES_KEPT)
    tx.send(sql.drop_evicted_contents, before=now - EVICTED_KEPT)
    tx.send(sql.erase_expired_evicted, now=now)
    tx.send(sql.drop_replays, before=now - REPLAYS_KEPT)
    tx.send(sql.drop_tombstones, before=now - ENDED_KEPT)
    tx.send(sql.drop_runs, before=now - ENDED_KEPT)
    tx.send(sql.drop_lanes)
    tx.send(sql.tidied, next_at=now + TIDY_EVERY)
