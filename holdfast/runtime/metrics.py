"""Metrics of the runtime."""

from collections import Counter
from collections.abc import Iterator
from threading import Lock
from typing import Final

Sample = tuple[str, tuple[tuple[str, str], ...], float]
"""What is counted, its labels, and how much of it there was."""

SECONDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
ITERATIONS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 30.0)
"""Upper bounds of the buckets of how long steps took, and of how many requests they made."""

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
"""What each number is, and what it says."""

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
"""Why a step fails."""

ENDS: Final = (("completed", ""), ("cancelled", ""), *(("failed", each) for each in FAILURES))
"""How steps end, and why."""

_BUCKETS: Final = {STEP_SECONDS: SECONDS, STEP_ITERATIONS: ITERATIONS}


class RuntimeHistogram:
    """How often a value fell under each bound, their sum and their number."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._under = dict.fromkeys(bounds, 0)
        self.sum, self.count = 0.0, 0

    def add(self, value: float) -> None:
        """Count one *value*."""
        self.sum, self.count = self.sum + value, self.count + 1
        for bound in self._under:
            if value <= bound:
                self._under[bound] += 1

    def samples(self, name: str) -> Iterator[Sample]:
        """Give the lines that tell it as *name*."""
        for bound, count in self._under.items():
            yield f"{name}_bucket", (("le", f"{bound:g}"),), count
        yield f"{name}_bucket", (("le", "+Inf"),), self.count
        yield f"{name}_sum", (), self.sum
        yield f"{name}_count", (), self.count


class RuntimeCounters:
    """The numbers of this process. Threads may count at once."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        # What there will surely be is there from the start, so that a first step is a rise.
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

        *iterations* is None for one whose items make the requests, and are counted for themselves.
        """
        with self._lock:
            self._counts[STEPS, (("state", state), ("reason", reason))] += 1
            self._histograms[STEP_SECONDS].add(seconds)
            if iterations is not None:
                self._histograms[STEP_ITERATIONS].add(iterations)

    def spent(self, *, received: int, sent: int) -> None:
        """Count the tokens that went to a model and came from it."""
        with self._lock:
            self._counts[TOKENS, (("direction", "input"),)] += received
            self._counts[TOKENS, (("direction", "output"),)] += sent

    def turn_taken(self, agent: str) -> None:
        """Count a turn that *agent* took in a team."""
        with self._lock:
            self._counts[TURNS, (("agent", agent),)] += 1

    def waits(self, change: int) -> None:
        """Add *change* to the number of model loops that wait."""
        with self._lock:
            self._waiting += change

    def taken(self) -> Iterator[Sample]:
        """Give every number there is."""
        with self._lock:
            counts, waiting = dict(self._counts), self._waiting
            lines = [each for name, kept in self._histograms.items() for each in kept.samples(name)]
        for (name, labels), count in sorted(counts.items()):
            yield name, labels, count
        yield WAITING, (), waiting
        yield from lines


counts = RuntimeCounters()
"""What this process did."""
