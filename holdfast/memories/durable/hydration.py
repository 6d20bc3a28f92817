"""Read, select and explain the hydration of an agent."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import Final, cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, Row
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import InvalidInput, shortened
from holdfast.ground.events import Fact
from holdfast.memories.durable.context import AgentContext, Count, counts, pass_fence
from holdfast.memories.durable.records import (
    CORE,
    RANGES,
    By,
    DurableEntry,
    DurableLimits,
    EntryScope,
    Explanation,
    Verdict,
    coded,
    key_hash,
    to_milliseconds_text,
)
from holdfast.memories.durable.rows import NO_RUN, SEQ, by_of, entry_of, scope_of
from holdfast.memories.durable.rules import (
    Considered,
    HydrationCandidate,
    HydrationPlan,
    OmittedEntry,
    Weighable,
    digest,
    plan,
    render,
)
from holdfast.memories.durable.transaction import publish
from holdfast.memories.durable.validation import checked_key

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


_NOBODYS: Final = b""
"""The hash of no key."""

_WENT: Final[dict[str, Verdict]] = {
    "expire": "expired",
    "evict": "evicted",
    "forget": "forgotten",
    "end": "run_ended",
}


class _Gone(Struct, frozen=True, kw_only=True):
    """How something under a key last went, by the log or by a tombstone."""

    seq: int
    at: int
    op: str
    category: str | None
    agent: str
    run_id: str
    size_bytes: int
    actor: str


class _Expired(Struct, frozen=True, kw_only=True):
    """An entry that is over, and still on disk."""

    category: str
    size_bytes: int
    expires_at: int
    updated_by: str


class _Secret(Struct, frozen=True):
    secret: bytes


def explain(caller: AgentContext, key: str, budget: int | None = None) -> Explanation:
    """Say whether a hydration with *budget* bytes, the agent's limit for None, takes *key*.

    It is about the nearest entry under the key; if there is none, about what became of it.
    """
    with coded():
        checked_key(key)
        checked_budget(budget)
        return caller.engine.read(lambda reader: _explain(caller, reader, key, budget))


def _explain(caller: AgentContext, reader: Reader, key: str, budget: int | None) -> Explanation:
    pass_fence(caller, reader)
    sql = caller.engine.queries("holdfast.memories.durable")
    allowed = reader.one(ToSee, sql.to_see).allowed if budget is None else budget
    planned = plan_in(caller, reader, allowed)
    for each in planned.considered:
        if each.candidate.key == key:
            return _of_candidate(each, allowed)
    return _of_absent(caller, reader, key, allowed)


def _of_candidate(each: Considered[HydrationCandidate], budget: int) -> Explanation:
    there = each.candidate
    core = there.category == CORE
    reason: Verdict = each.reason or ("core" if core else "window")
    return Explanation(
        key=there.key,
        hydrated=each.reason is None,
        reason=reason,
        text=_said_of(each, reason, budget),
        budget=budget,
        category=there.category,
        scope=there.scope,
        tier="pinned" if core else "windowed",
        rank=each.rank,
        size_bytes=there.size_bytes,
        left_before=each.left_before,
    )


def _said_of(each: Considered[HydrationCandidate], reason: Verdict, budget: int) -> str:
    name = _named(each.candidate.key)
    size, left = f"{each.candidate.size_bytes:,} bytes", f"{each.left_before:,}"
    match reason:
        case "core":
            fits = f"as number {each.rank} in order its {size} fit the {left} that were left"
            return f"{name} is hydrated: it is core, and {fits}."
        case "window":
            fits = f"as number {each.rank} in order its {size} fit the {left} that were left"
            return f"{name} is hydrated: after the core entries, {fits}."
        case "too_big":
            return f"{name} is not hydrated: its {size} exceed the whole budget of {budget:,}."
        case _:
            turn = f"as number {each.rank} in order it found {left} of {budget:,} bytes left"
            return f"{name} is not hydrated: {turn}, and it has {size}."


def _of_absent(caller: AgentContext, reader: Reader, key: str, budget: int) -> Explanation:
    sql = caller.engine.queries("holdfast.memories.durable")
    secret = reader.first(_Secret, sql.get_secret)
    hashed = _NOBODYS if secret is None else key_hash(secret.secret, key)
    gone = reader.first(_Gone, sql.last_gone, key=key, key_hash=hashed, run_id=caller.run_id)
    over = reader.first(_Expired, sql.entry_expired, key=key, now=caller.now())
    if over is not None and (gone is None or gone.at <= over.expires_at):
        gone = _Gone(
            seq=0,
            at=over.expires_at,
            op="expire",
            category=over.category,
            agent=caller.agent,
            run_id=NO_RUN,
            size_bytes=over.size_bytes,
            actor=over.updated_by,
        )
    if gone is None:
        text = f"{_named(key)} was never stored, or so long ago that no trace of it is kept."
        return Explanation(key=key, hydrated=False, reason="never_stored", text=text, budget=budget)
    return _of_gone(key, gone, budget)


def _of_gone(key: str, gone: _Gone, budget: int) -> Explanation:
    reason, by = _WENT[gone.op], by_of(gone.actor)
    at = from_microseconds(gone.at)
    forgotten = reason == "forgotten"
    return Explanation(
        key=key,
        hydrated=False,
        reason=reason,
        text=_said_of_gone(_named(key), reason, to_milliseconds_text(at), by),
        budget=budget,
        category=None if forgotten else gone.category,
        scope=scope_of(gone.agent, gone.run_id),
        size_bytes=None if forgotten else gone.size_bytes,
        at=at,
        by=by,
    )


def _said_of_gone(name: str, reason: Verdict, at: str, by: By) -> str:
    match reason:
        case "expired":
            return f"{name} expired, and was deleted at {at}."
        case "evicted":
            return f"{name} was evicted at {at}, to stay within the cap when {by} wrote."
        case "forgotten":
            return f"{name} was forgotten at {at} by {by}."
        case _:
            return f"{name} went with the run that it belonged to, which ended at {at}."


def _named(key: str) -> str:
    return f'"{shortened(key)}"'
