"""Limits of agents, and sweeps of expired entries."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.errors import InvalidInput, MemoryFull
from holdfast.memories.durable.context import LAPSES_AFTER, AgentContext, OnBehalf
from holdfast.memories.durable.records import (
    CHANGES_KEPT,
    ENDED_KEPT,
    EVICTED_KEPT,
    MILLISECOND,
    RANGES,
    REPLAYS_KEPT,
    DurableLimits,
    Gone,
    LimitsChanged,
    Swept,
    coded,
)
from holdfast.memories.durable.rows import SHARED, EntryLocation
from holdfast.memories.durable.rules import Leaving, ScopeSize, excess
from holdfast.memories.durable.transaction import (
    AgentTransaction,
    end_lapsed,
    refusals,
    tidy,
    write,
)
from holdfast.memories.durable.write_entry import evict

OF_WORKSPACE = "workspace_cap"
"""The one limit that an agent has no own of."""

Given = Mapping[str, int | None]
"""Limits by name; None is no limit of one's own any more."""


class LimitsRow(Struct, frozen=True, kw_only=True):
    """Limits as they are stored: None where one is not set."""

    cap: int | None = None
    workspace_cap: int | None = None
    run_cap: int | None = None
    content_bytes: int | None = None
    budget: int | None = None
    daily_hours: int | None = None


class _Over(Struct, frozen=True, kw_only=True):
    agent: str
    entries: int
    core_entries: int


def limits_of(caller: AgentContext) -> DurableLimits:
    """Return the limits in force for the caller's agent, or for the workspace."""
    return _in_force(caller, caller.engine)


def set_limits(caller: AgentContext, given: Given, *, evict: bool) -> LimitsChanged:
    """Set the agent's own limits; MemoryFull when it holds more than a new cap, unless *evict*."""
    with refusals(caller):
        changed = _checked(given)
        if OF_WORKSPACE in changed:
            reason = "is the workspace's, and no agent's"
            raise InvalidInput(OF_WORKSPACE, reason, next="Use hf.set_durable_limits.")

    def work(tx: Transaction) -> LimitsChanged:
        book = AgentTransaction(caller, tx)
        book.open()
        _put(book, changed)
        limits = _in_force(caller, tx)
        evicted = _fit(book, EntryLocation(caller.agent), limits.cap, evicting=evict)
        return _closed(book, limits, changed, evicted)

    return write(caller, work)


def set_workspace_limits(caller: AgentContext, given: Given, *, evict: bool) -> LimitsChanged:
    """Set the workspace's limits; MemoryFull when anybody holds more than a cap, unless *evict*.

    *caller* is of no agent, with an engine scoped to all of the workspace's.
    """
    with refusals(caller):
        changed = _checked(given)

    def work(tx: Transaction) -> LimitsChanged:
        cap = changed.get("cap") or DurableLimits().cap
        agents = _over(caller, tx, cap) if "cap" in changed else []
        if agents and not evict:
            raise _full(cap, agents)
        evicted = [gone for each in agents for gone in _fit_agent(caller, tx, each.agent, cap)]
        book = AgentTransaction(caller, OnBehalf(tx, workspace=caller.workspace, agent=SHARED))
        book.open(shared=True)
        _put(book, changed)
        limits = _in_force(caller, book.tx)
        if "workspace_cap" in changed:
            evicted += _fit(book, EntryLocation(SHARED), limits.workspace_cap, evicting=evict)
        return _closed(book, limits, changed, evicted)

    return write(caller, work)


def merged(*rows: LimitsRow) -> DurableLimits:
    """Return the defaults with *rows* laid over them, the later over the earlier."""
    given: dict[str, int] = {}
    for row in rows:
        for name in RANGES:
            value: int | None = getattr(row, name)
            if value is not None:
                given[name] = value
    return DurableLimits(**given)


def _in_force(caller: AgentContext, reader: Reader) -> DurableLimits:
    sql = caller.engine.queries("holdfast.memories.durable")
    return merged(*reader.all(LimitsRow, sql.limits_of_agent, agent=caller.agent))


def _checked(given: Mapping[str, object]) -> dict[str, int | None]:
    checked: dict[str, int | None] = {}
    if not given:
        raise InvalidInput("limits", f"must name one at least: {', '.join(RANGES)}")
    for name, value in given.items():
        if name not in RANGES:
            raise InvalidInput(name, f"is no limit; the limits are {', '.join(RANGES)}")
        checked[name] = None if value is None else _within(name, value)
    return checked


def _within(name: str, value: object) -> int:
    least, most = RANGES[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidInput(name, f"must be {least:,} to {most:,}", limit=most, given=value)
    return value


def _put(book: AgentTransaction, changed: Given) -> None:
    owner = book.caller.agent
    now = book.tx.first(LimitsRow, book.sql.own_limits, owner=owner) or LimitsRow()
    row = replace(now, **changed)
    book.tx.run(book.sql.put_limits, owner=owner, **{name: getattr(row, name) for name in RANGES})


def _fit(book: AgentTransaction, place: EntryLocation, cap: int, *, evicting: bool) -> list[Gone]:
    """Evict what *place* holds beyond *cap*, coldest first."""
    held = book.held(place)
    leaving = excess(held, cap=cap)
    count = leaving.windowed + leaving.core
    if count and not evicting:
        raise MemoryFull(cap=cap, entries=held.entries, core_entries=held.core, would_evict=count)
    return _evicted(book, place, leaving)


def _evicted(book: AgentTransaction, place: EntryLocation, leaving: Leaving) -> list[Gone]:
    windowed = evict(book, place, pinned=False, count=leaving.windowed, cause=_CAUSE)
    return windowed + evict(book, place, pinned=True, count=leaving.core, cause=_CAUSE)


def _fit_agent(caller: AgentContext, tx: Transaction, agent: str, cap: int) -> list[Gone]:
    behalf = OnBehalf(tx, workspace=caller.workspace, agent=agent)
    book = AgentTransaction(replace(caller, agent=agent), behalf)
    book.open()
    evicted = _fit(book, EntryLocation(agent), cap, evicting=True)
    book.close()
    return evicted


def _over(caller: AgentContext, tx: Transaction, cap: int) -> list[_Over]:
    sql = caller.engine.queries("holdfast.memories.durable")
    return tx.all(_Over, sql.agents_over, cap=cap)


def _full(cap: int, agents: list[_Over]) -> MemoryFull:
    held = [ScopeSize(entries=each.entries, core=each.core_entries) for each in agents]
    leaving = [excess(each, cap=cap) for each in held]
    return MemoryFull(
        cap=cap,
        entries=sum(each.entries for each in held),
        core_entries=sum(each.core for each in held),
        would_evict=sum(each.windowed + each.core for each in leaving),
    )


def _closed(
    book: AgentTransaction, limits: DurableLimits, changed: Given, evicted: list[Gone]
) -> LimitsChanged:
    book.note("limits_changed", evicted=len(evicted), **changed)
    book.close()
    return LimitsChanged(limits=limits, evicted=tuple(evicted))


_CAUSE = {"source": "limits"}


BATCH: Final = 1_000
"""Rows that a statement of the sweep looks for at a time."""
_OWNERS_AT_ONCE: Final = 50
"""Agents that are swept in one transaction, so that nobody waits long behind it."""

_SOURCE: Final = "sweep"

NOTHING: Final = Swept(expired=(), ended_runs=0, removed=0)
"""What is swept where nothing is over."""


class _Owner(Struct, frozen=True, kw_only=True):
    workspace: str
    agent: str


class _There(Struct, frozen=True, kw_only=True):
    agents: int


class _Moment(Struct, frozen=True, kw_only=True):
    at: int | None


def sweep(caller: AgentContext) -> Swept:
    """Remove what is over of one agent, and what of its log is no longer kept.

    When this returns the bytes of what expired are in no file of the database, unless a reader
    pins what was before.
    """

    def work(tx: Transaction) -> Swept:
        sql = caller.engine.queries("holdfast.memories.durable")
        if not tx.one(_There, sql.count_agent).agents:
            return NOTHING
        return _sweep(caller, tx, tidying=True)

    swept = write(caller, work)
    if swept.expired:
        caller.engine.scrub()
    return swept


def sweep_all(caller: AgentContext) -> Swept:
    """Remove what is over of every agent within *caller*'s engine, in batches, and its bytes.

    *caller* is of no agent; its workspace is `*` for all of them.
    """
    with coded():
        return _sweep_all(caller)


def _sweep_all(caller: AgentContext) -> Swept:
    now, swept = caller.now(), NOTHING
    sql = caller.engine.queries("holdfast.memories.durable")
    over = {"now": now, "lapsed": now - LAPSES_AFTER, "rows": BATCH}
    while owners := caller.engine.all(_Owner, sql.due_owners, **over):
        for first in range(0, len(owners), _OWNERS_AT_ONCE):
            some = owners[first : first + _OWNERS_AT_ONCE]
            each = caller.engine.write(lambda tx, some=some: _sweep_some(caller, tx, some))
            swept = added(swept, each)
    _drop_old(caller, now)
    erased = _erase_evicted(caller, now)
    if swept.expired or erased:
        caller.engine.scrub()
    return swept


def lag_of(engine: Engine, now: int) -> float:
    """Return how many seconds ago the oldest expired entry on disk expired; 0.0 for none."""
    sql = engine.queries("holdfast.memories.durable")
    oldest = engine.one(_Moment, sql.oldest_due, now=now).at
    return 0.0 if oldest is None else (now - oldest) / MILLISECOND / MILLISECOND


def added(swept: Swept, more: Swept) -> Swept:
    """Return both together."""
    return Swept(
        expired=swept.expired + more.expired,
        ended_runs=swept.ended_runs + more.ended_runs,
        removed=swept.removed + more.removed,
    )


def _sweep(caller: AgentContext, tx: Transaction, *, tidying: bool) -> Swept:
    book = AgentTransaction(caller, tx, source=_SOURCE)
    book.open()
    ended = end_lapsed(book)
    if tidying:
        tidy(book)
    book.close()
    return Swept(expired=book.expired, ended_runs=ended.runs, removed=ended.removed)


def _sweep_some(caller: AgentContext, tx: Transaction, owners: list[_Owner]) -> Swept:
    swept = NOTHING
    for owner in owners:
        behalf = OnBehalf(tx, workspace=owner.workspace, agent=owner.agent)
        one = replace(caller, workspace=owner.workspace, agent=owner.agent)
        swept = added(swept, _sweep(one, behalf, tidying=False))
    return swept


def _erase_evicted(caller: AgentContext, now: int) -> bool:
    """Erase what the log holds of evicted entries whose time is over; tell whether it did any."""
    sql = caller.engine.queries("holdfast.memories.durable")

    def work(tx: Transaction) -> int:
        return tx.run(sql.erase_all_expired_evicted, now=now, rows=BATCH)

    erased = 0
    while batch := caller.engine.write(work):
        erased += batch
    return erased > 0


def _drop_old(caller: AgentContext, now: int) -> None:
    engine, sql = caller.engine, caller.engine.queries("holdfast.memories.durable")
    for statement, before in (
        (sql.drop_old_changes, now - CHANGES_KEPT),
        (sql.drop_old_evicted, now - EVICTED_KEPT),
        (sql.drop_old_replays, now - REPLAYS_KEPT),
        (sql.drop_old_tombstones, now - ENDED_KEPT),
    ):
        params = {"before": before, "rows": BATCH}
        while engine.write(lambda tx, sql=statement, params=params: tx.run(sql, **params)) == BATCH:
            continue

    def runs(tx: Transaction) -> int:
        before = now - ENDED_KEPT
        tx.send(sql.drop_old_lanes, before=before, rows=BATCH)
        return tx.run(sql.drop_old_runs, before=before, rows=BATCH)

    while engine.write(runs) == BATCH:
        continue
