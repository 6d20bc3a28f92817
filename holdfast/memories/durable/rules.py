"""Which entries an agent sees at a run's start: a pure function of sizes, order and budget."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Generic, Literal, Protocol, TypeVar

from msgspec import Struct

from holdfast.memories.durable.records import CORE, EntryScope

Reason = Literal["too_big", "over_budget", "shadowed"]

_SEQ, _KEY = attrgetter("seq"), attrgetter("key")
_NEARER: dict[EntryScope, int] = {"run": 0, "agent": 1, "workspace": 2}


class Weighable(Protocol):
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


W = TypeVar("W", bound=Weighable)


class HydrationCandidate(Struct, frozen=True, gc=False):
    """An entry without its content; made by position, of which a plan takes a thousand."""

    key: str
    category: str
    scope: EntryScope
    size_bytes: int
    seq: int


class OmittedEntry(Struct, frozen=True, gc=False):
    """An entry that a hydration left out, and why."""

    key: str
    category: str
    scope: EntryScope
    size_bytes: int
    seq: int
    reason: Reason


class Considered(Struct, Generic[W], frozen=True, kw_only=True):
    """One candidate at its turn; `reason` is None where it was taken.

    `rank` counts from 1 in the order considered, `left_before` is the budget left at its turn.
    """

    candidate: W
    rank: int
    left_before: int
    reason: Literal["too_big", "over_budget"] | None


class HydrationPlan(Struct, Generic[W], frozen=True, kw_only=True):
    """Who is considered, in order; and who never is because a nearer entry has the key."""

    ordered: tuple[W, ...]
    shadowed: tuple[W, ...]
    budget: int

    @property
    def considered(self) -> tuple[Considered[W], ...]:
        """Each candidate at its turn."""
        left, considered = self.budget, list[Considered[W]]()
        for rank, each in enumerate(self.ordered, 1):
            fits = each.size_bytes <= left
            reason = None if fits else _reason(each.size_bytes, self.budget)
            considered.append(
                Considered(candidate=each, rank=rank, left_before=left, reason=reason)
            )
            left -= 0 if reason else each.size_bytes
        return tuple(considered)

    @property
    def chosen(self) -> tuple[W, ...]:
        """Who is taken, in that order."""
        return self.divided()[0]

    @property
    def omitted(self) -> tuple[OmittedEntry, ...]:
        """Who is left out, in the order considered; the shadowed last, newest first."""
        return self.divided()[1]

    def divided(self) -> tuple[tuple[W, ...], tuple[OmittedEntry, ...]]:
        """Return who is taken, in that order; and who is left out, the shadowed last."""
        ordered, left = self.ordered, self.budget
        taken: Sequence[W] = ordered
        passed: list[W] = []
        if sum([each.size_bytes for each in ordered]) > left:
            taken, passed = _fitting(ordered, left)
        # A thousand may be left out, so nothing is called for each but what makes it.
        budget = self.budget
        omitted = [
            OmittedEntry(each.key, each.category, each.scope, size, each.seq, reason)
            for each in passed
            for size in (each.size_bytes,)
            for reason in ("over_budget" if size <= budget else "too_big",)
        ]
        omitted += [_shadowed(each) for each in self.shadowed]
        return tuple(taken), tuple(omitted)


def _fitting(ordered: Sequence[W], left: int) -> tuple[list[W], list[W]]:
    """Return who fits the *left* bytes, each in its turn, and who does not."""
    least = min([each.size_bytes for each in ordered])
    taken, passed = list[W](), list[W]()
    for number, each in enumerate(ordered):
        if left < least:
            passed.extend(ordered[number:])
            break
        if each.size_bytes <= left:
            taken.append(each)
            left -= each.size_bytes
        else:
            passed.append(each)
    return taken, passed


def plan(candidates: Iterable[W], *, budget: int) -> HydrationPlan[W]:
    """Take core entries newest first, then the others newest first, within *budget* bytes.

    One that does not fit what is left is passed over, never cut. Of several under one key only
    the nearest is considered: the run's, then the agent's, then the workspace's.
    """
    newest = sorted(candidates, key=_SEQ, reverse=True)
    shadowed: list[W] = []
    if len(set(map(_KEY, newest))) < len(newest):
        nearest = _nearest(newest)
        shadowed = [each for each in newest if nearest[each.key] is not each]
        newest = [each for each in newest if nearest[each.key] is each]
    core = [each for each in newest if each.category == CORE]
    others = [each for each in newest if each.category != CORE]
    return HydrationPlan(ordered=(*core, *others), shadowed=tuple(shadowed), budget=budget)


def _nearest(candidates: Iterable[W]) -> dict[str, W]:
    nearest: dict[str, W] = {}
    for each in candidates:
        other = nearest.setdefault(each.key, each)
        if _NEARER[each.scope] < _NEARER[other.scope]:
            nearest[each.key] = each
    return nearest


def digest(chosen: Iterable[Weighable]) -> str:
    """Return the sha256 over the ordered scope, key and seq of what was chosen."""
    told = [f"{each.scope}\0{each.key}\0{each.seq}\n" for each in chosen]
    return sha256("".join(told).encode()).hexdigest()


def _reason(size_bytes: int, budget: int) -> Literal["too_big", "over_budget"]:
    return "too_big" if size_bytes > budget else "over_budget"


def _shadowed(each: Weighable) -> OmittedEntry:
    return OmittedEntry(each.key, each.category, each.scope, each.size_bytes, each.seq, "shadowed")
