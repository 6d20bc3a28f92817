"""Counters and histograms in memory, rendered as text for Prometheus.

Each sample with known labels exists from the start, at 0, so that a first event is an increase.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from threading import Lock

REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0)


class Counter:
    """A counter with one value for each combination of *labels*."""

    def __init__(self, name: str, says: str, *labels: str) -> None:
        self._name, self._says, self._labels = name, says, labels
        self._counts: dict[tuple[str, ...], int] = {}
        self._lock = Lock()

    def begin(self, combinations: Iterable[tuple[str, ...]]) -> "Counter":
        """Show each of *combinations* from now on, at 0."""
        self._counts.update((each, 0) for each in combinations)
        return self

    def add(self, *values: str) -> None:
        """Count one more for the labels' *values*."""
        with self._lock:
            self._counts[values] = self._counts.get(values, 0) + 1

    def take(self, counts: Mapping[tuple[str, ...], int]) -> None:
        """Set the values to *counts*, which are counted elsewhere."""
        with self._lock:
            self._counts.update(counts)

    def lines(self) -> Iterator[str]:
        """Yield its lines of text."""
        yield f"# HELP {self._name} {self._says}"
        yield f"# TYPE {self._name} counter"
        for values, count in sorted(self._counts.copy().items()):
            yield f"{self._name}{_braced(self._labels, values)} {count}"


class Timings:
    """A histogram of durations in seconds, by *label*."""

    def __init__(self, name: str, says: str, label: str, values: Iterable[str]) -> None:
        self._name, self._says, self._label = name, says, label
        self._counts = {each: [0] * (len(REQUEST_SECONDS) + 1) for each in values}
        self._sums = dict.fromkeys(self._counts, 0.0)

    def observe(self, value: str, seconds: float) -> None:
        """Count *seconds* for the label's *value*."""
        self._counts[value][bisect_left(REQUEST_SECONDS, seconds)] += 1
        self._sums[value] += seconds

    def lines(self) -> Iterator[str]:
        """Yield its lines of text."""
        yield f"# HELP {self._name} {self._says}"
        yield f"# TYPE {self._name} histogram"
        for value, counts in self._counts.items():
            so_far = list(accumulate(counts))
            for bound, count in zip((*REQUEST_SECONDS, "+Inf"), so_far, strict=True):
                labels = _braced((self._label, "le"), (value, str(bound)))
                yield f"{self._name}_bucket{labels} {count}"
            labels = _braced((self._label,), (value,))
            yield f"{self._name}_sum{labels} {self._sums[value]:.6f}"
            yield f"{self._name}_count{labels} {so_far[-1]}"


def _braced(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    rendered = ",".join(f'{name}="{value}"' for name, value in zip(labels, values, strict=True))
    return f"{{{rendered}}}" if rendered else ""


def flat_lines(prefix: str, numbers: dict[str, float]) -> Iterator[str]:
    """Yield the lines of *numbers* by sample name; *prefix* is put before each name."""
    typed: set[str] = set()
    histograms = {name.partition("_bucket{")[0] for name in numbers if "_bucket{" in name}
    for name, number in numbers.items():
        family = name.partition("{")[0]
        for ending in ("_bucket", "_sum", "_count"):
            if family.removesuffix(ending) in histograms:
                family = family.removesuffix(ending)
        if family not in typed:
            typed.add(family)
            counts = "counter" if family.endswith("_total") else "gauge"
            yield f"# TYPE {prefix}{family} {'histogram' if family in histograms else counts}"
        yield f"{prefix}{name} {number:g}" if number % 1 else f"{prefix}{name} {int(number)}"
