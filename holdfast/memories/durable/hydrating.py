"""Hydration: what an agent sees at a run's start, planned by sizes, then read."""

from functools import cached_property

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.entry import DurableEntry
from holdfast.memories.durable.fence import pass_fence
from holdfast.memories.durable.hydrate import Candidate, Omitted, Plan, digest, plan
from holdfast.memories.durable.limits import RANGES, DurableLimits
from holdfast.memories.durable.limits_in_force import limits_in_force
from holdfast.memories.durable.render import render
from holdfast.memories.durable.rows import EntryRow, scope_of


class Hydration(Struct, frozen=True, kw_only=True, dict=True):
    """What was chosen within a budget, and what was left out.

    `entries` stand in the order taken: core newest first, then the others newest first. Every
    candidate is in exactly one of `entries` and `omitted`. `seq` is the newest write it saw,
    `digest` the sha256 over the ordered scope, key and seq of what was chosen.
    """

    entries: tuple[DurableEntry, ...]
    omitted: tuple[Omitted, ...]
    size_bytes: int
    omitted_bytes: int
    budget: int
    agent: str
    workspace: str
    run_id: str | None
    seq: int
    digest: str

    @cached_property
    def _rendered(self) -> str:
        return render(self.agent, self.entries, self.omitted, self.omitted_bytes)

    def render(self) -> str:
        """Return it as a block for a prompt, escaped; "" when there is nothing to say."""
        return self._rendered


def hydrate(caller: Caller, budget: int | None) -> Hydration:
    """Choose what fits *budget* bytes, the agent's limit for None, of one moment."""
    checked_budget(budget)

    def look(reader: Reader) -> Hydration:
        pass_fence(caller, reader, lock=False)
        return hydrate_in(caller, reader, budget)

    return caller.engine.read(look)


def hydrate_in(caller: Caller, reader: Reader, budget: int | None) -> Hydration:
    """Hydrate within a read or a transaction under way."""
    sql = caller.engine.queries("holdfast.memories.durable")
    planned = plan_in(caller, reader, budget)
    chosen = planned.chosen
    ids = msgspec.json.encode([each.id for each in chosen]).decode()
    rows = reader.all(EntryRow, sql.entries_by_id, ids=ids) if chosen else []
    entries = {row.id: row.record(caller.workspace) for row in rows}
    omitted = planned.omitted
    return Hydration(
        entries=tuple(entries[each.id] for each in chosen),
        omitted=omitted,
        size_bytes=sum(each.size_bytes for each in chosen),
        omitted_bytes=sum(each.size_bytes for each in omitted),
        budget=planned.budget,
        agent=caller.agent,
        workspace=caller.workspace,
        run_id=caller.run_id or None,
        seq=max((each.seq for each in (*chosen, *omitted)), default=0),
        digest=digest(chosen),
    )


def plan_in(caller: Caller, reader: Reader, budget: int | None) -> Plan:
    """Plan within a read or a transaction under way."""
    sql = caller.engine.queries("holdfast.memories.durable")
    if budget is None:
        budget = limits_in_force(caller, reader).budget
    now = to_microseconds(caller.now())
    candidates = reader.all(_candidate, sql.candidates, run_id=caller.run_id, now=now)
    return plan(candidates, budget=budget)


def checked_budget(given: object) -> None:
    """Raise InvalidInput unless *given* can be a budget, or is None."""
    least, most = RANGES["budget"]
    if given is None:
        return
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise InvalidInput("budget", f"must be {least} to {most:,} bytes", limit=most, given=given)


def _candidate(
    *, id: str, key: str, category: str, agent: str, run_id: str, size_bytes: int, seq: int
) -> Candidate:
    return Candidate(
        id=id,
        key=key,
        category=category,
        scope=scope_of(agent, run_id),
        size_bytes=size_bytes,
        seq=seq,
    )
