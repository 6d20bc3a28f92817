"""The tasks of a team: who may do what with which, and what then becomes of the others."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Lock
from typing import Any

from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import (
    ClaimRefused,
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotOwner,
)
from holdfast.ground.ids import Ids
from holdfast.ground.json_values import encode
from holdfast.runtime.events import TeamUpdate
from holdfast.runtime.team.change import BoardChange, in_order, made_of, no_task
from holdfast.runtime.team.notices import BoardNotices, Off
from holdfast.runtime.team.rules import refusal, stuck
from holdfast.runtime.team.task import (
    DESCRIPTION_LIMIT,
    STATUSES,
    BoardTask,
    Status,
    Subtask,
    checked_names,
    checked_priority,
    checked_subtask,
    checked_text,
    checked_title,
)

DEPTH = 200
"""How deep a result may be nested, as in run memory."""


class TaskBoard:
    """What a team has to do. Safe to use from many threads; each call is done whole or not at all.

    *result_bytes* is the most bytes of JSON a result may have.

    >>> board = TaskBoard()
    >>> task = board.create("Count the seals")
    >>> board.claim(task.id, "ada").claimed_by
    'ada'
    >>> board.complete(task.id, "ada", 12).status
    'done'
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        result_bytes: int = 4_194_304,
    ) -> None:
        self._clock, self._ids = clock or SystemClock(), ids or Ids()
        self._result_bytes = result_bytes
        self._tasks: dict[str, BoardTask] = {}
        self._lock = Lock()
        self._numbers = count(1)
        self._notices: BoardNotices[TeamUpdate] = BoardNotices()

    def create(
        self,
        title: str,
        *,
        description: str = "",
        created_by: str = "system",
        depends_on: Sequence[str] = (),
        required_skills: Sequence[str] = (),
        priority: int = 5,
        parent: str | None = None,
    ) -> BoardTask:
        """Put a task on the board; NotFound names an unknown dependency or parent.

        With a *parent* it is one of its subtasks, and the parent waits for it.
        """
        part = Subtask(
            title=checked_title(title),
            description=checked_text("description", description),
            depends_on=checked_names("depends_on", depends_on),
            required_skills=checked_names("required_skills", required_skills),
            priority=checked_priority(priority),
        )
        checked_text("created_by", created_by, blank=False)
        with self._changing() as change:
            task = change.add(made_of(part, self._id(change), created_by, change, parent))
            if parent:
                change.wait_for_children(parent)
            return task

    def claim(self, id: str, agent: str, *, skills: Iterable[str] = ()) -> BoardTask:
        """Give the task to *agent*, who has *skills*; ClaimRefused says why it cannot be."""
        with self._changing() as change:
            task = change.get(id)
            if refused := refusal(task, change.tasks, skills):
                raise ClaimRefused(id, refused.reason, refused.why, next=refused.next)
            return change.put(task, "task_claimed", status="claimed", claimed_by=agent)

    def start(self, id: str, agent: str) -> BoardTask:
        """Say that its claimant is at work on it."""
        with self._changing() as change:
            task = change.owned(id, agent)
            if task.status == "blocked":
                change.refuse_waiting(id)
                raise Conflict(
                    f"The task {id} is blocked: {task.blocked_reason}.",
                    reason="blocked",
                    next="Unblock it first.",
                )
            return task if task.status == "working" else _working(change, task)

    def complete(
        self, id: str, agent: str, result: object = None, *, artifacts: Sequence[str] = ()
    ) -> BoardTask:
        """Settle it with the JSON value *result*; *artifacts* name what was made."""
        kept = self._result(result)
        made = checked_names("artifacts", artifacts, limit=DESCRIPTION_LIMIT)
        with self._changing() as change:
            task = change.owned(id, agent)
            change.refuse_waiting(id)
            return change.done(task, kept, made)

    def fail(self, id: str, agent: str, reason: str) -> BoardTask:
        """Settle it as failed: by its claimant or, while nobody has it, by its creator."""
        told = checked_text("reason", reason, blank=False)
        with self._changing() as change:
            task = change.unsettled(id)
            if agent != (task.claimed_by or task.created_by):
                raise NotOwner(id, task.claimed_by)
            return change.failed(task, told)

    def release(self, id: str, agent: str) -> BoardTask:
        """Put it back for others; one that waits for subtasks goes on waiting, as nobody's."""
        with self._changing() as change:
            task = change.owned(id, agent)
            status = "blocked" if change.waiting_for(id) else "open"
            return change.put(
                task, "task_released", status=status, claimed_by=None, blocked_reason=None
            )

    def block(self, id: str, agent: str, reason: str) -> BoardTask:
        """Say that its claimant cannot go on, and why."""
        told = checked_text("reason", reason, blank=False)
        with self._changing() as change:
            task = change.owned(id, agent)
            return change.put(task, "task_blocked", told, status="blocked", blocked_reason=told)

    def unblock(self, id: str, agent: str) -> BoardTask:
        """Say that its claimant is at work on it again."""
        with self._changing() as change:
            task = change.owned(id, agent)
            change.refuse_waiting(id)
            return _working(change, task) if task.status == "blocked" else task

    def decompose(
        self, id: str, agent: str, subtasks: Sequence[Subtask | Mapping[str, Any]]
    ) -> list[BoardTask]:
        """Part an open task, or one of *agent*'s own; return its new subtasks.

        It is blocked until the last of them settles. What it waited for, they wait for.
        """
        parts = [checked_subtask(each, index) for index, each in enumerate(subtasks)]
        if not parts:
            raise InvalidInput("subtasks", "must hold at least one")
        with self._changing() as change:
            task = change.unsettled(id)
            if task.claimed_by not in (None, agent):
                raise NotOwner(id, task.claimed_by)
            made: list[BoardTask] = []
            ids = [self._id(change) for _ in parts]
            for part, own in zip(in_order(parts, ids), ids, strict=True):
                made.append(change.add(made_of(part, own, agent, change, id)))
            change.wait_for_children(id)
            return made

    def get(self, id: str) -> BoardTask | None:
        """Return the task *id* as it stands, or None."""
        return self._tasks.get(id)

    def available(self, skills: Iterable[str] = ()) -> list[BoardTask]:
        """Return what one with *skills* could claim, most urgent and then oldest first."""
        tasks, held = self._now(), tuple(skills)
        free = [task for task in tasks.values() if not refusal(task, tasks, held)]
        return sorted(free, key=lambda task: task.priority)

    def subtasks(self, id: str) -> list[BoardTask]:
        """Return the parts of the task *id*, oldest first, or raise NotFound."""
        tasks = self._now()
        if id not in tasks:
            raise no_task(id)
        return [task for task in tasks.values() if task.parent == id]

    def is_complete(self) -> bool:
        """Tell whether there are tasks and all of them are done or failed."""
        tasks = self._now()
        return bool(tasks) and all(task.settled for task in tasks.values())

    def deadlock(self) -> list[str]:
        """Return the ids of tasks that nobody can ever claim, since what they need failed."""
        return stuck(self._now())

    def on_event(self, listener: Callable[[TeamUpdate], object]) -> Off:
        """Call *listener* after each change, in their order; return how to end that.

        Its `seq` counts this board's changes; `run_id` is empty.
        """
        return self._notices.subscribe(listener)

    def list(self, status: Status | None = None) -> list[BoardTask]:
        """Return all tasks, or those of one *status*, oldest first."""
        if status is not None and status not in STATUSES:
            raise InvalidInput("status", f"must be one of {', '.join(STATUSES)}", given=status)
        return [task for task in self._now().values() if status in (None, task.status)]

    def _now(self) -> dict[str, BoardTask]:
        # A change puts a new dict in the old one's place, so this one stays as it is.
        return self._tasks

    @contextmanager
    def _changing(self) -> Generator[BoardChange]:
        """Give a change to make; keep and tell it unless an error comes out."""
        with self._lock:
            change = BoardChange(self._tasks, to_microseconds(self._clock.now()) // 1_000)
            yield change
            self._tasks = change.tasks
            for moment, task, agent, why in change.told:
                self._notices.add(
                    TeamUpdate(
                        run_id="",
                        seq=next(self._numbers),
                        at=change.now,
                        event=moment,
                        agent=agent,
                        task_id=task.id,
                        title=task.title,
                        content=why,
                        result=task.result if moment == "task_completed" else None,
                    )
                )
        self._notices.tell()

    def _id(self, change: BoardChange) -> str:
        return self._ids.new("task", change.now * 1_000)

    def _result(self, result: object) -> bytes:
        kept = encode(result, root="$", depth=DEPTH, field="result")
        if len(kept) > self._result_bytes:
            raise LimitExceeded("result_bytes", allowed=self._result_bytes, actual=len(kept))
        return kept


def _working(change: BoardChange, task: BoardTask) -> BoardTask:
    return change.put(task, "task_working", status="working", blocked_reason=None)
