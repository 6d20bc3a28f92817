"""`TeamResult`, and the mirror of a board in run memory."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from holdfast.ground.errors import HoldfastError
from holdfast.memories.run import keys
from holdfast.memories.run.records.event import Reason
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, LogUpdate, TeamMoment, TeamUpdate
from holdfast.runtime.runs.run_events import audience
from holdfast.runtime.team.board import TaskBoard, Tasks, undone
from holdfast.runtime.team.bus import Off
from holdfast.runtime.team.task import HELD, BoardTask, lacking

TeamStatus = Literal[
    "waiting", "completed", "failed", "deadlocked", "stalled", "max_turns", "cancelled"
]


_REASONS: Final[dict[TeamStatus, Reason]] = {
    "failed": "steps",
    "deadlocked": "deadlocked",
    "stalled": "stalled",
    "max_turns": "max_turns",
    "cancelled": "cancelled",
}


def team_reason(status: TeamStatus) -> Reason | None:
    """Return why a team ended as *status*; None if it is completed."""
    return _REASONS.get(status)


class TeamResult(Struct, frozen=True, kw_only=True):
    """The end of a team, and its results.

    `result` is that of the one top-level task that is done; of several a list of `task_id`, `title`
    and `result`, oldest first; None when there is none. `done`, `failed` and `unfinished` are all
    tasks of the board, subtasks too.
    """

    status: TeamStatus
    result: Any
    done: tuple[BoardTask, ...]
    failed: tuple[BoardTask, ...]
    unfinished: tuple[BoardTask, ...]


class Workforce(Struct, frozen=True):
    """An agent and its skills; *out* is the reason why it takes no turns."""

    name: str
    skills: tuple[str, ...]
    out: str | None = None


def result_of(tasks: Sequence[BoardTask], status: TeamStatus) -> TeamResult:
    """Return the result of a team with these *tasks* that ended as *status*."""
    top = [task for task in tasks if task.parent is None and task.status == "done"]
    result: Any = None
    if len(top) == 1:
        result = top[0].result
    elif top:
        result = [{"task_id": task.id, "title": task.title, "result": task.result} for task in top]
    return TeamResult(
        status=status,
        result=result,
        done=tuple(task for task in tasks if task.status == "done"),
        failed=tuple(task for task in tasks if task.status == "failed"),
        unfinished=tuple(task for task in tasks if not task.settled),
    )


def settled_as(tasks: Iterable[BoardTask]) -> TeamStatus:
    """Return the status of a team with all *tasks* settled."""
    failed = any(task.parent is None and task.status == "failed" for task in tasks)
    return "failed" if failed else "completed"


def why_undone(tasks: Tasks, team: Sequence[Workforce]) -> str:
    """Return each unsettled task with the reason, a line each."""
    return "\n".join(
        f"{task.id} ({task.title}): {_why(task, tasks, team)}"
        for task in tasks.values()
        if not task.settled
    )


def _why(task: BoardTask, tasks: Tasks, team: Sequence[Workforce]) -> str:
    parts = [each.id for each in tasks.values() if each.parent == task.id and not each.settled]
    if parts:
        return f"waits for its subtasks {', '.join(parts)}"
    if task.status == "blocked":
        return f"is blocked by {task.claimed_by}: {task.blocked_reason}"
    if task.status in HELD:
        return f"is claimed by {_holder(task, team)}"
    if left := undone(task, tasks):
        return "waits for " + ", ".join(f"{each.id} ({each.status})" for each in left)
    return _unclaimed(task, team)


def _unclaimed(task: BoardTask, team: Sequence[Workforce]) -> str:
    """Return the reason why *task*, which waits for nothing, is unclaimed."""
    able = [each for each in team if not lacking(task.required_skills, each.skills)]
    if here := [each.name for each in able if each.out is None]:
        return f"could be claimed by {', '.join(here)}, and was not"
    if able:
        names = ", ".join(f"{each.name}, who is {each.out}" for each in able)
        return f"could be claimed by {names}"
    return _missing(task, team)


def _holder(task: BoardTask, team: Sequence[Workforce]) -> str:
    known = {each.name: each.out for each in team}
    if task.claimed_by not in known:
        return f"{task.claimed_by}, who is not of this team"
    out = known[task.claimed_by]
    return f"{task.claimed_by}, who is {out}" if out else task.claimed_by


def _missing(task: BoardTask, team: Sequence[Workforce]) -> str:
    held = [skill for each in team for skill in each.skills]
    nobodys = lacking(task.required_skills, held)
    named = ", ".join(f'"{skill}"' for skill in nobodys or task.required_skills)
    skills = "skill" if len(nobodys or task.required_skills) == 1 else "skills"
    return f"needs {skills} {named}, which no agent has" + ("" if nobodys else " together")


class TeamEvents:
    """Emits events of *context* to the audience of where this was made."""

    def __init__(self, context: Context) -> None:
        self._context, self._audience = context, audience.get()

    async def moment(self, moment: TeamMoment, **fields: Any) -> None:
        """Emit a change of the team or of one of its agents.

        `part` and `stop_reason` among *fields* are those of a turn.
        """
        more = {name: fields.pop(name) for name in ("part", "stop_reason") if name in fields}
        await self._context.tell(TeamUpdate(event=moment, **fields), **more)

    async def log(self, severity: Literal["info", "warning", "error"], content: str) -> None:
        """Emit a log line."""
        await self._context.tell(LogUpdate(severity=severity, content=content))

    def soon(self, event: ExecutionEvent, **more: Any) -> None:
        """Emit *event* from any thread, without waiting; its data has *more* fields."""
        self._context.tell_soon(event, to=self._audience, **more)


DESCRIPTION: int = 4_000
"""Characters of a description in run memory."""


def mirrored(board: TaskBoard, context: Context, tell: Callable[[ExecutionEvent], None]) -> Off:
    """Mirror the done tasks of *board*, now and later, in the memory of *context*.

    Failed tasks are not in it. One that the memory rejects is emitted as an error.
    """

    def on_update(event: TeamUpdate) -> None:
        if event.event != "task_completed":
            return
        if task := board.get(event.task_id or ""):
            store(task)

    def store(task: BoardTask) -> None:
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

    off = board.on_event(on_update)
    for task in board.list("done"):
        if not context.memory.has(keys.task(task.id)):
            store(task)
    return off


def _shortened(text: str) -> str:
    return text if len(text) <= DESCRIPTION else f"{text[: DESCRIPTION - 1]}…"
