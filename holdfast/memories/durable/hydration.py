"""Hydration: what an agent sees at a run's start, planned by sizes, then read."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, Row
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Fact
from holdfast.memories.durable.context import AgentContext, Count, counts, pass_fence
from holdfast.memories.durable.records import RANGES, DurableEntry, DurableLimits, EntryScope
from holdfast.memories.durable.rows import SEQ, entry_of, scope_of
from holdfast.memories.durable.rules import (
    HydrationCandidate,
    HydrationPlan,
    OmittedEntry,
    Weighable,
    digest,
    plan,
    render,
)
from holdfast.memories.durable.transaction import publish

_REASON, _SEQ, _SIZE = attrgetter("reason"), attrgetter("seq"), attrgetter("size_bytes")
_texts, _numbers = msgspec.json.Decoder(list[str]), msgspec.json.Decoder(list[int])


class Hydration(Struct, frozen=True, kw_only=True, dict=True):
    """What was chosen within a budget, and what was left out.

    `entries` stand in the order taken: core newest first, then the others newest first. Every
    candidate is in exactly one of `entries` and `omitted`. `seq` is the newest write it saw,
    `digest` the sha256 over the ordered scope, key and seq of what was chosen.
    """

    entries: tuple[DurableEntry, ...]
    omitted: tuple[OmittedEntry, ...]
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


class ToSee(Struct, frozen=True, kw_only=True):
    """How much there is to see, conversation entries left out, and the budget for it."""

    size_bytes: int
    shared_size_bytes: int
    budget: int | None

    @property
    def allowed(self) -> int:
        """The budget where none is asked for."""
        return DurableLimits().budget if self.budget is None else self.budget


def hydrate(caller: AgentContext, budget: int | None) -> Hydration:
    """Choose what fits *budget* bytes, the agent's limit for None, of one moment."""
    checked_budget(budget)
    sql = caller.engine.queries("holdfast.memories.durable")

    def look(reader: Reader) -> Hydration:
        pass_fence(caller, reader)
        return hydrate_in(caller, reader, budget, reader.one(ToSee, sql.to_see))

    hydration = caller.engine.read(look)
    counts.add_all(counted(hydration))
    publish(caller, "hydrated", **told(hydration))
    return hydration


def hydrate_in(
    caller: AgentContext, reader: Reader, budget: int | None, there: ToSee, *, fresh: bool = False
) -> Hydration:
    """Hydrate within a read or a transaction under way; a *fresh* run has no entries yet."""
    allowed = there.allowed if budget is None else budget
    alone = fresh or caller.run is None
    if alone and there.size_bytes + there.shared_size_bytes <= allowed:
        # Nothing has to be left out but what is shadowed: one statement reads all of it.
        return _hydration(caller, allowed, *plan(_all(caller, reader), budget=allowed).divided())
    chosen, omitted = plan_in(caller, reader, allowed).divided()
    entries = _read(caller, reader, chosen)
    while len(entries) < len(chosen):
        # In a transaction under way what the workspace shares may change from one statement to
        # the next.
        chosen, omitted = plan_in(caller, reader, allowed).divided()
        entries = _read(caller, reader, chosen)
    return _hydration(caller, allowed, [entries[each.seq] for each in chosen], omitted)


def _hydration(
    caller: AgentContext,
    budget: int,
    entries: Sequence[DurableEntry],
    omitted: tuple[OmittedEntry, ...],
) -> Hydration:
    everything: tuple[Weighable, ...] = (*entries, *omitted)
    return Hydration(
        entries=tuple(entries),
        omitted=omitted,
        size_bytes=sum(map(_SIZE, entries)),
        omitted_bytes=sum(map(_SIZE, omitted)),
        budget=budget,
        agent=caller.agent,
        workspace=caller.workspace,
        run_id=caller.run_id or None,
        seq=max(map(_SEQ, everything), default=0),
        digest=digest(entries),
    )


def plan_in(caller: AgentContext, reader: Reader, budget: int) -> HydrationPlan[HydrationCandidate]:
    """Plan by sizes alone, within a read or a transaction under way."""
    sql = caller.engine.queries("holdfast.memories.durable")
    there = reader.rows(sql.candidates, run_id=caller.run_id, now=caller.now())
    return plan([each for row in there for each in _candidates(row)], budget=budget)


def told(hydration: Hydration) -> dict[str, Fact]:
    """Return what an event tells of *hydration*."""
    return {
        "entries": len(hydration.entries),
        "omitted": len(hydration.omitted),
        "bytes": hydration.size_bytes,
        "budget": hydration.budget,
        "digest": hydration.digest,
    }


def counted(hydration: Hydration) -> Iterable[Count]:
    """Give what is counted of *hydration*."""
    yield "hydrations_total", "", 1
    yield "hydrated_entries_total", "", len(hydration.entries)
    yield "hydrated_bytes_total", "", hydration.size_bytes
    yield "omitted_bytes_total", "", hydration.omitted_bytes
    for reason, number in Counter(map(_REASON, hydration.omitted)).items():
        yield "omitted_entries_total", reason, number


def checked_budget(given: object) -> None:
    """Raise InvalidInput unless *given* can be a budget, or is None."""
    least, most = RANGES["budget"]
    if given is None:
        return
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise InvalidInput("budget", f"must be {least} to {most:,} bytes", limit=most, given=given)


def _all(caller: AgentContext, reader: Reader) -> list[DurableEntry]:
    sql = caller.engine.queries("holdfast.memories.durable")
    rows = reader.rows(sql.all_entries, run_id=caller.run_id, now=caller.now())
    return [entry_of(caller.workspace, row) for row in rows]


def _read(
    caller: AgentContext, reader: Reader, wanted: Sequence[Weighable]
) -> Mapping[int, DurableEntry]:
    """Return those of *wanted* that are there as they were seen, by their numbers."""
    if not wanted:
        return {}
    sql = caller.engine.queries("holdfast.memories.durable")
    chosen = msgspec.json.encode([_spot(caller, each) for each in wanted]).decode()
    numbers = {each.seq for each in wanted}
    rows = reader.rows(sql.chosen_entries, chosen=chosen)
    return {row[SEQ]: entry_of(caller.workspace, row) for row in rows if row[SEQ] in numbers}


def _spot(caller: AgentContext, candidate: Weighable) -> tuple[str, str, str]:
    agent = "" if candidate.scope == "workspace" else caller.agent
    return agent, caller.run_id if candidate.scope == "run" else "", candidate.key


def _candidates(row: Row) -> Iterable[HydrationCandidate]:
    """Give the candidates of one place, whose columns *row* has."""
    agent, run_id, keys, categories, sizes, seqs = row
    scope: EntryScope = scope_of(agent, run_id)
    return map(
        HydrationCandidate,
        _texts.decode(keys),
        _texts.decode(categories),
        cast("Iterable[EntryScope]", repeat(scope)),
        _numbers.decode(sizes),
        _numbers.decode(seqs),
    )
