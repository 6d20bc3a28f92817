"""What the engine counts about itself; many threads write."""

from threading import Lock
from typing import get_args

from holdfast.engines.metrics import SIZES, WRITE_SECONDS, Histogram
from holdfast.engines.postgres.faults import Again


class EngineCounters:
    """Numbers for `status()`, and how many statements and round trips were made."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.outcomes = {"ok": 0, "error": 0, "unknown": 0}
        self.retries: dict[Again, int] = dict.fromkeys(get_args(Again), 0)
        self.statements = self.round_trips = self.reconnects = 0
        self.lag = 0.0
        self._sizes = Histogram(SIZES)
        self._waits = Histogram(WRITE_SECONDS)
        self._commits = Histogram(WRITE_SECONDS)

    def made(self, statements: int, round_trips: int) -> None:
        """Count *statements* of a memory's, and the round trips they took."""
        with self._lock:
            self.statements += statements
            self.round_trips += round_trips

    def retried(self, why: Again) -> None:
        """Count one more try, because of *why*."""
        with self._lock:
            self.retries[why] += 1

    def ended(self, outcome: str) -> None:
        """Count one write that ended as *outcome*."""
        with self._lock:
            self.outcomes[outcome] += 1

    def waited(self, seconds: float) -> None:
        """Count a write that waited *seconds* for a connection."""
        with self._lock:
            self._waits.observe(seconds)

    def committed(self, seconds: float) -> None:
        """Count a commit that took *seconds*; each is a group of one."""
        with self._lock:
            self._commits.observe(seconds)
            self._sizes.observe(1)

    def reconnected(self) -> None:
        """Count a connection made after one was lost."""
        with self._lock:
            self.reconnects += 1

    def flat(self) -> dict[str, float]:
        """Return the numbers by their names."""
        with self._lock:
            commits = self._commits.flat("commit_seconds")
            return {
                **{f'writes_total{{outcome="{name}"}}': n for name, n in self.outcomes.items()},
                "groups_total": commits["commit_seconds_count"],
                **self._sizes.flat("group_size"),
                **self._waits.flat("write_wait_seconds"),
                **commits,
                **{f'retries_total{{reason="{name}"}}': n for name, n in self.retries.items()},
                "unknown_outcomes_total": self.outcomes["unknown"],
                "reconnects_total": self.reconnects,
                "feed_lag_seconds": self.lag,
            }
