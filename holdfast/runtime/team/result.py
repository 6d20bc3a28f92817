"""What became of a team's work, and why some of it stays undone."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from holdfast.runtime.team.board import Tasks, undone
from holdfast.runtime.team.task import HELD, BoardTask, lacking

TeamStatus = Literal["completed", "failed", "deadlocked", "stalled", "max_turns", "cancelled"]


class TeamResult(Struct, frozen=True, kw_only=True):
    """How a team ended, and what it leaves.

    `result` is that of the one top-level task that is done; of several a list of `task_id`,
    `title` and `result`, oldest first; None when there is none. `done`, `failed` and `unfinished`
    are all tasks of the board, subtasks too.
    """

    status: TeamStatus
    result: Any
    done: tuple[BoardTask, ...]
    failed: tuple[BoardTask, ...]
    unfinished: tuple[BoardTask, ...]


class Workforce(Struct, frozen=True):
    """An agent, as far as it counts for who could do what; *out* says why it takes no turns."""

    name: str
    skills: tuple[str, ...]
    out: str | None = None


def result_of(tasks: Sequence[BoardTask], status: TeamStatus) -> TeamResult:
    """Return what the *tasks* of a board come to for a team that ended as *status*."""
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
    """Return the status of a team whose *tasks* are all settled."""
    failed = any(task.parent is None and task.status == "failed" for task in tasks)
    return "failed" if failed else "completed"


def why_undone(tasks: Tasks, team: Sequence[Workforce]) -> str:
    """Return each unsettled task with what keeps it from being done, a line each."""
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
    """Return why nobody has claimed *task*, which waits for nothing."""
    able = [each for each in team if not lacking(task.required_skills, each.skills)]
    if here := [each.name for each in able if each.out is None]:
        return f"could be claimed by {', '.join(here)}, and was not"
    if able:
        told = ", ".join(f"{each.name}, who is {each.out}" for each in able)
        return f"could be claimed by {told}"
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
