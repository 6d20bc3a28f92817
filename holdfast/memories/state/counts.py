"""What threads took in, in this process, as `/metrics` counts it; no label names a thing."""

from collections import Counter
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Final

from holdfast.memories.state.thread import KINDS

Count = tuple[str, tuple[str, ...], int]
"""What is counted, its labels' values, and how often."""

THREAD_TURNS: Final = "thread_turns_total"
OUTCOMES: Final = ("stored", "duplicate", "differs")

COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    THREAD_TURNS: ("Turns given to threads.", ("kind", "outcome")),
}
"""What each counter says, and its labels."""


class StateCounters:
    """The numbers of this process, which only rise."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()

    def add(self, kinds: Iterable[str], outcome: str) -> None:
        """Count one turn more of each of *kinds*, of which this became."""
        with self._lock:
            for kind in kinds:
                self._counts[kind, outcome] += 1

    def taken(self) -> Iterator[Count]:
        """Give every counter there is with its number so far."""
        with self._lock:
            counts = dict(self._counts)
        for kind in KINDS:
            for outcome in OUTCOMES:
                yield THREAD_TURNS, (kind, outcome), counts.get((kind, outcome), 0)


counts = StateCounters()
"""What this process took in."""
