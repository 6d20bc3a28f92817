"""What an agent does in a team, as tools: nine, and always as itself."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from msgspec import Struct

from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.memories.run import keys
from holdfast.runtime.team.arguments import (
    SCHEMAS,
    Act,
    Broadcast,
    CheckMessages,
    ClaimTask,
    CompleteTask,
    CreateTask,
    DecomposeTask,
    FailTask,
    ListTasks,
    SendMessage,
    words,
)
from holdfast.runtime.team.board import TaskBoard, no_task
from holdfast.runtime.team.bus import Message, MessageBus
from holdfast.runtime.team.task import BoardTask, Subtask
from holdfast.tools.base import JSON, Tool, is_error, told, wording
from holdfast.tools.durable import read

LISTED: Final = 200
"""Tasks in one answer of `list_tasks`."""
DESCRIBED: Final = 240
"""Characters of a description in a list, as in the lists of run memory."""


class Seat(Struct, frozen=True, kw_only=True):
    """One agent's place in a team.

    `messages` gives what came for it; `no_creating` is how its creating of tasks is refused.
    """

    board: TaskBoard
    bus: MessageBus
    agent: str
    skills: tuple[str, ...]
    messages: Callable[[], list[Message]]
    no_creating: HoldfastError | None = None


def team_tools(
    board: TaskBoard, bus: MessageBus, agent: str, skills: Iterable[str] = ()
) -> list[Tool]:
    """Return the nine tools by which *agent*, who has *skills*, works in a team, as no other.

    It is registered on *bus*. What `check_messages` shows it takes. Their answers are JSON objects;
    what goes wrong is one too.
    """
    bus.register(agent)
    take = partial(bus.receive, agent)
    return seat_tools(Seat(board=board, bus=bus, agent=agent, skills=tuple(skills), messages=take))


def seat_tools(seat: Seat) -> list[Tool]:
    """Return the nine tools of *seat*."""
    sentences = wording("team").parameters
    return [
        Tool(
            id=f"team.{name}",
            name=name,
            description=sentences[name],
            parameters=schema,
            work=partial(_answered, _ACTS[name], seat),
            refused=is_error,
            checks=True,
        )
        for name, schema in SCHEMAS.items()
    ]


def message_told(message: Message) -> dict[str, JSON]:
    """Return *message* as a model sees it."""
    told = {
        "id": message.id,
        "from": message.sender,
        "type": message.type,
        "subject": message.subject,
        "body": message.body,
        "reply_to": message.reply_to,
        "task_id": message.task_id,
    }
    return {name: value for name, value in told.items() if value is not None}


def task_told(task: BoardTask) -> dict[str, JSON]:
    """Return *task* as a model sees it: whole, but for its result, of which the size."""
    told: dict[str, JSON] = {
        "id": task.id,
        "title": task.title,
        "description": task.description,
        "status": task.status,
        "priority": task.priority,
        "created_by": task.created_by,
        "claimed_by": task.claimed_by,
        "depends_on": list(task.depends_on),
        "required_skills": list(task.required_skills),
        "parent": task.parent,
        "artifacts": list(task.artifacts),
        "failure_reason": task.failure_reason,
        "blocked_reason": task.blocked_reason,
        "result_bytes": len(task.result_json) if task.status == "done" else None,
    }
    return {name: value for name, value in told.items() if value not in (None, "", [])}


def task_in_short(task: BoardTask) -> dict[str, JSON]:
    """Return *task* as a model sees it among many: its description is cut."""
    shown = task_told(task)
    if len(task.description) > DESCRIBED:
        shown["description"] = f"{task.description[:DESCRIBED]}…"
    return shown


def _answered(act: Callable[[Seat, object], JSON], seat: Seat, arguments: object) -> JSON:
    try:
        return act(seat, {} if arguments is None else arguments)
    except HoldfastError as error:
        return told(error)


def _send_message(seat: Seat, arguments: object) -> JSON:
    asked = read(SendMessage, arguments)
    if asked.to == seat.agent:
        raise InvalidInput("to", "is yourself", next="Name a teammate.")
    sent = seat.bus.send(
        seat.agent,
        asked.to,
        asked.subject,
        asked.body,
        type=asked.type or "info",
        reply_to=asked.reply_to,
        task_id=_task_id(seat, asked.task_id),
    )
    return {"ok": True, "message_id": sent.id, "to": asked.to}


def _broadcast(seat: Seat, arguments: object) -> JSON:
    asked = read(Broadcast, arguments)
    sent = seat.bus.broadcast(seat.agent, asked.subject, asked.body, type=asked.type or "info")
    return {"ok": True, "message_id": sent.id}


def _check_messages(seat: Seat, arguments: object) -> JSON:
    read(CheckMessages, arguments)
    return {"messages": [message_told(each) for each in seat.messages()]}


def _create_task(seat: Seat, arguments: object) -> JSON:
    asked = read(CreateTask, arguments)
    if seat.no_creating:
        raise seat.no_creating
    task = seat.board.create(
        asked.title,
        description=asked.description or "",
        created_by=seat.agent,
        depends_on=words(asked.depends_on),
        required_skills=words(asked.required_skills),
        priority=5 if asked.priority is None else asked.priority,
    )
    return {"ok": True, "task_id": task.id}


def _list_tasks(seat: Seat, arguments: object) -> JSON:
    asked = read(ListTasks, arguments)
    found = seat.board.available(seat.skills) if asked.available_only else seat.board.list()
    if asked.status:
        found = [task for task in found if task.status == asked.status]
    # What can still be worked on comes first, so that a long past does not hide it.
    found.sort(key=lambda task: task.settled)
    answer: dict[str, JSON] = {
        "tasks": [task_in_short(task) for task in found[:LISTED]],
        "total": len(found),
    }
    return answer | {"left_out": len(found) - LISTED} if len(found) > LISTED else answer


def _claim_task(seat: Seat, arguments: object) -> JSON:
    asked = read(ClaimTask, arguments)
    seat.board.claim(asked.task_id, seat.agent, skills=seat.skills)
    task = seat.board.start(asked.task_id, seat.agent)
    needed: JSON = [keys.task(id) for id in task.depends_on]
    answer: dict[str, JSON] = {"ok": True, "task_id": task.id, "task": task_told(task)}
    return answer | {"read_first": needed} if needed else answer


def _complete_task(seat: Seat, arguments: object) -> JSON:
    asked = read(CompleteTask, arguments)
    task = seat.board.complete(
        asked.task_id, seat.agent, asked.result, artifacts=words(asked.artifacts)
    )
    return {"ok": True, "task_id": task.id, "status": task.status}


def _fail_task(seat: Seat, arguments: object) -> JSON:
    asked = read(FailTask, arguments)
    task = seat.board.fail(asked.task_id, seat.agent, asked.reason)
    return {"ok": True, "task_id": task.id, "status": task.status}


def _decompose_task(seat: Seat, arguments: object) -> JSON:
    asked = read(DecomposeTask, arguments)
    parts = [
        Subtask(
            title=each.title,
            description=each.description or "",
            depends_on=words(each.depends_on),
            required_skills=words(each.required_skills),
            priority=each.priority,
        )
        for each in asked.subtasks
    ]
    made = seat.board.decompose(asked.task_id, seat.agent, parts)
    return {"ok": True, "task_id": asked.task_id, "subtask_ids": [task.id for task in made]}


def _task_id(seat: Seat, id: str | None) -> str | None:
    if id is not None and seat.board.get(id) is None:
        raise no_task(id)
    return id


_ACTS: Final[dict[Act, Callable[[Seat, object], JSON]]] = {
    "send_message": _send_message,
    "broadcast": _broadcast,
    "check_messages": _check_messages,
    "create_task": _create_task,
    "list_tasks": _list_tasks,
    "claim_task": _claim_task,
    "complete_task": _complete_task,
    "fail_task": _fail_task,
    "decompose_task": _decompose_task,
}
