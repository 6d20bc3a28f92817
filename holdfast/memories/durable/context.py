"""What durable memory did in this process, as `/metrics` counts it; no label names a thing."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import Final, cast, get_args

from holdfast.memories.durable.records import CODES, LABELS, Outcome
from holdfast.memories.durable.rules import Reason

Count = tuple[str, str, int]
"""What is counted, its label's value or "", and how often."""

RUN_EVENTS: Final = ("opened", "ended", "superseded", "lapsed")

COUNTERS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "stored_total": ("Writes of entries.", "outcome", get_args(Outcome)),
    "refused_total": ("Writes refused.", "code", tuple(sorted(set(CODES.values())))),
    "evicted_total": ("Entries evicted for new ones.", "category", LABELS),
    "expired_total": ("Entries removed because they expired.", "category", LABELS),
    "forgotten_total": ("Entries forgotten.", "", ()),
    "hydrations_total": ("Hydrations.", "", ()),
    "hydrated_entries_total": ("Entries hydrated.", "", ()),
    "hydrated_bytes_total": ("Bytes of entries hydrated.", "", ()),
    "omitted_entries_total": ("Entries that hydrations left out.", "reason", get_args(Reason)),
    "omitted_bytes_total": ("Bytes of entries that hydrations left out.", "", ()),
    "searches_total": ("Lists with a query.", "result", ("hit", "empty")),
    "recalls_total": ("Reads of one entry by key.", "result", ("hit", "miss")),
    "runs_total": ("Runs.", "event", RUN_EVENTS),
}
"""What each counter says, its label if it has one, and the values that has."""


class CounterCell:
    """One number that only rises, without a lock: a read by key is over in microseconds."""

    __slots__ = ("_ticks", "tick")

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self.tick: Callable[[], int] = self._ticks.__next__

    @property
    def value(self) -> int:
        """How often it was ticked."""
        # A count tells what comes next in the form that it is copied by.
        return cast("tuple[int]", self._ticks.__reduce__()[1])[0]


class DurableCounters:
    """The numbers of this process, which only rise.

    `hits` and `misses` are of entries asked for by key.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self.hits, self.misses = CounterCell(), CounterCell()
        self._lock = Lock()

    def add(self, name: str, label: str = "", by: int = 1) -> None:
        """Count *by* more of *name* under *label*."""
        with self._lock:
            self._counts[name, label] += by

    def add_all(self, counts: Iterable[Count]) -> None:
        """Count all of *counts*."""
        with self._lock:
            for name, label, by in counts:
                self._counts[name, label] += by

    def taken(self) -> Iterator[Count]:
        """Give every counter there is with its number so far."""
        with self._lock:
            counts = dict(self._counts)
        counts["recalls_total", "hit"] = self.hits.value
        counts["recalls_total", "miss"] = self.misses.value
        for name, (_, label, values) in COUNTERS.items():
            for value in values if label else ("",):
                yield name, value, counts.get((name, value), 0)


counts = DurableCounters()
"""What this process did."""
