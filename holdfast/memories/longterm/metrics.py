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
    """Number of items, superseded ones included, and of turns."""

    items: int
    turns: int


class JobCount(Struct, frozen=True, kw_only=True):
    """Number of jobs of one kind in one state."""

    kind: str
    state: str
    jobs: int


def held(engine: Engine) -> CollectionSize:
    """Return the numbers of items and turns in *engine*'s scope."""
    sql = engine.queries("holdfast.memories.longterm")
    return engine.one(CollectionSize, sql.held_by_all)


def jobs(engine: Engine) -> list[JobCount]:
    """Return the numbers of jobs by kind and state in *engine*'s scope."""
    sql = engine.queries("holdfast.memories.longterm")
    return engine.all(JobCount, sql.jobs_of_all)


COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "recall_empty_total": ("Recalls that found nothing.", ()),
    "outcomes_total": ("Results of remember, by outcome.", ("outcome",)),
    "secrets_total": ("Texts that held a secret, by its kind.", ("kind", "action")),
    "evicted_total": ("Items and turns evicted for new ones.", ()),
}
"""Help text and labels of each counter."""

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histogram's buckets in seconds."""

TIMINGS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "recall_seconds": ("From the query to what was recalled.", ("mode",)),
    "extraction_seconds": ("From the request to the model's answer.", ()),
    "embedding_seconds": ("From the texts to their vectors.", ()),
}


class Timing:
    """Histogram of durations."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Observe a duration of *seconds*."""
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


class LongTermCounters:
    """Counters and histograms of this process."""

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
        """Add *by* to the counter *name* with *labels*."""
        with self._lock:
            self._counts[name, labels] += by

    def took(self, name: str, seconds: float, label: str = "") -> None:
        """Observe a duration of *seconds* in the histogram *name*."""
        with self._lock:
            self._timings[name, label].add(seconds)

    def taken(self) -> Iterator[tuple[str, tuple[str, ...], int]]:
        """Yield every counter with the values of its labels and its value."""
        with self._lock:
            counts = dict(self._counts)
        yield from ((name, labels, count) for (name, labels), count in counts.items())

    def timings(self) -> Iterator[tuple[str, str, list[int], float]]:
        """Yield every histogram: name, label, counts by bucket, sum in seconds."""
        with self._lock:
            each = {key: (list(t.buckets), t.seconds) for key, t in self._timings.items()}
        yield from ((name, label, *totals) for (name, label), totals in each.items())


counts = LongTermCounters()
"""The metrics of this process."""
