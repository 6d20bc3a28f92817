"""What a step leaves in the run's memory: its result, or the mark that it failed."""

from typing import Any, Final

from holdfast.memories.run import keys
from holdfast.memories.run.entry import DESCRIPTION_CHARS, TITLE_CHARS
from holdfast.runtime.calling.from_model import whole
from holdfast.runtime.events import StepError
from holdfast.runtime.steps.assignment import Assignment

TITLE: Final = 80
FAILED: Final = 60
"""Characters of a step's instructions in the title of what it leaves."""


def leave_result(assignment: Assignment, result: Any, *, finishes: bool) -> None:
    """Keep *result* as the step's, and as its task's where the step *finishes* that."""
    memory, task = assignment.context.memory, assignment.task
    memory.set(
        keys.step(assignment.step.id),
        result,
        source=assignment.step.id,
        title=_first_line(assignment, TITLE),
        description=None,
    )
    if finishes:
        memory.set(
            keys.task(task.id),
            result,
            source=task.id,
            title=_short(" ".join(task.title.split()), TITLE_CHARS),
            description=task.description and _short(task.description, DESCRIPTION_CHARS),
        )


def leave_failure(assignment: Assignment, error: StepError) -> None:
    """Keep that the step failed with *error*, marked as a failure."""
    assignment.context.memory.set(
        keys.step(assignment.step.id),
        {"error": whole(error.message)},
        source=assignment.step.id,
        title=f"Failed: {_first_line(assignment, FAILED)}",
        description=None,
        failed=True,
    )


def _first_line(assignment: Assignment, most: int) -> str:
    lines = whole(assignment.step.instructions).strip().splitlines()
    return " ".join(lines[0].split())[:most] if lines else assignment.step.id


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
