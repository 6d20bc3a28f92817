"""Which entries an agent sees at a run's start: a pure function of sizes, order and budget."""

from collections.abc import Iterable
from hashlib import sha256
from operator import attrgetter
from typing import Literal, Protocol

from msgspec import Struct

from holdfast.memories.durable.entry import CORE, EntryScope

Reason = Literal["too_big", "over_budget", "shadowed"]

_NEARER: dict[EntryScope, int] = {"run": 0, "agent": 1, "workspace": 2}


class Weighed(Protocol):
    """What the plan asks of an entry, which its `seq` tells from all others."""

    @property
    def key(self) -> str:
        """Its key; of several with one the nearest counts."""
        ...

    @property
    def category(self) -> str:
        """Its category; `core` goes first."""
        ...

    @property
    def scope(self) -> EntryScope:
        """Whose it is."""
        ...

    @property
    def size_bytes(self) -> int:
        """What it costs."""
        ...

    @property
    def seq(self) -> int:
        """The write that made it so."""
        ...


class Candidate(Struct, frozen=True, kw_only=True):
    """An entry without its content."""

    key: str
    category: str
    scope: EntryScope
    size_bytes: int
    seq: int


class Omitted(Struct, frozen=True, kw_only=True):
    """An entry that a hydration left out, and why."""

    key: str
    category: str
    scope: EntryScope
    size_bytes: int
    seq: int
    reason: Reason


class Considered(Struct, frozen=True, kw_only=True):
    """One candidate at its turn; `reason` is None where it was taken.

    `rank` counts from 1 in the order considered, `left_before` is the budget left at its turn.
    """

    candidate: Weighed
    rank: int
    left_before: int
    reason: Literal["too_big", "over_budget"] | None


class Plan(Struct, frozen=True, kw_only=True):
    """Who is taken, who is not, and who was never asked because a nearer entry has the key."""

    considered: tuple[Considered, ...]
    shadowed: tuple[Weighed, ...]
    budget: int

    @property
    def chosen(self) -> tuple[Weighed, ...]:
        """The candidates that were taken, in that order."""
        return tuple(each.candidate for each in self.considered if each.reason is None)

    @property
    def omitted(self) -> tuple[Omitted, ...]:
        """What was left out, in the order considered; the shadowed last, newest first."""
        passed = [_omitted(each.candidate, each.reason) for each in self.considered if each.reason]
        return (*passed, *(_omitted(each, "shadowed") for each in self.shadowed))


def plan(candidates: Iterable[Weighed], *, budget: int) -> Plan:
    """Take core entries newest first, then the others newest first, within *budget* bytes.

    One that does not fit what is left is passed over, never cut. Of several under one key only
    the nearest is considered: the run's, then the agent's, then the workspace's.
    """
    nearest: dict[str, Weighed] = {}
    shadowed = [
        each
        for each in sorted(candidates, key=lambda each: _NEARER[each.scope])
        if nearest.setdefault(each.key, each) is not each
    ]
    newest = sorted(nearest.values(), key=attrgetter("seq"), reverse=True)
    left, considered = budget, list[Considered]()
    for rank, each in enumerate(sorted(newest, key=lambda each: each.category != CORE), 1):
        reason = _reason(each.size_bytes, left, budget)
        considered.append(Considered(candidate=each, rank=rank, left_before=left, reason=reason))
        left -= 0 if reason else each.size_bytes
    shadowed.sort(key=attrgetter("seq"), reverse=True)
    return Plan(considered=tuple(considered), shadowed=tuple(shadowed), budget=budget)


def digest(chosen: Iterable[Weighed]) -> str:
    """Return the sha256 over the ordered scope, key and seq of what was chosen."""
    told = sha256()
    for each in chosen:
        told.update(f"{each.scope}\0{each.key}\0{each.seq}\n".encode())
    return told.hexdigest()


def _reason(size_bytes: int, left: int, budget: int) -> Literal["too_big", "over_budget"] | None:
    if size_bytes <= left:
        return None
    return "too_big" if size_bytes > budget else "over_budget"


def _omitted(candidate: Weighed, reason: Reason) -> Omitted:
    return Omitted(
        key=candidate.key,
        category=candidate.category,
        scope=candidate.scope,
        size_bytes=candidate.size_bytes,
        seq=candidate.seq,
        reason=reason,
    )
