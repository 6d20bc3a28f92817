"""TaskBoard: the tasks of a team."""

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import (
    ClaimRefused,
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotFound,
    NotOwner,
    TaskSettled,
)
from holdfast.ground.ids import Ids
from holdfast.ground.json_values import encode
from holdfast.runtime.events import TeamMoment, TeamUpdate
from holdfast.runtime.team.bus import BoardNotices, Off
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
    lacking,
)

Tasks = Mapping[str, BoardTask]
Reason = Literal["taken", "blocked", "skills", "settled"]


class Refusal(NamedTuple):
    """Why a task cannot be claimed, in a word and in a sentence."""

    reason: Reason
    why: str
    next: str


def refusal(task: BoardTask, tasks: Tasks, skills: Iterable[str]) -> Refusal | None:
    """Return why one with *skills* cannot claim *task*, or None."""
    if task.settled:
        return Refusal("settled", f"it is {task.status}", "Claim another task.")
    if task.claimed_by:
        return Refusal("taken", f"{task.claimed_by} has it", "Claim another task.")
    if task.status == "blocked":
        return Refusal("blocked", "it waits for its subtasks", "Claim one of its subtasks.")
    if left := undone(task, tasks):
        told = ", ".join(f"{each.id} ({each.status})" for each in left)
        return Refusal("blocked", f"it waits for {told}", "Claim one of those, or wait.")
    if missing := lacking(task.required_skills, skills):
        told = ", ".join(f'"{each}"' for each in missing)
        return Refusal("skills", f"it needs the skill {told}", "Leave it to one who has it.")
    return None


def undone(task: BoardTask, tasks: Tasks) -> list[BoardTask]:
    """Return what *task* depends on and is not done."""
    return [tasks[id] for id in task.depends_on if tasks[id].status != "done"]


def needs(tasks: Tasks, start: Collection[str]) -> set[str]:
    """Return *start* and all tasks that must be done before those can be."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    for task in tasks.values():
        if task.parent:
            children[task.parent].append(task.id)
    found: set[str] = set()
    ahead = list(start)
    while ahead:
        id = ahead.pop()
        if id not in found:
            found.add(id)
            ahead += tasks[id].depends_on
            ahead += children[id]
    return found


def line_of(task: BoardTask | None, tasks: Tasks) -> list[str]:
    """Return the ids of *task*, its parent, and so on up."""
    line: list[str] = []
    while task:
        line.append(task.id)
        task = tasks[task.parent] if task.parent else None
    return line


def stuck(tasks: Tasks) -> list[str]:
    """Return the unsettled tasks that can never be claimed since something they need failed.

    A parent with a failed child is not one while its other children can still settle: then it
    fails by itself. What depends on it is one already.
    """
    dependents: defaultdict[str, list[BoardTask]] = defaultdict(list)
    for task in tasks.values():
        for id in task.depends_on:
            dependents[id].append(task)
    failing: set[str] = set()
    caught: set[str] = set()
    ahead = [(task, False) for task in tasks.values() if task.status == "failed"]
    while ahead:
        task, never = ahead.pop()
        known = caught if never else failing
        if task.id in known:
            continue
        known.add(task.id)
        ahead += [(each, True) for each in dependents[task.id] if each.status == "open"]
        if task.parent and not (parent := tasks[task.parent]).settled:
            ahead.append((parent, never))
    return [id for id in tasks if id in caught]


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
