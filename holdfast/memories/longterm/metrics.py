"""Metrics of long-term memory."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from threading import Lock
from typing import Final, get_args

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.memories.longterm.records import Mode, Outcome


class CollectionSize(Struct, frozen=True, kw_only=True):
    """How many items, superseded ones among them, and how many turns there are."""

    items: int
    turns: int


class JobCount(Struct, frozen=True, kw_only=True):
    """How many jobs of one kind are in one state."""

    kind: str
    state: str
    jobs: int


def held(engine: Engine) -> CollectionSize:
    """Return what is held of every user within *engine*'s scope."""
    sql = engine.queries("holdfast.memories.longterm")
    return engine.one(CollectionSize, sql.held_by_all)


def jobs(engine: Engine) -> list[JobCount]:
    """Return how many jobs wait, run and failed within *engine*'s scope."""
    sql = engine.queries("holdfast.memories.longterm")
    return engine.all(JobCount, sql.jobs_of_all)


COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "recall_empty_total": ("Recalls that found nothing.", ()),
    "outcomes_total": ("Results of remember, by outcome.", ("outcome",)),
    "secrets_total": ("Texts that held a secret, by its kind.", ("kind", "action")),
    "evicted_total": ("Items and turns evicted for new ones.", ()),
}
"""What each counter says, and its labels."""

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds up to which durations are counted together."""

TIMINGS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "recall_seconds": ("From the query to what was recalled.", ("mode",)),
    "extraction_seconds": ("From the request to the model's answer.", ()),
    "embedding_seconds": ("From the texts to their vectors.", ()),
}


class Timing:
    """How often something took how long."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one that took *seconds*."""
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


class LongTermCounters:
    """The numbers of this process, which only rise."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._timings: dict[tuple[str, str], Timing] = {}
        self._lock = Lock()
        for mode in get_args(Mode):
            self._timings["recall_seconds", mode] = Timing()
        self._timings["extraction_seconds", ""] = Timing()
        self._timings["embedding_seconds", ""] = Timing()
        for outcome in get_args(Outcome):
            self._counts["outcomes_total", (outcome,)] = 0
        for name in ("recall_empty_total", "evicted_total"):
            self._counts[name, ()] = 0

    def add(self, name: str, *labels: str, by: int = 1) -> None:
        """Count *by* more of *name* under *labels*."""
        with self._lock:
            self._counts[name, labels] += by

    def took(self, name: str, seconds: float, label: str = "") -> None:
        """Count one of *name* that took *seconds*."""
        with self._lock:
            self._timings[name, label].add(seconds)

    def taken(self) -> Iterator[tuple[str, tuple[str, ...], int]]:
        """Give every counter with its labels' values and its number so far."""
        with self._lock:
            counts = dict(self._counts)
        yield from ((name, labels, count) for (name, labels), count in counts.items())

    def timings(self) -> Iterator[tuple[str, str, list[int], float]]:
        """Give every duration: its label, how many fell into each bucket, seconds in all."""
        with self._lock:
            each = {key: (list(t.buckets), t.seconds) for key, t in self._timings.items()}
        yield from ((name, label, *told) for (name, label), told in each.items())


counts = LongTermCounters()
"""What this process did."""
