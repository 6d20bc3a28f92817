"""Limits of agents, and sweeps of expired entries."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader, Transaction, scalar
from holdfast.ground.errors import InvalidInput, MemoryFull
from holdfast.ground.validation import check_whole
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
"""The only limit that is set for the workspace alone."""

Given = Mapping[str, int | None]
"""Limits by name; None removes one."""
_Row: Final = dict[str, int | None]


class _Over(Struct, frozen=True, kw_only=True):
    agent: str
    entries: int
    core_entries: int


def limits_of(context: AgentContext) -> DurableLimits:
    """Return the limits in force for the caller's agent, or for the workspace."""
    return _in_force(context, context.engine)


def set_limits(context: AgentContext, given: Given, *, evict: bool) -> LimitsChanged:
    """Set the agent's own limits.

    Raises MemoryFull when the agent has more entries than a new cap, unless *evict*.
    """
    with refusals(context):
        changed = _checked(given)
        if OF_WORKSPACE in changed:
            reason = "is the workspace's, and no agent's"
            raise InvalidInput(OF_WORKSPACE, reason, next="Use hf.set_durable_limits.")

    def work(tx: Transaction) -> LimitsChanged:
        unit = AgentTransaction(context, tx)
        unit.open()
        _put(unit, changed)
        limits = _in_force(context, tx)
        evicted = _fit(unit, EntryLocation(context.agent), limits.cap, evicting=evict)
        return _closed(unit, limits, changed, evicted)

    return write(context, work)


def set_workspace_limits(context: AgentContext, given: Given, *, evict: bool) -> LimitsChanged:
    """Set the workspace's limits.

    Raises MemoryFull when any agent, or the workspace, has more entries than a new cap, unless
    *evict*. *context* is of no agent, with an engine scoped to the whole workspace.
    """
    with refusals(context):
        changed = _checked(given)

    def work(tx: Transaction) -> LimitsChanged:
        cap = changed.get("cap") or DurableLimits().cap
        agents = _over(context, tx, cap) if "cap" in changed else []
        if agents and not evict:
            raise _full(cap, agents)
        evicted = [gone for each in agents for gone in _fit_agent(context, tx, each.agent, cap)]
        unit = AgentTransaction(context, OnBehalf(tx, workspace=context.workspace, agent=SHARED))
        unit.open(shared=True)
        _put(unit, changed)
        limits = _in_force(context, unit.tx)
        if "workspace_cap" in changed:
            evicted += _fit(unit, EntryLocation(SHARED), limits.workspace_cap, evicting=evict)
        return _closed(unit, limits, changed, evicted)

    return write(context, work)


def merged(*rows: Given) -> DurableLimits:
    """Return the defaults overridden by *rows*, later rows last."""
    given = {name: value for row in rows for name, value in row.items() if value is not None}
    return DurableLimits(**given)


def _in_force(context: AgentContext, reader: Reader) -> DurableLimits:
    return merged(*reader.all(_Row, context.sql.limits_of_agent, agent=context.agent))


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
    reason = f"must be {least:,} to {most:,}"
    return check_whole(name, value, reason, least=least, most=most, limit=most)


def _put(unit: AgentTransaction, changed: Given) -> None:
    owner = unit.context.agent
    now = unit.tx.first(_Row, unit.sql.own_limits, owner=owner) or {}
    unit.tx.run(unit.sql.put_limits, owner=owner, **{**dict.fromkeys(RANGES), **now, **changed})


def _fit(unit: AgentTransaction, place: EntryLocation, cap: int, *, evicting: bool) -> list[Gone]:
    """Evict the entries of *place* beyond *cap*, coldest first; else raise MemoryFull."""
    held = unit.held(place)
    leaving = excess(held, cap=cap)
    count = leaving.windowed + leaving.core
    if count and not evicting:
        raise MemoryFull(cap=cap, entries=held.entries, core_entries=held.core, would_evict=count)
    return _evicted(unit, place, leaving)


def _evicted(unit: AgentTransaction, place: EntryLocation, leaving: Leaving) -> list[Gone]:
    windowed = evict(unit, place, pinned=False, count=leaving.windowed, cause=_CAUSE)
    return windowed + evict(unit, place, pinned=True, count=leaving.core, cause=_CAUSE)


def _fit_agent(context: AgentContext, tx: Transaction, agent: str, cap: int) -> list[Gone]:
    behalf = OnBehalf(tx, workspace=context.workspace, agent=agent)
    unit = AgentTransaction(replace(context, agent=agent), behalf)
    unit.open()
    evicted = _fit(unit, EntryLocation(agent), cap, evicting=True)
    unit.close()
    return evicted


def _over(context: AgentContext, tx: Transaction, cap: int) -> list[_Over]:
    return tx.all(_Over, context.sql.agents_over, cap=cap)


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
    unit: AgentTransaction, limits: DurableLimits, changed: Given, evicted: list[Gone]
) -> LimitsChanged:
    unit.note("limits_changed", evicted=len(evicted), **changed)
    unit.close()
    return LimitsChanged(limits=limits, evicted=tuple(evicted))


_CAUSE = {"source": "limits"}


BATCH: Final = 1_000
"""Rows that one statement of the sweep selects."""
_OWNERS_AT_ONCE: Final = 50
"""Agents that one transaction sweeps, so that other writes do not wait long."""

_SOURCE: Final = "sweep"

NOTHING: Final = Swept(expired=(), ended_runs=0, removed=0)
"""Result of a sweep without expired entries."""


class _Owner(Struct, frozen=True, kw_only=True):
    workspace: str
    agent: str


def sweep(context: AgentContext) -> Swept:
    """Delete one agent's expired entries, lapsed runs and old rows of the log.

    When this returns the bytes of expired entries are in no file of the database, unless a reader
    pins an earlier snapshot.
    """

    def work(tx: Transaction) -> Swept:
        if not tx.one(scalar, context.sql.count_agent):
            return NOTHING
        return _sweep(context, tx, tidying=True)

    swept = write(context, work)
    if swept.expired:
        context.engine.scrub()
    return swept


def sweep_all(context: AgentContext) -> Swept:
    """Sweep every agent within the engine's scope, in batches.

    Deletes expired entries and their bytes, lapsed runs and old rows.
    """
    with coded():
        return _sweep_all(context)


def _sweep_all(context: AgentContext) -> Swept:
    now, swept = context.now(), NOTHING
    over = {"now": now, "lapsed": now - LAPSES_AFTER, "rows": BATCH}
    while owners := context.engine.all(_Owner, context.sql.due_owners, **over):
        for first in range(0, len(owners), _OWNERS_AT_ONCE):
            some = owners[first : first + _OWNERS_AT_ONCE]
            each = context.engine.write(lambda tx, some=some: _sweep_some(context, tx, some))
            swept = added(swept, each)
    _drop_old(context, now)
    erased = _erase_evicted(context, now)
    if swept.expired or erased:
        context.engine.scrub()
    return swept


def lag_of(engine: Engine, now: int) -> float:
    """Return for how many seconds the oldest entry has been expired.

    Counts entries that are still on disk; 0.0 without any.
    """
    sql = engine.queries("holdfast.memories.durable")
    oldest = engine.one(scalar, sql.oldest_due, now=now)
    return 0.0 if oldest is None else (now - oldest) / MILLISECOND / MILLISECOND


def added(swept: Swept, more: Swept) -> Swept:
    """Return the sum of two results."""
    sums = {name: getattr(swept, name) + getattr(more, name) for name in swept.__struct_fields__}
    return Swept(**sums)


def _sweep(context: AgentContext, tx: Transaction, *, tidying: bool) -> Swept:
    unit = AgentTransaction(context, tx, source=_SOURCE)
    unit.open()
    ended = end_lapsed(unit)
    if tidying:
        tidy(unit)
    unit.close()
    return Swept(expired=unit.expired, ended_runs=ended.runs, removed=ended.removed)


def _sweep_some(context: AgentContext, tx: Transaction, owners: list[_Owner]) -> Swept:
    swept = NOTHING
    for owner in owners:
        behalf = OnBehalf(tx, workspace=owner.workspace, agent=owner.agent)
        one = replace(context, workspace=owner.workspace, agent=owner.agent)
        swept = added(swept, _sweep(one, behalf, tidying=False))
    return swept


def _erase_evicted(context: AgentContext, now: int) -> bool:
    """Erase logged contents of evicted entries that have expired since.

    Returns whether there were any.
    """

    def work(tx: Transaction) -> int:
        return tx.run(context.sql.erase_all_expired_evicted, now=now, rows=BATCH)

    erased = 0
    while batch := context.engine.write(work):
        erased += batch
    return erased > 0


def _drop_old(context: AgentContext, now: int) -> None:
    engine, sql = context.engine, context.sql
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
