"""Read, select and explain the hydration of an agent."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import Final, cast, get_args

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, Row, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import shortened
from holdfast.ground.events import Fact
from holdfast.ground.metrics import REGISTRY, Increment, add_all
from holdfast.ground.trust import HeldFor
from holdfast.ground.validation import check_whole
from holdfast.memories.durable.context import AgentContext, pass_fence
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
    Reason,
    W,
    Weighable,
    digest,
    plan,
    render,
)
from holdfast.memories.durable.transaction import publish
from holdfast.memories.durable.validation import checked_key

_HYDRATIONS: Final = REGISTRY.counter("durable_hydrations_total", "Hydrations.")
_ENTRIES: Final = REGISTRY.counter("durable_hydrated_entries_total", "Entries hydrated.")
_BYTES: Final = REGISTRY.counter("durable_hydrated_bytes_total", "Bytes of entries hydrated.")
_OMITTED_ENTRIES: Final = REGISTRY.counter(
    "durable_omitted_entries_total",
    "Entries that hydrations left out.",
    reason=get_args(Reason),
)
_OMITTED_BYTES: Final = REGISTRY.counter(
    "durable_omitted_bytes_total", "Bytes of entries that hydrations left out."
)


_REASON, _SEQ, _SIZE = attrgetter("reason"), attrgetter("seq"), attrgetter("size_bytes")
_texts, _numbers = msgspec.json.Decoder(list[str]), msgspec.json.Decoder(list[int])
_holds = msgspec.json.Decoder(list[HeldFor | None])


class Hydration(Struct, frozen=True, kw_only=True, dict=True):
    """Entries selected within a budget, and the entries left out.

    `entries` are in the order of selection: core newest first, then the others newest first. Every
    candidate is in exactly one of `entries` and `omitted`. `seq` is the newest write among them,
    `digest` the sha256 over scope, key and seq of `entries`, in order.
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
        """Return an escaped block for a prompt; "" without entries and omissions."""
        return self._rendered

    @cached_property
    def explanations(self) -> tuple[Explanation, ...]:
        """Why each candidate is in or left out, in order; shadowed ones last."""
        planned = plan((*self.entries, *self.omitted), budget=self.budget)
        considered = [_of_candidate(each, self.budget) for each in planned.considered]
        shadowed = [_of_left_out(each, "shadowed", self.budget) for each in planned.shadowed]
        held = [_of_left_out(each, "held", self.budget) for each in planned.held]
        return (*considered, *shadowed, *held)


class ToSee(Struct, frozen=True, kw_only=True):
    """Bytes of the visible entries, and their budget; conversation entries excluded."""

    size_bytes: int
    shared_size_bytes: int
    budget: int | None

    @property
    def allowed(self) -> int:
        """The budget in force unless a call passes its own."""
        return DurableLimits().budget if self.budget is None else self.budget


def hydrate(context: AgentContext, budget: int | None) -> Hydration:
    """Select entries within *budget* bytes from one snapshot; None: the agent's limit."""
    checked_budget(budget)

    def look(reader: Reader) -> Hydration:
        pass_fence(context, reader)
        return hydrate_in(context, reader, budget, reader.one(ToSee, context.sql.to_see))

    hydration = context.engine.read(look)
    add_all(counted(hydration))
    publish(context, "hydrated", **event_data(hydration))
    return hydration


def hydrate_in(
    context: AgentContext, reader: Reader, budget: int | None, there: ToSee, *, fresh: bool = False
) -> Hydration:
    """Hydrate within an open read or transaction.

    A *fresh* run has no entries yet.
    """
    allowed = there.allowed if budget is None else budget
    alone = fresh or context.run is None
    if alone and there.size_bytes + there.shared_size_bytes <= allowed:
        # Only shadowed entries are left out, so one statement reads everything.
        return _hydration(context, allowed, *plan(_all(context, reader), budget=allowed).divided())
    chosen, omitted = plan_in(context, reader, allowed).divided()
    entries = _read(context, reader, chosen)
    while len(entries) < len(chosen):
        # Within a transaction, workspace entries may change from one statement to the next.
        chosen, omitted = plan_in(context, reader, allowed).divided()
        entries = _read(context, reader, chosen)
    return _hydration(context, allowed, [entries[each.seq] for each in chosen], omitted)


def _hydration(
    context: AgentContext,
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
        agent=context.agent,
        workspace=context.workspace,
        run_id=context.run_id or None,
        seq=max(map(_SEQ, everything), default=0),
        digest=digest(entries),
    )


def plan_in(
    context: AgentContext, reader: Reader, budget: int
) -> HydrationPlan[HydrationCandidate]:
    """Plan by sizes, without contents, within an open read or transaction."""
    there = reader.rows(context.sql.candidates, run_id=context.run_id, now=context.now())
    return plan([each for row in there for each in _candidates(row)], budget=budget)


def event_data(hydration: Hydration) -> dict[str, Fact]:
    """Return the event data of *hydration*."""
    return {
        "entries": len(hydration.entries),
        "omitted": len(hydration.omitted),
        "bytes": hydration.size_bytes,
        "budget": hydration.budget,
        "digest": hydration.digest,
    }


def counted(hydration: Hydration) -> Iterator[Increment]:
    """Yield the increments of counters for *hydration*."""
    yield _HYDRATIONS, (), 1
    yield _ENTRIES, (), len(hydration.entries)
    yield _BYTES, (), hydration.size_bytes
    yield _OMITTED_BYTES, (), hydration.omitted_bytes
    for reason, number in Counter(map(_REASON, hydration.omitted)).items():
        yield _OMITTED_ENTRIES, (reason,), number


def checked_budget(given: object) -> None:
    """Raise InvalidInput unless *given* can be a budget, or is None."""
    least, most = RANGES["budget"]
    if given is not None:
        reason = f"must be {least} to {most:,} bytes"
        check_whole("budget", given, reason, least=least, most=most, limit=most)


def _all(context: AgentContext, reader: Reader) -> list[DurableEntry]:
    rows = reader.rows(context.sql.all_entries, run_id=context.run_id, now=context.now())
    return [entry_of(context.workspace, row) for row in rows]


def _read(
    context: AgentContext, reader: Reader, wanted: Sequence[Weighable]
) -> Mapping[int, DurableEntry]:
    """Return the entries of *wanted* that have not changed since, by `seq`."""
    if not wanted:
        return {}
    chosen = msgspec.json.encode([_spot(context, each) for each in wanted]).decode()
    numbers = {each.seq for each in wanted}
    rows = reader.rows(context.sql.chosen_entries, chosen=chosen)
    return {row[SEQ]: entry_of(context.workspace, row) for row in rows if row[SEQ] in numbers}


def _spot(context: AgentContext, candidate: Weighable) -> tuple[str, str, str]:
    agent = "" if candidate.scope == "workspace" else context.agent
    return agent, context.run_id if candidate.scope == "run" else "", candidate.key


def _candidates(row: Row) -> Iterable[HydrationCandidate]:
    """Yield the candidates of one location, which *row* has as columns."""
    agent, run_id, keys, categories, sizes, seqs, ids, held = row
    scope: EntryScope = scope_of(agent, run_id)
    return map(
        HydrationCandidate,
        _texts.decode(keys),
        _texts.decode(categories),
        cast("Iterable[EntryScope]", repeat(scope)),
        _numbers.decode(sizes),
        _numbers.decode(seqs),
        _texts.decode(ids),
        _holds.decode(held),
    )


_NO_HASH: Final = b""
"""Matches the hash of no key."""

_VERDICTS: Final[dict[str, Verdict]] = {
    "expire": "expired",
    "evict": "evicted",
    "forget": "forgotten",
    "end": "run_ended",
}


class _Deletion(Struct, frozen=True, kw_only=True):
    """The last deletion under a key, from the log or a tombstone."""

    seq: int
    at: int
    op: str
    category: str | None
    agent: str
    run_id: str
    size_bytes: int
    actor: str


class _Expired(Struct, frozen=True, kw_only=True):
    """An expired entry that is still on disk."""

    category: str
    size_bytes: int
    expires_at: int
    updated_by: str


def explain(context: AgentContext, key: str, budget: int | None = None) -> Explanation:
    """Return whether a hydration within *budget* bytes takes *key*, and why.

    *budget* None is the agent's limit. Explains the nearest entry under the key; if there is none,
    how the last one was deleted.
    """
    with coded():
        checked_key(key)
        checked_budget(budget)
        return context.engine.read(lambda reader: _explain(context, reader, key, budget))


def _explain(context: AgentContext, reader: Reader, key: str, budget: int | None) -> Explanation:
    pass_fence(context, reader)
    allowed = reader.one(ToSee, context.sql.to_see).allowed if budget is None else budget
    planned = plan_in(context, reader, allowed)
    for each in planned.considered:
        if each.candidate.key == key:
            return _of_candidate(each, allowed)
    for each in planned.held:
        if each.key == key:
            return _of_left_out(each, "held", allowed)
    return _of_absent(context, reader, key, allowed)


def _of_candidate(each: Considered[W], budget: int) -> Explanation:
    there = each.candidate
    core = there.category == CORE
    reason: Verdict = each.reason or ("core" if core else "window")
    return Explanation(
        key=there.key,
        hydrated=each.reason is None,
        reason=reason,
        text=_candidate_text(each, reason, budget),
        budget=budget,
        category=there.category,
        scope=there.scope,
        tier="pinned" if core else "windowed",
        rank=each.rank,
        size_bytes=there.size_bytes,
        left_before=each.left_before,
    )


_LEFT_OUT: Final[dict[Verdict, str]] = {
    "shadowed": "from here: a nearer entry has this key",
    "held": "until a person accepts it: it reads as an order to a machine",
}


def _of_left_out(there: Weighable, reason: Verdict, budget: int) -> Explanation:
    return Explanation(
        key=there.key,
        hydrated=False,
        reason=reason,
        text=f"{_named(there.key)} is not hydrated {_LEFT_OUT[reason]}.",
        budget=budget,
        category=there.category,
        scope=there.scope,
        tier="pinned" if there.category == CORE else "windowed",
        size_bytes=there.size_bytes,
    )


def _candidate_text(each: Considered[W], reason: Verdict, budget: int) -> str:
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


def _of_absent(context: AgentContext, reader: Reader, key: str, budget: int) -> Explanation:
    secret = reader.first(scalar, context.sql.get_secret)
    hashed = _NO_HASH if secret is None else key_hash(secret, key)
    gone = reader.first(
        _Deletion, context.sql.last_gone, key=key, key_hash=hashed, run_id=context.run_id
    )
    over = reader.first(_Expired, context.sql.entry_expired, key=key, now=context.now())
    if over is not None and (gone is None or gone.at <= over.expires_at):
        gone = _Deletion(
            seq=0,
            at=over.expires_at,
            op="expire",
            category=over.category,
            agent=context.agent,
            run_id=NO_RUN,
            size_bytes=over.size_bytes,
            actor=over.updated_by,
        )
    if gone is None:
        text = f"{_named(key)} was never stored, or so long ago that no trace of it is kept."
        return Explanation(key=key, hydrated=False, reason="never_stored", text=text, budget=budget)
    return _of_deletion(key, gone, budget)


def _of_deletion(key: str, gone: _Deletion, budget: int) -> Explanation:
    reason, by = _VERDICTS[gone.op], by_of(gone.actor)
    at = from_microseconds(gone.at)
    forgotten = reason == "forgotten"
    return Explanation(
        key=key,
        hydrated=False,
        reason=reason,
        text=_deletion_text(_named(key), reason, to_milliseconds_text(at), by),
        budget=budget,
        category=None if forgotten else gone.category,
        scope=scope_of(gone.agent, gone.run_id),
        size_bytes=None if forgotten else gone.size_bytes,
        at=at,
        by=by,
    )


def _deletion_text(name: str, reason: Verdict, at: str, by: By) -> str:
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
