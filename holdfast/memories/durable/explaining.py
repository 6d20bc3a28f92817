"""Why the agent sees a key at a run's start, or does not: the plan's own reason, or the log's."""

from typing import Final

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import shortened
from holdfast.memories.durable.context import AgentContext, pass_fence
from holdfast.memories.durable.hydration import ToSee, checked_budget, plan_in
from holdfast.memories.durable.records import (
    CORE,
    By,
    Explanation,
    Verdict,
    coded,
    key_hash,
    to_milliseconds_text,
)
from holdfast.memories.durable.rows import NO_RUN, by_of, scope_of
from holdfast.memories.durable.rules import Considered, HydrationCandidate
from holdfast.memories.durable.validation import checked_key

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
