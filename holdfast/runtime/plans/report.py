"""What came of a plan, task by task: for people as text, for programs as JSON."""

import msgspec
from msgspec import Struct

from holdfast.runtime.events import StepError
from holdfast.runtime.plans.plan import State, Task


class TaskReport(Struct, frozen=True, kw_only=True):
    """What came of one task; what was restored from a checkpoint has cost nothing."""

    id: str
    title: str
    state: State
    cause: str | None
    failing_steps: tuple[str, ...]
    blocked_by: tuple[str, ...]
    iterations: int
    tokens: int
    seconds: float


class Report(Struct, frozen=True, kw_only=True):
    """What came of a plan; `checkpoint_failed` is why its last failed checkpoint did."""

    title: str
    run_id: str
    tasks: tuple[TaskReport, ...]
    checkpoint_failed: str | None = None

    def to_json(self) -> str:
        """Return it as one JSON object."""
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        lines = [f"{self.title} ({self.run_id})", *map(_line, self.tasks)]
        if self.checkpoint_failed:
            lines.append(f"not checkpointed: {self.checkpoint_failed}")
        return "\n".join(lines)


def reported(task: Task, *, iterations: int, tokens: int) -> TaskReport:
    """Return what came of *task*, which took so many model requests and tokens."""
    began, ended = task.started_at, task.ended_at
    seconds = 0.0 if began is None or ended is None else (ended - began) / 1000
    return TaskReport(
        id=task.id,
        title=task.title,
        state=task.state,
        cause=_cause(task.error, task.blocked_by),
        failing_steps=tuple(step.id for step in task.steps if step.failed),
        blocked_by=tuple(task.blocked_by),
        iterations=iterations,
        tokens=tokens,
        seconds=seconds,
    )


def _cause(error: StepError | None, blocked_by: list[str]) -> str | None:
    if error is not None:
        return error.message
    return f"needs {', '.join(blocked_by)}" if blocked_by else None


def _line(task: TaskReport) -> str:
    cause = f": {task.cause}" if task.cause else ""
    cost = f"{task.iterations} requests, {task.tokens:,} tokens, {task.seconds:.1f} s"
    return f"  {task.id}  {task.state}{cause}  ({cost})"
