"""What a step leaves in the run's memory: its result, or the mark that it failed."""

from typing import Any, Final

from holdfast.memories.run import keys
from holdfast.memories.run.entry import DESCRIPTION_CHARS, TITLE_CHARS
from holdfast.memories.run.memory import RunMemory
from holdfast.runtime.events import StepError
from holdfast.runtime.inference.messages import whole
from holdfast.runtime.plans.plan import Step, Task

TITLE: Final = 80
FAILED: Final = 60
"""Characters of a step's instructions in the title of what it leaves."""


def leave_result(memory: RunMemory, task: Task, step: Step, result: Any, *, finish: bool) -> None:
    """Keep *result* as that of *step*, and of *task* where the step is its *finish* step."""
    memory.set(
        keys.step(step.id),
        result,
        source=step.id,
        title=_first_line(step, TITLE),
        description=None,
    )
    if finish:
        leave_task_result(memory, task, result)


def leave_task_result(memory: RunMemory, task: Task, result: Any) -> None:
    """Keep *result* as that of *task*."""
    memory.set(
        keys.task(task.id),
        result,
        source=task.id,
        title=_short(" ".join(task.title.split()), TITLE_CHARS),
        description=task.description and _short(task.description, DESCRIPTION_CHARS),
    )


def leave_failure(memory: RunMemory, step: Step, error: StepError) -> None:
    """Keep that *step* failed with *error*, marked as a failure."""
    memory.set(
        keys.step(step.id),
        {"error": whole(error.message)},
        source=step.id,
        title=f"Failed: {_first_line(step, FAILED)}",
        description=None,
        failed=True,
    )


def _first_line(step: Step, most: int) -> str:
    lines = whole(step.instructions).strip().splitlines()
    return " ".join(lines[0].split())[:most] if lines else step.id


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
