"""What run memories did in this process, as `/metrics` counts it; no label names a thing."""

import itertools
from collections.abc import Callable, Iterator
from typing import Final, cast

COUNTED_KINDS: Final = ("task_result", "step_result", "input", "shared")
"""What each written entry is one of."""

REASONS: Final = ("invalid_input", "limit_exceeded", "precondition_failed")
"""Why a write was refused."""

COUNTERS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "writes_total": ("Entries written to run memories.", "kind", COUNTED_KINDS),
    "reads_total": ("Entries that models read.", "", ("",)),
    "refused_total": ("Writes refused.", "reason", REASONS),
    "listener_errors_total": ("Listeners that failed.", "", ("",)),
    "records_evicted_total": ("Records of ended runs evicted for newer ones.", "", ("",)),
}
"""What each counter says, its label if it has one, and the values that has."""


class Ticks:
    """One number that only rises, without a lock: a write is over in microseconds."""

    __slots__ = ("_ticks", "tick")

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self.tick: Callable[[], int] = self._ticks.__next__

    @property
    def value(self) -> int:
        """How often it was ticked."""
        # A count tells what comes next in the form that it is copied by.
        return cast("tuple[int]", self._ticks.__reduce__()[1])[0]


class RunCounters:
    """The numbers of this process, which only rise. Threads may count at once.

    `writes` has what counts one entry written, by its kind.
    """

    def __init__(self) -> None:
        self._ticks = {
            (name, value): Ticks() for name, (_, _, values) in COUNTERS.items() for value in values
        }
        self.writes = {kind: self._ticks["writes_total", kind].tick for kind in COUNTED_KINDS}

    def wrote(self, kind: str) -> None:
        """Count one entry of *kind* that was written."""
        self.writes[kind]()

    def read(self) -> None:
        """Count one entry that a model read."""
        self._ticks["reads_total", ""].tick()

    def refused(self, reason: str) -> None:
        """Count one write that was refused for *reason*."""
        self._ticks["refused_total", reason].tick()

    def listener_failed(self) -> None:
        """Count one listener that failed."""
        self._ticks["listener_errors_total", ""].tick()

    def evicted(self, records: int) -> None:
        """Count *records* of runs that made room."""
        for _ in range(records):
            self._ticks["records_evicted_total", ""].tick()

    def taken(self) -> Iterator[tuple[str, str, int]]:
        """Give every counter there is, its label's value or "", and its number so far."""
        yield from ((name, value, ticks.value) for (name, value), ticks in self._ticks.items())


counts = RunCounters()
"""What this process did."""
