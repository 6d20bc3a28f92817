"""Metrics of the threads of networks, in this process."""

from collections.abc import Iterator
from typing import Final

from holdfast.doors.http.counters import Counter
from holdfast.memories.state.thread_store import COUNTERS, counts

_STATE_PREFIX: Final = "holdfast_network_"


def network_lines() -> Iterator[str]:
    """Yield the lines of the counters of this process."""
    taken: dict[str, dict[tuple[str, ...], int]] = {}
    for name, labels, count in counts.taken():
        taken.setdefault(name, {})[labels] = count
    for name, (says, labels) in COUNTERS.items():
        counter = Counter(f"{_STATE_PREFIX}{name}", says, *labels)
        counter.take(taken.get(name, {}))
        yield from counter.lines()
