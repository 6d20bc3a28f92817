"""Metrics of run memories in this process, and of the records of runs."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import asdict

from holdfast.doors.http.counters import Counter, flat_lines
from holdfast.engines.base import Engine
from holdfast.memories.run.entry import COUNTERS, counts
from holdfast.memories.run.records.read import held

_RUN_PREFIX: Final = "holdfast_run_"


def run_numbers(engine: Engine, now: int) -> dict[str, float]:
    """Return the numbers of the stored runs within *engine*'s scope at *now*."""
    return asdict(held(engine, now))


def run_lines(numbers: dict[str, float]) -> Iterator[str]:
    """Yield the lines of the counters of this process, and of *numbers*."""
    taken: dict[str, dict[tuple[str, ...], int]] = {}
    for name, value, count in counts.taken():
        taken.setdefault(name, {})[(value,) if value else ()] = count
    for name, (says, label, _) in COUNTERS.items():
        counter = Counter(f"{_RUN_PREFIX}{name}", says, *((label,) if label else ()))
        counter.take(taken[name])
        yield from counter.lines()
    yield from flat_lines(_RUN_PREFIX, numbers)
