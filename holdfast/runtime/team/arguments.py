"""What a model asked of the team's tools: their schemas, and arguments read by them.

An optional argument that is null counts as left out.
"""

from typing import Any, Final, Literal

from msgspec import Struct, field

from holdfast.runtime.team.bus import TYPES, MessageType
from holdfast.runtime.team.task import LAST_PRIORITY, STATUSES, TITLE_LIMIT, Status
from holdfast.tools.base import Schema

Words = list[str] | str | None
"""A list of words; one alone is taken as a list of one."""


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
    """Nothing: all that came is meant."""


class CreateTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to put on the board."""

    title: str
    description: str | None = None
    depends_on: Words = None
    required_skills: Words = None
    priority: int | None = None


class ListTasks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks are wanted."""

    status: Status | None = None
    available_only: bool | None = None


class ClaimTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to take."""

    task_id: str


class CompleteTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task that is done, and what it came to."""

    task_id: str
    result: Any
    artifacts: Words = None


class FailTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task that cannot be done, and why."""

    task_id: str
    reason: str


class DecomposeTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to part, and its parts."""

    task_id: str
    subtasks: list[CreateTask] = field(default_factory=list[CreateTask])


def words(given: Words) -> tuple[str, ...]:
    """Return what *given* lists."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def _schema(properties: dict[str, Any], *required: str) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
    }


def _text(told: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": told, **more}


def _list(told: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": told}


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
    "send_message": _schema(
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
    "broadcast": _schema(_MESSAGE, "subject", "body"),
    "check_messages": _schema({}),
    "create_task": _schema(_NEW_TASK, "title"),
    "list_tasks": _schema(
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
    "claim_task": _schema({"task_id": _TASK}, "task_id"),
    "complete_task": _schema(
        {
            "task_id": _TASK,
            "result": {"description": "what it came to, whole: any JSON value"},
            "artifacts": _list("names of what was made elsewhere"),
        },
        "task_id",
        "result",
    ),
    "fail_task": _schema(
        {"task_id": _TASK, "reason": _text("why it cannot be done")}, "task_id", "reason"
    ),
    "decompose_task": _schema(
        {
            "task_id": _TASK,
            "subtasks": {
                "type": "array",
                "minItems": 1,
                "items": _schema(_NEW_TASK, "title"),
                "description": "its parts, in order",
            },
        },
        "task_id",
        "subtasks",
    ),
}
"""The JSON Schema of each tool's arguments, in the order they are offered."""
