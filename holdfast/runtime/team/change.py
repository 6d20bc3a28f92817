"""One call's effect on a board: all of it or, when a rule is broken, nothing."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.ground.errors import Conflict, NotFound, NotOwner, TaskSettled
from holdfast.runtime.events import TeamMoment
from holdfast.runtime.team.rules import Tasks, line_of, needs, undone
from holdfast.runtime.team.task import BoardTask, Subtask

Told: TypeAlias = tuple[TeamMoment, BoardTask, str | None, str | None]
"""What happened to which task, by whom, and why."""


def no_task(id: str) -> NotFound:
    """Return the error for a task *id* that is not on the board."""
    return NotFound("task", id, next="List the tasks for their ids.")


class BoardChange:
    """A board's tasks as they will be, and what is to be told of it."""

    def __init__(self, tasks: Tasks, now: int) -> None:
        self.tasks = dict(tasks)
        self.told: list[Told] = []
        self.now = now

    def get(self, id: str) -> BoardTask:
        """Return the task *id*, or raise NotFound."""
        if task := self.tasks.get(id):
            return task
        raise no_task(id)

    def unsettled(self, id: str) -> BoardTask:
        """Return the task *id* if it may still change, or raise TaskSettled."""
        task = self.get(id)
        if task.settled:
            raise TaskSettled(id, task.status)
        return task

    def owned(self, id: str, agent: str) -> BoardTask:
        """Return the unsettled task *id* if *agent* claimed it, or raise NotOwner."""
        task = self.unsettled(id)
        if task.claimed_by != agent:
            raise NotOwner(id, task.claimed_by)
        return task

    def children(self, id: str) -> list[BoardTask]:
        """Return the subtasks of *id*, oldest first."""
        return [task for task in self.tasks.values() if task.parent == id]

    def waiting_for(self, id: str) -> list[str]:
        """Return the ids of the subtasks of *id* that are not settled."""
        return [task.id for task in self.children(id) if not task.settled]

    def refuse_waiting(self, id: str) -> None:
        """Raise Conflict if the task *id* waits for subtasks, by which alone it settles."""
        if left := self.waiting_for(id):
            raise Conflict(
                f"The task {id} waits for its subtasks {', '.join(left)}.",
                reason="blocked",
                next="Settle those; it settles by itself with the last.",
            )

    def add(self, task: BoardTask) -> BoardTask:
        """Put a new task on the board; NotFound or Conflict if it cannot stand there."""
        for id in task.depends_on:
            self.get(id)
        if task.parent:
            above = line_of(self.unsettled(task.parent), self.tasks)
            if caught := needs(self.tasks, task.depends_on).intersection(above):
                raise Conflict(
                    f"The subtask {task.title!r} would wait for {min(caught)}, which waits for it.",
                    reason="cycle",
                    next="Leave that dependency out.",
                )
        self.tasks[task.id] = task
        self.told.append(("task_created", task, task.created_by, None))
        return task

    def put(
        self, task: BoardTask, moment: TeamMoment, why: str | None = None, **changes: Any
    ) -> BoardTask:
        """Give *task* its *changes*; *moment* and *why* are told of it."""
        new = msgspec.structs.replace(
            task, updated_at=self.now, version=task.version + 1, **changes
        )
        self.tasks[task.id] = new
        self.told.append((moment, new, new.claimed_by or task.claimed_by, why))
        return new

    def wait_for_children(self, id: str) -> BoardTask:
        """Leave the task *id* to its subtasks; whoever claimed it still has it."""
        task = self.tasks[id]
        if task.status == "blocked":
            return task
        why = f"it waits for {', '.join(self.waiting_for(id))}"
        return self.put(task, "task_blocked", why, status="blocked")

    def done(
        self, task: BoardTask, result: bytes, artifacts: Sequence[str] | None = None
    ) -> BoardTask:
        """Complete *task*, and its parent if this was the last it waited for."""
        new = self.put(
            task,
            "task_completed",
            status="done",
            result_json=result,
            artifacts=task.artifacts if artifacts is None else tuple(artifacts),
            blocked_reason=None,
        )
        self._settle_above(new)
        return new

    def failed(self, task: BoardTask, reason: str) -> BoardTask:
        """Let *task* fail, and its parent if this was the last it waited for."""
        new = self.put(
            task,
            "task_failed",
            reason,
            status="failed",
            failure_reason=reason,
            blocked_reason=None,
        )
        self._settle_above(new)
        return new

    def _settle_above(self, task: BoardTask) -> None:
        """Settle the parent of *task* when its last subtask has; a failed one fails it."""
        parent = self.tasks[task.parent] if task.parent else None
        if parent is None or parent.settled or self.waiting_for(parent.id):
            return
        children = self.children(parent.id)
        if failed := [each for each in children if each.status == "failed"]:
            told = "; ".join(f"{each.id} ({each.failure_reason})" for each in failed)
            self.failed(parent, f"subtasks failed: {told}")
        else:
            results = [
                {"task_id": each.id, "title": each.title, "result": msgspec.Raw(each.result_json)}
                for each in children
            ]
            self.done(parent, msgspec.json.encode(results))


def made_of(part: Subtask, id: str, by: str, change: BoardChange, parent: str | None) -> BoardTask:
    """Return the task that *part* describes. What its parent still waits for, it waits for too."""
    above = change.unsettled(parent) if parent else None
    inherited = [] if above is None else undone(above, change.tasks)
    priority = part.priority
    if priority is None:
        priority = 5 if above is None else above.priority
    return BoardTask(
        id=id,
        title=part.title,
        description=part.description,
        created_by=by,
        depends_on=tuple(dict.fromkeys([*(each.id for each in inherited), *part.depends_on])),
        required_skills=part.required_skills,
        priority=priority,
        parent=parent,
        created_at=change.now,
        updated_at=change.now,
    )


def in_order(subtasks: Sequence[Subtask], ids: Sequence[str]) -> list[Subtask]:
    """Return *subtasks* with the titles of earlier ones in `depends_on` become their *ids*."""
    known: dict[str, str] = {}
    named: list[Subtask] = []
    for part, id in zip(subtasks, ids, strict=True):
        depends_on = tuple(known.get(each, each) for each in part.depends_on)
        named.append(msgspec.structs.replace(part, depends_on=depends_on))
        known[part.title] = id
    return named
