"""Counters, gauges and histograms in memory, rendered as text for Prometheus.

Each sample with known labels exists from the start, at 0, so that a first event is an increase.
"""

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import ClassVar, TypeVar

WORK_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Bounds of a histogram of work that takes up to seconds."""

Values = tuple[str, ...]
"""The values of a metric's labels, in their order."""


class Metric:
    """A metric with one sample for each combination of its labels' values."""

    kind: ClassVar[str]

    def __init__(self, name: str, text: str, labels: Mapping[str, Iterable[str]]) -> None:
        self.name, self.text, self._labels = name, text, tuple(labels)
        self._known = tuple(itertools.product(*labels.values()))
        self._lock = Lock()

    def samples(self) -> Iterator[tuple[str, float]]:
        """Yield each sample's name with its labels, and its number."""
        raise NotImplementedError

    def lines(self, prefix: str) -> Iterator[str]:
        """Yield the lines of text; *prefix* is put before each name."""
        yield f"# HELP {prefix}{self.name} {self.text}"
        yield f"# TYPE {prefix}{self.name} {self.kind}"
        for name, number in self.samples():
            yield f"{prefix}{name} {_shown(number)}"

    def _sample(self, values: Values, *, suffix: str = "", **more: object) -> str:
        labels = {**dict(zip(self._labels, values, strict=True)), **more}
        shown = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
        return f"{self.name}{suffix}{{{shown}}}" if shown else f"{self.name}{suffix}"


class Counter(Metric):
    """A number that only rises."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Mapping[str, Iterable[str]]) -> None:
        super().__init__(name, text, labels)
        self._numbers: dict[Values, float] = dict.fromkeys(self._known, 0)
        self._ticks: dict[Values, itertools.count[int]] = {}

    def begin(self, combinations: Iterable[Values]) -> "Counter":
        """Show each of *combinations* from now on, at 0."""
        self._numbers.update(dict.fromkeys(combinations, 0))
        return self

    def add(self, *values: str, by: float = 1) -> None:
        """Add *by* to the sample with the labels' *values*."""
        with self._lock:
            self._numbers[values] = self._numbers.get(values, 0) + by

    def ticker(self, *values: str) -> Callable[[], int]:
        """Return a function without a lock that adds 1, for calls that take microseconds."""
        return self._ticks.setdefault(values, itertools.count()).__next__

    def value(self, *values: str) -> float:
        """Return the number of the sample with the labels' *values*."""
        # The text of `itertools.count` is the only view of its next number that leaves it as it is.
        ticks = int(repr(self._ticks[values])[6:-1]) if values in self._ticks else 0
        return self._numbers.get(values, 0) + ticks

    def numbers(self) -> dict[Values, float]:
        """Return the numbers by the labels' values, sorted."""
        with self._lock:
            known = sorted({*self._numbers, *self._ticks})
        return {values: self.value(*values) for values in known}

    def samples(self) -> Iterator[tuple[str, float]]:
        """Yield each sample, sorted by the labels' values."""
        yield from ((self._sample(values), number) for values, number in self.numbers().items())


Increment = tuple[Counter, Values, int]
"""A counter, the values of its labels, and what to add."""


def add_all(increments: Iterable[Increment]) -> None:
    """Add each of *increments* to its counter."""
    for counter, values, by in increments:
        counter.add(*values, by=by)


class Gauge(Counter):
    """A number that rises and falls."""

    kind = "gauge"

    def set(self, number: float, *values: str) -> None:
        """Set the sample with the labels' *values* to *number*."""
        with self._lock:
            self._numbers[values] = number


class Histogram(Metric):
    """The number of values by upper bound, and their sum."""

    kind = "histogram"

    def __init__(
        self, name: str, text: str, labels: Mapping[str, Iterable[str]], bounds: Sequence[float]
    ) -> None:
        super().__init__(name, text, labels)
        self._bounds = bounds
        self._counts = {values: [0] * (len(bounds) + 1) for values in self._known}
        self._sums = dict.fromkeys(self._known, 0.0)

    def observe(self, number: float, *values: str) -> None:
        """Count *number* in the sample with the labels' *values*."""
        with self._lock:
            counts = self._counts.setdefault(values, [0] * (len(self._bounds) + 1))
            counts[bisect_left(self._bounds, number)] += 1
            self._sums[values] = self._sums.get(values, 0.0) + number

    def samples(self) -> Iterator[tuple[str, float]]:
        """Yield buckets, sum and count for each combination of the labels' values."""
        with self._lock:
            taken = [
                (values, list(counts), self._sums[values])
                for values, counts in self._counts.items()
            ]
        for values, counts, total in taken:
            so_far = 0
            for bound, count in zip((*self._bounds, "+Inf"), counts, strict=True):
                so_far += count
                yield self._sample(values, suffix="_bucket", le=bound), so_far
            yield self._sample(values, suffix="_sum"), total
            yield self._sample(values, suffix="_count"), so_far


M = TypeVar("M", bound=Metric)


class MetricRegistry:
    """Metrics by name, in the order of their declaration.

    The labels of a new metric are keywords; each value is what the label may be, or () if that is
    not known from the start.
    """

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str, text: str, **labels: Iterable[str]) -> Counter:
        """Declare a counter."""
        return self._add(Counter(name, text, labels))

    def gauge(self, name: str, text: str, **labels: Iterable[str]) -> Gauge:
        """Declare a gauge."""
        return self._add(Gauge(name, text, labels))

    def histogram(
        self, name: str, text: str, bounds: Sequence[float], **labels: Iterable[str]
    ) -> Histogram:
        """Declare a histogram with buckets up to each of *bounds*."""
        return self._add(Histogram(name, text, labels, bounds))

    def lines(self, prefix: str) -> Iterator[str]:
        """Yield the lines of text; *prefix* is put before each name."""
        for metric in tuple(self._metrics.values()):
            yield from metric.lines(prefix)

    def flat(self) -> dict[str, float]:
        """Return the numbers by sample name."""
        return dict(
            itertools.chain.from_iterable(each.samples() for each in self._metrics.values())
        )

    def _add(self, metric: M) -> M:
        self._metrics[metric.name] = metric
        return metric


REGISTRY = MetricRegistry()
"""The metrics of this process; each part of the package declares its own."""


def flat_lines(prefix: str, numbers: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines of *numbers* by sample name; *prefix* is put before each name."""
    typed: set[str] = set()
    histograms = {name.partition("_bucket{")[0] for name in numbers if "_bucket{" in name}
    for name, number in numbers.items():
        family = name.partition("{")[0]
        for suffix in ("_bucket", "_sum", "_count"):
            if family.removesuffix(suffix) in histograms:
                family = family.removesuffix(suffix)
        if family not in typed:
            typed.add(family)
            kind = "counter" if family.endswith("_total") else "gauge"
            yield f"# TYPE {prefix}{family} {'histogram' if family in histograms else kind}"
        yield f"{prefix}{name} {_shown(number)}"


def _shown(number: float) -> str:
    return f"{number:.6f}" if number % 1 else f"{int(number)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
