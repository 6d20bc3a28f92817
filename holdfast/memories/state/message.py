"""What was said along a network: texts, calls of tools, and what the tools gave.

All are frozen and read-only all the way down. Each may be given as its plain dict as well; what
a dict has beyond the fields is kept in `extras`, and stands beside the fields when written back.
"""

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.memories.state import checks
from holdfast.memories.state.checks import HERE, NO_EXTRAS
from holdfast.memories.state.frozen import kept

Role = Literal["system", "user", "assistant"]
StopReason = Literal["tool", "stop"]
ErrorKind = Literal[
    "raised",
    "bad_arguments",
    "unknown_tool",
    "timeout",
    "remote",
    "denied",
    "interrupted",
    "not_json",
]
"""Why a call of a tool gave no data."""

_encode: Final = msgspec.json.Encoder().encode
_ROLES: Final = get_args(Role)
_STOPS: Final = (*get_args(StopReason), None)
_KINDS: Final = get_args(ErrorKind)
_ERROR: Final = ("name", "message", "kind")


class ToolCall(Struct, frozen=True, kw_only=True, gc=False):
    """One call of a tool; `input` is what the model sent, its text where that was no JSON."""

    type: Literal["tool"] = "tool"
    id: str
    name: str
    input: JSON = None
    extras: dict[str, JSON] = NO_EXTRAS

    def __post_init__(self) -> None:
        if self.type != "tool":
            checks.one_of("type", self.type, ("tool",))
        checks.text("id", self.id, least=1)
        checks.text("name", self.name)
        force_setattr(self, "input", kept(self.input, "input"))
        if self.extras is not NO_EXTRAS:
            force_setattr(self, "extras", checks.extra_members(self.extras, _CALL))

    def export(self) -> dict[str, JSON]:
        """Return it as a plain dict."""
        return plain(wire_of(self))


class TextMessage(Struct, frozen=True, kw_only=True, gc=False):
    """What the system, a user or an agent said."""

    type: Literal["text"] = "text"
    role: Role
    content: str | list[dict[str, JSON]]
    stop_reason: StopReason | None = None
    agent: str | None = None
    step: int | None = None
    extras: dict[str, JSON] = NO_EXTRAS

    def __post_init__(self) -> None:
        if self.type != "text" or self.role not in _ROLES or self.stop_reason not in _STOPS:
            checks.one_of("type", self.type, ("text",))
            checks.one_of("role", self.role, _ROLES)
            checks.one_of("stop_reason", self.stop_reason, _STOPS)
        if isinstance(self.content, list | tuple):
            force_setattr(self, "content", checks.items("content", self.content, _part))
        else:
            checks.text("content", self.content)
        _check_told(self, _TEXT)

    def export(self) -> dict[str, JSON]:
        """Return it as a plain dict."""
        return plain(wire_of(self))


class ToolCallMessage(Struct, frozen=True, kw_only=True, gc=False):
    """An agent's calls of tools, made together."""

    type: Literal["tool_call"] = "tool_call"
    role: Literal["assistant"] = "assistant"
    tools: list[ToolCall]
    stop_reason: Literal["tool"] = "tool"
    agent: str | None = None
    step: int | None = None
    extras: dict[str, JSON] = NO_EXTRAS

    def __post_init__(self) -> None:
        if (self.type, self.role, self.stop_reason) != ("tool_call", "assistant", "tool"):
            checks.one_of("type", self.type, ("tool_call",))
            checks.one_of("role", self.role, ("assistant",))
            checks.one_of("stop_reason", self.stop_reason, ("tool",))
        force_setattr(self, "tools", checks.items("tools", self.tools, tool_call))
        _check_told(self, _CALLS)

    def export(self) -> dict[str, JSON]:
        """Return it as a plain dict."""
        return plain(wire_of(self))


class ToolResultMessage(Struct, frozen=True, kw_only=True, gc=False):
    """What one call of a tool gave: `{"data": …}`, or `{"error": {name, message, kind}}`."""

    type: Literal["tool_result"] = "tool_result"
    role: Literal["tool_result"] = "tool_result"
    tool: ToolCall
    content: dict[str, JSON]
    stop_reason: Literal["tool"] = "tool"
    agent: str | None = None
    step: int | None = None
    duration_ms: int | None = None
    extras: dict[str, JSON] = NO_EXTRAS

    def __post_init__(self) -> None:
        if (self.type, self.role, self.stop_reason) != ("tool_result", "tool_result", "tool"):
            checks.one_of("type", self.type, ("tool_result",))
            checks.one_of("role", self.role, ("tool_result",))
            checks.one_of("stop_reason", self.stop_reason, ("tool",))
        if not isinstance(self.tool, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance] - a dict
            force_setattr(self, "tool", checks.read_as("tool", tool_call, self.tool))
        force_setattr(self, "content", _content(self.content))
        checks.whole_or_none("duration_ms", self.duration_ms)
        _check_told(self, _RESULT)

    def export(self) -> dict[str, JSON]:
        """Return it as a plain dict."""
        return plain(wire_of(self))


Message: TypeAlias = TextMessage | ToolCallMessage | ToolResultMessage
GivenMessage: TypeAlias = Message | dict[str, Any]
"""A message, or its plain dict."""


def _fields(kind: type[Struct]) -> frozenset[str]:
    return frozenset(kind.__struct_fields__) - {"extras"}


_CALL: Final = _fields(ToolCall)
_TEXT: Final = _fields(TextMessage)
_CALLS: Final = _fields(ToolCallMessage)
_RESULT: Final = _fields(ToolResultMessage)
_READ: Final[dict[object, tuple[Callable[..., Message], frozenset[str], tuple[str, ...]]]] = {
    "text": (TextMessage, _TEXT, ("role", "content")),
    "tool_call": (ToolCallMessage, _CALLS, ("role", "tools")),
    "tool_result": (ToolResultMessage, _RESULT, ("role", "tool", "content")),
}
"""By the type of message: its class, its fields, and those that a dict must have."""


def message(given: object) -> Message:
    """Return *given*, a message or its plain dict, as a message; else InvalidInput."""
    if not isinstance(given, dict):
        if isinstance(given, TextMessage | ToolCallMessage | ToolResultMessage):
            return given
        raise InvalidInput(HERE, "must be a message or an object", given=given)
    found = cast("dict[str, Any]", given)
    told = found.get("type")
    if not isinstance(told, str) or told not in _READ:
        if "type" not in found:
            raise InvalidInput("type", "is missing")
        checks.one_of("type", told, _READ)
    kind, fields, required = _READ[cast("str", told)]
    return checks.made(kind, checks.gathered(found, fields), required)


def tool_call(given: object) -> ToolCall:
    """Return *given*, a call or its plain dict, as a call; else InvalidInput."""
    if isinstance(given, ToolCall):
        return given
    found = checks.gathered(checks.members(given), _CALL)
    return checks.made(ToolCall, found, ("id", "name", "input"))


def messages_of(field: str, given: object) -> list[Message]:
    """Return *given* as a read-only list of messages; InvalidInput about a place in *field*."""
    return checks.items(field, given, message)


def wire_of(value: Message | ToolCall) -> dict[str, Any]:
    """Return the members of *value* as they are written: its fields, then its extras.

    They are what it holds, to be encoded and not to be handed out. Spelled out, for this is most
    of what it costs to write a state.
    """
    if isinstance(value, TextMessage):
        wire = {
            "type": value.type,
            "role": value.role,
            "content": value.content,
            "stop_reason": value.stop_reason,
            "agent": value.agent,
            "step": value.step,
        }
    elif isinstance(value, ToolCall):
        wire = {"type": value.type, "id": value.id, "name": value.name, "input": value.input}
    else:
        wire = _tool_wire(value)
    return wire if value.extras is NO_EXTRAS else wire | value.extras


def _tool_wire(value: ToolCallMessage | ToolResultMessage) -> dict[str, Any]:
    if isinstance(value, ToolCallMessage):
        return {
            "type": value.type,
            "role": value.role,
            "tools": [wire_of(each) for each in value.tools],
            "stop_reason": value.stop_reason,
            "agent": value.agent,
            "step": value.step,
        }
    return {
        "type": value.type,
        "role": value.role,
        "tool": wire_of(value.tool),
        "content": value.content,
        "stop_reason": value.stop_reason,
        "agent": value.agent,
        "step": value.step,
        "duration_ms": value.duration_ms,
    }


def plain(wire: dict[str, Any]) -> dict[str, JSON]:
    """Return a copy of *wire* in plain types, which is the caller's own."""
    return cast("dict[str, JSON]", json_values.decode(_encode(wire)))


def _check_told(told: Message, fields: frozenset[str]) -> None:
    """InvalidInput unless what every message may have is as it must be; freeze its extras."""
    if told.agent is not None:
        checks.text("agent", told.agent)
    if told.step is not None:
        checks.whole("step", told.step)
    if told.extras is not NO_EXTRAS:
        force_setattr(told, "extras", checks.extra_members(told.extras, fields))


def _part(given: object) -> dict[str, JSON]:
    """Return *given*, one part of a text, read-only."""
    found = checks.members(given)
    checks.one_of("type", found.get("type"), ("text",))
    checks.text("text", found.get("text"))
    return cast("dict[str, JSON]", kept(found, HERE))


def _content(given: object) -> dict[str, JSON]:
    """Return *given*, what a tool gave, read-only."""
    found = kept(given, "content")
    if not isinstance(found, dict) or len(found) != 1 or not found.keys() & {"data", "error"}:
        raise InvalidInput("content", "must hold either data or error", given=given)
    if "data" in found:
        return found
    error = found["error"]
    if not isinstance(error, dict):
        raise InvalidInput("content.error", "must be an object", given=error)
    for name in _ERROR:
        checks.text(f"content.error.{name}", error.get(name))
    checks.one_of("content.error.kind", error["kind"], _KINDS)
    return found
