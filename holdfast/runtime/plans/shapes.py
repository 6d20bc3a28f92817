"""What a plan is made of: steps, and tasks of steps.

What an author writes are the fields; what happened to a step or task is set on it by executors,
is no part of its JSON, and does not count when two are compared.
"""

from dataclasses import dataclass, field
from typing import Literal

from holdfast.runtime.events import StepError
from holdfast.runtime.plans.reading import read, written
from holdfast.tools.base import Schema

State = Literal["pending", "running", "completed", "failed", "blocked", "cancelled"]
"""How far a step or a task is; the last four are final."""

Mode = Literal["discover", "process", "aggregate"]
"""What a step does with a list: finds it, works on each of its items, or brings them together."""


@dataclass(kw_only=True)
class Progress:
    """What happened to a step or a task: set by the executor that runs it, times in ms."""

    state: State = field(default="pending", init=False, compare=False)
    error: StepError | None = field(default=None, init=False, compare=False)
    blocked_by: list[str] = field(default_factory=list[str], init=False, compare=False)
    started_at: int | None = field(default=None, init=False, compare=False)
    ended_at: int | None = field(default=None, init=False, compare=False)

    @property
    def completed(self) -> bool:
        """Whether it ended well."""
        return self.state == "completed"

    @property
    def failed(self) -> bool:
        """Whether it ran and ended in failure."""
        return self.state == "failed"

    @property
    def settled(self) -> bool:
        """Whether its state is final."""
        return self.state not in ("pending", "running")

    def reset(self) -> None:
        """Make it pending, as before it was run."""
        self.state, self.error, self.blocked_by = "pending", None, []
        self.started_at = self.ended_at = None

    def begin(self, at: int) -> None:
        """Mark it as running since *at*, unless it is already."""
        if self.state != "running":
            self.state, self.started_at = "running", at

    def end(self, state: State, at: int, error: StepError | None = None) -> None:
        """Mark it as ended at *at* in *state*."""
        self.state, self.error, self.ended_at = state, error, at


@dataclass(kw_only=True)
class Step(Progress):
    """One piece of work for one agent, with one result.

    >>> Step(id="find", instructions="List the sources.").state
    'pending'
    """

    id: str
    instructions: str
    depends_on: list[str] = field(default_factory=list[str])
    output_schema: Schema | str | None = None
    tools: list[str] | None = None
    mode: Mode | None = None
    per_item_instructions: str | None = None
    per_item_schema: Schema | str | None = None
    max_items: int = 200
    on_item_error: Literal["fail", "skip"] = "fail"
    max_iterations: int | None = None
    token_budget: int | None = None
    timeout_s: float | None = None
    retries: int = 0

    def to_json(self) -> str:
        """Return what its author wrote, as JSON."""
        return written(self)

    @staticmethod
    def from_json(text: str) -> "Step":
        """Return the step in *text*; InvalidPlan names every key that is not known."""
        return read(Step, text, "step")


@dataclass(kw_only=True)
class Task(Progress):
    """Steps that together give one result, that of the last one unless another is named."""

    id: str
    title: str
    steps: list[Step]
    description: str | None = None
    depends_on: list[str] = field(default_factory=list[str])

    def to_json(self) -> str:
        """Return what its author wrote, as JSON."""
        return written(self)

    @staticmethod
    def from_json(text: str) -> "Task":
        """Return the task in *text*; InvalidPlan names every key that is not known."""
        return read(Task, text, "task")
