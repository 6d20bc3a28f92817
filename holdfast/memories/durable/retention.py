"""The limits in force, an agent's own over its workspace's over the defaults; and their change."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.errors import InvalidInput, MemoryFull
from holdfast.memories.durable.context import AgentContext, OnBehalf
from holdfast.memories.durable.records import RANGES, DurableLimits, Gone, LimitsChanged
from holdfast.memories.durable.rows import SHARED, EntryLocation
from holdfast.memories.durable.rules import Leaving, ScopeSize, excess
from holdfast.memories.durable.transaction import AgentTransaction, refusals, write
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
