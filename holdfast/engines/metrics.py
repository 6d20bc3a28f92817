"""Engine metrics, flattened to Prometheus samples."""

from bisect import bisect_left
from collections.abc import Sequence

WRITE_SECONDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """Histogram by upper bound; one thread writes, any thread reads."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count *value*."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def flat(self, name: str) -> dict[str, float]:
        """Return buckets, sum and count as samples of *name*."""
        flat: dict[str, float] = {}
        so_far = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            so_far += count
            flat[f'{name}_bucket{{le="{bound}"}}'] = so_far
        flat[f"{name}_sum"] = self._sum
        flat[f"{name}_count"] = so_far
        return flat
