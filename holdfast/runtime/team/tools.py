"""Tools of the members of a team."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.ground.validation import listed
from holdfast.memories.run import keys
from holdfast.runtime.agent import AnyTool, AnyToolset, named
from holdfast.runtime.context import Context
from holdfast.runtime.events import LogUpdate
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.steps.tools import Toolbox
from holdfast.runtime.team.board import TaskBoard, no_task
from holdfast.runtime.team.bus import TYPES, Message, MessageBus, MessageType
from holdfast.runtime.team.task import (
    LAST_PRIORITY,
    STATUSES,
    TITLE_LIMIT,
    BoardTask,
    Status,
    Subtask,
)
from holdfast.tools.base import JSON, Schema, Tool, is_error, object_schema, told, wording
from holdfast.tools.durable import read

# An optional argument that is null counts as left out.

Words = list[str] | str | None
"""A list of strings; a single string is taken as a list of one."""


class SendMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to one teammate."""

    to: str
    subject: str
    body: str
    type: MessageType | None = None
    reply_to: str | None = None
    task_id: str | None = None


class Broadcast(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to all teammates."""

    subject: str
    body: str
    type: MessageType | None = None


class CheckMessages(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No arguments: all messages are meant."""


class CreateTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to create."""

    title: str
    description: str | None = None
    depends_on: Words = None
    required_skills: Words = None
    priority: int | None = None


class ListTasks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter of tasks."""

    status: Status | None = None
    available_only: bool | None = None


class ClaimTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to claim."""

    task_id: str


class CompleteTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A completed task and its result."""

    task_id: str
    result: Any
    artifacts: Words = None


class FailTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A failed task and the reason."""

    task_id: str
    reason: str


class DecomposeTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to split, and its parts."""

    task_id: str
    subtasks: list[CreateTask] = field(default_factory=list[CreateTask])


def words(given: Words) -> tuple[str, ...]:
    """Return the strings in *given*."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": description, **more}


def _list(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


_TASK: Final = _text("id of a task on the board")
_MESSAGE: Final = {
    "subject": _text("what it is about, in a few words", maxLength=TITLE_LIMIT),
    "body": {"type": "string", "description": "all that is to be said"},
    "type": {"type": "string", "enum": list(TYPES), "description": "info unless given"},
}
_NEW_TASK: Final = {
    "title": _text("what is to be done, in one line", maxLength=TITLE_LIMIT),
    "description": {"type": "string", "description": "everything that its agent must know"},
    "depends_on": _list("ids of tasks that must be done before"),
    "required_skills": _list("skills that its agent must have"),
    "priority": {
        "type": "integer",
        "minimum": 0,
        "maximum": LAST_PRIORITY,
        "description": "0 is done first; 5 unless given",
    },
}

Act = Literal[
    "send_message",
    "broadcast",
    "check_messages",
    "create_task",
    "list_tasks",
    "claim_task",
    "complete_task",
    "fail_task",
    "decompose_task",
]

SCHEMAS: Final[dict[Act, Schema]] = {
    "send_message": object_schema(
        {
            "to": _text("name of a teammate"),
            **_MESSAGE,
            "reply_to": _text("id of the message this answers"),
            "task_id": _text("id of the task it is about"),
        },
        "to",
        "subject",
        "body",
    ),
    "broadcast": object_schema(_MESSAGE, "subject", "body"),
    "check_messages": object_schema({}),
    "create_task": object_schema(_NEW_TASK, "title"),
    "list_tasks": object_schema(
        {
            "status": {
                "type": "string",
                "enum": list(STATUSES),
                "description": "only tasks that stand so",
            },
            "available_only": {
                "type": "boolean",
                "description": "only tasks that you could claim now",
            },
        }
    ),
    "claim_task": object_schema({"task_id": _TASK}, "task_id"),
    "complete_task": object_schema(
        {
            "task_id": _TASK,
            "result": {"description": "what it came to, whole: any JSON value"},
            "artifacts": _list("names of what was made elsewhere"),
        },
        "task_id",
        "result",
    ),
    "fail_task": object_schema(
        {"task_id": _TASK, "reason": _text("why it cannot be done")}, "task_id", "reason"
    ),
    "decompose_task": object_schema(
        {
            "task_id": _TASK,
            "subtasks": {
                "type": "array",
                "minItems": 1,
                "items": object_schema(_NEW_TASK, "title"),
                "description": "its parts, in order",
            },
        },
        "task_id",
        "subtasks",
    ),
}
"""The JSON Schema of each tool's arguments, in the order they are offered."""


LISTED: Final = 200
"""Limit of tasks in one result of `list_tasks`."""
DESCRIBED: Final = 240
"""Characters of a description in a list, as in the lists of run memory."""


class Seat(Struct, frozen=True, kw_only=True):
    """The access of one agent to its team.

    `messages` returns its new messages; `no_creating` is the error for creating tasks, if not
    allowed.
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
    """Return the nine tools for *agent* with *skills* in a team.

    It is registered on *bus*. `check_messages` receives what it shows. Results are JSON objects,
    also for errors.
    """
    bus.register(agent)
    take = partial(bus.receive, agent)
    return seat_tools(Seat(board=board, bus=bus, agent=agent, skills=listed(skills), messages=take))


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


def message_json(message: Message) -> dict[str, JSON]:
    """Return *message* for a model."""
    names = ("id", "type", "subject", "body", "reply_to", "task_id")
    fields = {"from": message.sender, **{name: getattr(message, name) for name in names}}
    return {name: value for name, value in fields.items() if value is not None}


def task_json(task: BoardTask) -> dict[str, JSON]:
    """Return *task* for a model: in full, except for the result, of which the size."""
    fields: dict[str, JSON] = {
        name: [*value] if isinstance(value, tuple) else value
        for name, value in asdict(task).items()
        if name not in ("created_at", "updated_at", "version", "result_json")
    }
    fields["result_bytes"] = len(task.result_json) if task.status == "done" else None
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def task_in_short(task: BoardTask) -> dict[str, JSON]:
    """Return *task* for a list: its description is cut."""
    shown = task_json(task)
    if len(task.description) > DESCRIBED:
        shown["description"] = f"{task.description[:DESCRIBED]}…"
    return shown


def _answered(act: Callable[[Seat, object], JSON], seat: Seat, arguments: object) -> JSON:
    try:
        return act(seat, {} if arguments is None else arguments)
    except HoldfastError as error:
        return told(error)


def _send_message(seat: Seat, arguments: object) -> JSON:
    args = read(SendMessage, arguments)
    if args.to == seat.agent:
        raise InvalidInput("to", "is yourself", next="Name a teammate.")
    if args.task_id is not None and seat.board.get(args.task_id) is None:
        raise no_task(args.task_id)
    sent = seat.bus.send(
        seat.agent,
        args.to,
        args.subject,
        args.body,
        type=args.type or "info",
        reply_to=args.reply_to,
        task_id=args.task_id,
    )
    return {"ok": True, "message_id": sent.id, "to": args.to}


def _broadcast(seat: Seat, arguments: object) -> JSON:
    args = read(Broadcast, arguments)
    sent = seat.bus.broadcast(seat.agent, args.subject, args.body, type=args.type or "info")
    return {"ok": True, "message_id": sent.id}


def _check_messages(seat: Seat, arguments: object) -> JSON:
    read(CheckMessages, arguments)
    return {"messages": [message_json(each) for each in seat.messages()]}


def _create_task(seat: Seat, arguments: object) -> JSON:
    args = read(CreateTask, arguments)
    if seat.no_creating:
        raise seat.no_creating
    task = seat.board.create(
        args.title,
        description=args.description or "",
        created_by=seat.agent,
        depends_on=words(args.depends_on),
        required_skills=words(args.required_skills),
        priority=5 if args.priority is None else args.priority,
    )
    return {"ok": True, "task_id": task.id}


def _list_tasks(seat: Seat, arguments: object) -> JSON:
    args = read(ListTasks, arguments)
    found = seat.board.available(seat.skills) if args.available_only else seat.board.list()
    if args.status:
        found = [task for task in found if task.status == args.status]
    # Unsettled tasks come first, so that a long history does not hide them.
    found.sort(key=lambda task: task.settled)
    answer: dict[str, JSON] = {
        "tasks": [task_in_short(task) for task in found[:LISTED]],
        "total": len(found),
    }
    return answer | {"left_out": len(found) - LISTED} if len(found) > LISTED else answer


def _claim_task(seat: Seat, arguments: object) -> JSON:
    args = read(ClaimTask, arguments)
    seat.board.claim(args.task_id, seat.agent, skills=seat.skills)
    task = seat.board.start(args.task_id, seat.agent)
    needed: JSON = [keys.task(id) for id in task.depends_on]
    answer: dict[str, JSON] = {"ok": True, "task_id": task.id, "task": task_json(task)}
    return answer | {"read_first": needed} if needed else answer


def _complete_task(seat: Seat, arguments: object) -> JSON:
    args = read(CompleteTask, arguments)
    task = seat.board.complete(
        args.task_id, seat.agent, args.result, artifacts=words(args.artifacts)
    )
    return {"ok": True, "task_id": task.id, "status": task.status}


def _fail_task(seat: Seat, arguments: object) -> JSON:
    args = read(FailTask, arguments)
    task = seat.board.fail(args.task_id, seat.agent, args.reason)
    return {"ok": True, "task_id": task.id, "status": task.status}


def _decompose_task(seat: Seat, arguments: object) -> JSON:
    args = read(DecomposeTask, arguments)
    parts = [
        Subtask(
            title=each.title,
            description=each.description or "",
            depends_on=words(each.depends_on),
            required_skills=words(each.required_skills),
            priority=each.priority,
        )
        for each in args.subtasks
    ]
    made = seat.board.decompose(args.task_id, seat.agent, parts)
    return {"ok": True, "task_id": args.task_id, "subtask_ids": [task.id for task in made]}


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


def member_toolbox(
    agent: Agent,
    context: Context,
    *,
    own: Sequence[Tool],
    tools: Sequence[AnyTool],
    toolsets: Sequence[AnyToolset],
    limit: int,
) -> Toolbox:
    """Return the tools of *agent*; *own* are those of team and memory.

    Raise ToolNameTaken when two tools have one name.
    """
    toolbox = Toolbox(
        agent,
        context,
        own=own,
        tools=[*tools, *agent.tools],
        toolsets=[*toolsets, *agent.toolsets],
        limit=limit,
        log=lambda severity, content: LogUpdate(severity=severity, content=content),
    )
    named([*own, toolbox.pages.tool()], tools, agent.tools)
    return toolbox
