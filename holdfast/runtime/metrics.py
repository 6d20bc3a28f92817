"""Metrics of the runtime."""

from collections import Counter
from collections.abc import Iterator
from threading import Lock
from typing import Final

Sample = tuple[str, tuple[tuple[str, str], ...], float]
"""Name, labels and value of one line."""

SECONDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
ITERATIONS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 30.0)
"""Upper bounds of histogram buckets: seconds of steps, and requests of steps."""

STEPS: Final = "steps_total"
TOKENS: Final = "tokens_total"
TURNS: Final = "team_turns_total"
WAITING: Final = "slots_waiting"
STEP_SECONDS: Final = "step_seconds"
STEP_ITERATIONS: Final = "step_iterations"

TOLD: Final[dict[str, tuple[str, str]]] = {
    STEPS: ("counter", "Steps that ended, by how and why."),
    STEP_SECONDS: ("histogram", "Seconds a step took, its tries together."),
    STEP_ITERATIONS: ("histogram", "Model requests a step made."),
    TOKENS: ("counter", "Tokens that models reported."),
    WAITING: ("gauge", "Model loops that wait for a slot."),
    TURNS: ("counter", "Turns of agents in teams."),
}
"""Kind and help text of each metric."""

FAILURES: Final = (
    "max_iterations",
    "token_budget",
    "no_answer",
    "model_error",
    "timeout",
    "rejected",
    "memory",
    "hook",
    "disabled",
    "not_a_list",
    "too_many_items",
    "items",
    "internal",
)
"""The reasons why a step fails."""

ENDS: Final = (("completed", ""), ("cancelled", ""), *(("failed", each) for each in FAILURES))
"""States in which steps end, with the reason."""

_BUCKETS: Final = {STEP_SECONDS: SECONDS, STEP_ITERATIONS: ITERATIONS}


class RuntimeHistogram:
    """A histogram: cumulative counts by bucket, sum and count."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._under = dict.fromkeys(bounds, 0)
        self.sum, self.count = 0.0, 0

    def add(self, value: float) -> None:
        """Add one *value*."""
        self.sum, self.count = self.sum + value, self.count + 1
        for bound in self._under:
            if value <= bound:
                self._under[bound] += 1

    def samples(self, name: str) -> Iterator[Sample]:
        """Yield the lines of the histogram *name*."""
        for bound, count in self._under.items():
            yield f"{name}_bucket", (("le", f"{bound:g}"),), count
        yield f"{name}_bucket", (("le", "+Inf"),), self.count
        yield f"{name}_sum", (), self.sum
        yield f"{name}_count", (), self.count


class RuntimeCounters:
    """The metrics of this process. Threads may count at once."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        # Known series exist from the start with 0, so that a first step shows as an increase.
        for state, reason in ENDS:
            self._counts[STEPS, (("state", state), ("reason", reason))] = 0
        for direction in ("input", "output"):
            self._counts[TOKENS, (("direction", direction),)] = 0
        self._histograms = {name: RuntimeHistogram(bounds) for name, bounds in _BUCKETS.items()}
        self._waiting = 0
        self._lock = Lock()

    def step_ended(
        self, state: str, reason: str, *, seconds: float, iterations: int | None
    ) -> None:
        """Count a step that ended in *state*, for *reason* if it failed.

        *iterations* is None for a step that fans out: its items make the requests and are counted.
        """
        with self._lock:
            self._counts[STEPS, (("state", state), ("reason", reason))] += 1
            self._histograms[STEP_SECONDS].add(seconds)
            if iterations is not None:
                self._histograms[STEP_ITERATIONS].add(iterations)

    def spent(self, *, received: int, sent: int) -> None:
        """Count the tokens sent to a model and received from it."""
        with self._lock:
            self._counts[TOKENS, (("direction", "input"),)] += received
            self._counts[TOKENS, (("direction", "output"),)] += sent

    def turn_taken(self, agent: str) -> None:
        """Count a turn of *agent* in a team."""
        with self._lock:
            self._counts[TURNS, (("agent", agent),)] += 1

    def waits(self, change: int) -> None:
        """Add *change* to the number of model loops that wait for a slot."""
        with self._lock:
            self._waiting += change

    def taken(self) -> Iterator[Sample]:
        """Yield all metrics."""
        with self._lock:
            counts, waiting = dict(self._counts), self._waiting
            lines = [
                each
                for name, histogram in self._histograms.items()
                for each in histogram.samples(name)
            ]
        for (name, labels), count in sorted(counts.items()):
            yield name, labels, count
        yield WAITING, (), waiting
        yield from lines


counts = RuntimeCounters()
"""The metrics of the runtime in this process."""
