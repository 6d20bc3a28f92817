"""What a team's tasks came to, in the run's memory: under `task:` and the id, once it is done."""

from collections.abc import Callable

from holdfast.ground.errors import HoldfastError
from holdfast.memories.run import keys
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, LogUpdate, TeamUpdate
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import Off
from holdfast.runtime.team.task import BoardTask

DESCRIPTION: int = 4_000
"""Characters of a description that an entry of run memory may have."""


def mirrored(board: TaskBoard, context: Context, tell: Callable[[ExecutionEvent], None]) -> Off:
    """Set what is done on *board*, now and from now on, in the memory of *context*.

    Failed tasks are not in it. One that the memory will not take is told as an error.
    """

    def hear(event: TeamUpdate) -> None:
        if event.event != "task_completed":
            return
        if task := board.get(event.task_id or ""):
            keep(task)

    def keep(task: BoardTask) -> None:
        try:
            context.memory.set(
                keys.task(task.id),
                task.result,
                source=task.id,
                title=task.title,
                description=_shortened(task.description) or None,
            )
        except HoldfastError as error:
            why = f"the result of {task.id} is not in memory: {error}"
            tell(LogUpdate(severity="error", content=why, task_id=task.id))

    off = board.on_event(hear)
    for task in board.list("done"):
        if not context.memory.has(keys.task(task.id)):
            keep(task)
    return off


def _shortened(text: str) -> str:
    return text if len(text) <= DESCRIPTION else f"{text[: DESCRIPTION - 1]}…"
