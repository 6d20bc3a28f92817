"""`TaskBoard`: the tasks of a team."""

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
from holdfast.ground.validation import check_one_of, listed
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
    """The reason why a task cannot be claimed, as a code and a sentence."""

    reason: Reason
    why: str
    next: str


def refusal(task: BoardTask, tasks: Tasks, skills: Iterable[str]) -> Refusal | None:
    """Return the reason why an agent with *skills* cannot claim *task*, or None."""
    if task.settled:
        return Refusal("settled", f"it is {task.status}", "Claim another task.")
    if task.claimed_by:
        return Refusal("taken", f"{task.claimed_by} has it", "Claim another task.")
    if task.status == "blocked":
        return Refusal("blocked", "it waits for its subtasks", "Claim one of its subtasks.")
    if left := undone(task, tasks):
        names = ", ".join(f"{each.id} ({each.status})" for each in left)
        return Refusal("blocked", f"it waits for {names}", "Claim one of those, or wait.")
    if missing := lacking(task.required_skills, skills):
        names = ", ".join(f'"{each}"' for each in missing)
        return Refusal("skills", f"it needs the skill {names}", "Leave it to one who has it.")
    return None


def undone(task: BoardTask, tasks: Tasks) -> list[BoardTask]:
    """Return the dependencies of *task* that are not done."""
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
    """Return the ids of *task* and its ancestors."""
    line: list[str] = []
    while task:
        line.append(task.id)
        task = tasks[task.parent] if task.parent else None
    return line


def stuck(tasks: Tasks) -> list[str]:
    """Return the unsettled tasks that can never be claimed, as a need failed.

    A parent with a failed child is not one while its other children can still settle: then it fails
    by itself. What depends on it is one already.
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


BoardEvent: TypeAlias = tuple[TeamMoment, BoardTask, str | None, str | None]
"""Event, task, agent and reason of one change."""


def no_task(id: str) -> NotFound:
    """Return the error for an unknown task *id*."""
    return NotFound("task", id, next="List the tasks for their ids.")


class BoardChange:
    """The tasks of a board after a change, and the events to emit."""

    def __init__(self, tasks: Tasks, now: int) -> None:
        self.tasks = dict(tasks)
        self.events: list[BoardEvent] = []
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
        """Raise Conflict if the task *id* waits for subtasks, which alone can settle it."""
        if left := self.waiting_for(id):
            raise Conflict(
                f"The task {id} waits for its subtasks {', '.join(left)}.",
                reason="blocked",
                next="Settle those; it settles by itself with the last.",
            )

    def add(self, task: BoardTask) -> BoardTask:
        """Add a new task; raise NotFound or Conflict for invalid dependencies or parent."""
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
        self.events.append(("task_created", task, task.created_by, None))
        return task

    def put(
        self, task: BoardTask, moment: TeamMoment, why: str | None = None, **changes: Any
    ) -> BoardTask:
        """Apply *changes* to *task*; emit *moment* with the reason *why*."""
        new = msgspec.structs.replace(
            task, updated_at=self.now, version=task.version + 1, **changes
        )
        self.tasks[task.id] = new
        self.events.append((moment, new, new.claimed_by or task.claimed_by, why))
        return new

    def wait_for_children(self, id: str) -> BoardTask:
        """Block the task *id* until its subtasks settle; its claimant stays."""
        task = self.tasks[id]
        if task.status == "blocked":
            return task
        why = f"it waits for {', '.join(self.waiting_for(id))}"
        return self.put(task, "task_blocked", why, status="blocked")

    def done(
        self, task: BoardTask, result: bytes, artifacts: Sequence[str] | None = None
    ) -> BoardTask:
        """Complete *task*, and its parent if it waited for this one last."""
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
        """Fail *task*, and its parent if it waited for this one last."""
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
        """Settle the parent of *task* with its last subtask; a failed subtask fails it."""
        parent = self.tasks[task.parent] if task.parent else None
        if parent is None or parent.settled or self.waiting_for(parent.id):
            return
        children = self.children(parent.id)
        if failed := [each for each in children if each.status == "failed"]:
            reasons = "; ".join(f"{each.id} ({each.failure_reason})" for each in failed)
            self.failed(parent, f"subtasks failed: {reasons}")
        else:
            results = [
                {"task_id": each.id, "title": each.title, "result": msgspec.Raw(each.result_json)}
                for each in children
            ]
            self.done(parent, msgspec.json.encode(results))


def made_of(part: Subtask, id: str, by: str, change: BoardChange, parent: str | None) -> BoardTask:
    """Return the task for *part*, which inherits unfinished dependencies of *parent*."""
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
    """Return *subtasks* with titles of earlier ones in `depends_on` replaced by *ids*."""
    known: dict[str, str] = {}
    named: list[Subtask] = []
    for part, id in zip(subtasks, ids, strict=True):
        depends_on = tuple(known.get(each, each) for each in part.depends_on)
        named.append(msgspec.structs.replace(part, depends_on=depends_on))
        known[part.title] = id
    return named


DEPTH = 200
"""Greatest nesting depth of a result, as in run memory."""


class TaskBoard:
    """The tasks of a team. Thread-safe; each call is applied in full or not at all.

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
        # A change puts a new dict in its place, so each stays as it is.
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
        """Create a task; raise NotFound for an unknown dependency or parent.

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
        """Give the task to *agent* with *skills*; raise ClaimRefused with the reason."""
        with self._changing() as change:
            task = change.get(id)
            if refused := refusal(task, change.tasks, listed(skills)):
                raise ClaimRefused(id, refused.reason, refused.why, next=refused.next)
            return change.put(task, "task_claimed", status="claimed", claimed_by=agent)

    def start(self, id: str, agent: str) -> BoardTask:
        """Mark the task as worked on by its claimant."""
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
        """Settle it with the JSON value *result*; *artifacts* are names of other results."""
        encoded = self._result(result)
        made = checked_names("artifacts", artifacts, limit=DESCRIPTION_LIMIT)
        with self._changing() as change:
            task = change.owned(id, agent)
            change.refuse_waiting(id)
            return change.done(task, encoded, made)

    def fail(self, id: str, agent: str, reason: str) -> BoardTask:
        """Settle it as failed: by its claimant or, while unclaimed, by its creator."""
        checked_reason = checked_text("reason", reason, blank=False)
        with self._changing() as change:
            task = change.unsettled(id)
            if agent != (task.claimed_by or task.created_by):
                raise NotOwner(id, task.claimed_by)
            return change.failed(task, checked_reason)

    def release(self, id: str, agent: str) -> BoardTask:
        """Release the claim; a task that waits for subtasks goes on waiting, unclaimed."""
        with self._changing() as change:
            task = change.owned(id, agent)
            status = "blocked" if change.waiting_for(id) else "open"
            return change.put(
                task, "task_released", status=status, claimed_by=None, blocked_reason=None
            )

    def block(self, id: str, agent: str, reason: str) -> BoardTask:
        """Mark the task as blocked by its claimant, with the reason."""
        checked_reason = checked_text("reason", reason, blank=False)
        with self._changing() as change:
            task = change.owned(id, agent)
            return change.put(
                task,
                "task_blocked",
                checked_reason,
                status="blocked",
                blocked_reason=checked_reason,
            )

    def unblock(self, id: str, agent: str) -> BoardTask:
        """Mark the task as worked on by its claimant again."""
        with self._changing() as change:
            task = change.owned(id, agent)
            change.refuse_waiting(id)
            return _working(change, task) if task.status == "blocked" else task

    def decompose(
        self, id: str, agent: str, subtasks: Sequence[Subtask | Mapping[str, Any]]
    ) -> list[BoardTask]:
        """Split an open task, or one claimed by *agent*; return its new subtasks.

        It is blocked until the last of them settles. They inherit its unfinished dependencies.
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

    def restore(self, tasks: Iterable[BoardTask]) -> None:
        """Put *tasks* back as they were, by their ids; nothing is emitted."""
        with self._lock:
            self._tasks = self._tasks | {task.id: task for task in tasks}

    def get(self, id: str) -> BoardTask | None:
        """Return the task *id* in its current state, or None."""
        return self._tasks.get(id)

    def available(self, skills: Iterable[str] = ()) -> list[BoardTask]:
        """Return the tasks claimable with *skills*, most urgent, then oldest first."""
        tasks, held = self._tasks, listed(skills)
        free = [task for task in tasks.values() if not refusal(task, tasks, held)]
        return sorted(free, key=lambda task: task.priority)

    def subtasks(self, id: str) -> list[BoardTask]:
        """Return the subtasks of *id*, oldest first, or raise NotFound."""
        tasks = self._tasks
        if id not in tasks:
            raise no_task(id)
        return [task for task in tasks.values() if task.parent == id]

    def is_complete(self) -> bool:
        """Return whether there are tasks and all of them are done or failed."""
        tasks = self._tasks
        return bool(tasks) and all(task.settled for task in tasks.values())

    def deadlock(self) -> list[str]:
        """Return the ids of tasks that can never be claimed, since a need of them failed."""
        return stuck(self._tasks)

    def on_event(self, listener: Callable[[TeamUpdate], object]) -> Off:
        """Call *listener* after each change, in order; return the function to unsubscribe.

        Its `seq` counts this board's changes; `run_id` is empty.
        """
        return self._notices.subscribe(listener)

    def list(self, status: Status | None = None) -> list[BoardTask]:
        """Return all tasks, or those of one *status*, oldest first."""
        if status is not None:
            check_one_of("status", status, STATUSES)
        return [task for task in self._tasks.values() if status in (None, task.status)]

    @contextmanager
    def _changing(self) -> Generator[BoardChange]:
        """Yield a change; store and emit it unless the block raises."""
        with self._lock:
            change = BoardChange(self._tasks, to_microseconds(self._clock.now()) // 1_000)
            yield change
            self._tasks = change.tasks
            for moment, task, agent, why in change.events:
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
        encoded = encode(result, root="$", depth=DEPTH, field="result")
        if len(encoded) > self._result_bytes:
            raise LimitExceeded("result_bytes", allowed=self._result_bytes, actual=len(encoded))
        return encoded


def _working(change: BoardChange, task: BoardTask) -> BoardTask:
    return change.put(task, "task_working", status="working", blocked_reason=None)
