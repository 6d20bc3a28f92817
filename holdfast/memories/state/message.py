"""Message types of network state, with their checks and limits.

All are frozen and deeply read-only. Each may be given as a plain dict as well; unknown members of
a dict are stored in `extras`, and written back beside the fields.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput, LimitExceeded, shortened
from holdfast.ground.json_values import DEEPEST, JSON
from holdfast.ground.text import encoded
from holdfast.memories.state.frozen import ReadOnlyDict, ReadOnlyList, kept


class StateLimits(Struct, frozen=True, kw_only=True):
    """How much one network state may hold; sizes are bytes, of values as compact JSON.

    `depth` is how deep a value may be nested, `result_bytes` the most that one result may take.
    """

    key_bytes: int = 256
    value_bytes: int = 1_048_576
    depth: int = 64
    keys: int = 10_000
    total_bytes: int = 16_777_216
    result_bytes: int = 16_777_216

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            limit: object = getattr(self, name)
            if type(limit) is not int or limit < 1:
                raise InvalidInput(name, "must be a whole number from 1", given=limit)
        # A deeper value could be written, and its state not be read back.
        if self.depth > DEEPEST:
            raise InvalidInput("depth", f"must be at most {DEEPEST}", given=self.depth)


UNLESS_SAID = StateLimits()
"""The default limits of a state."""


def over(limit: str, *, allowed: int, actual: int, key: str) -> LimitExceeded:
    """Return the error for a write of *key* that exceeds the *limit* of that name."""
    return LimitExceeded(
        limit,
        allowed=allowed,
        actual=actual,
        what=shortened(key),
        next=f"Store a reference to it, or raise the limit: StateLimits({limit}=…).",
    )


RESERVED = "holdfast:"
"""Prefix of keys that are reserved."""


def checked_key(key: object, limits: StateLimits) -> str:
    """Return *key* if it is well formed; else InvalidInput."""
    found = encoded("key", key).decode()
    size = len(found.encode())
    if not 1 <= size <= limits.key_bytes:
        raise InvalidInput(
            "key",
            f"must have 1 to {limits.key_bytes:,} bytes of UTF-8, has {size:,}",
            limit=limits.key_bytes,
            given=found,
        )
    if any(char < " " or char == "\x7f" for char in found):
        raise InvalidInput("key", "must not hold control characters", given=found)
    if found.startswith(RESERVED):
        raise InvalidInput("key", f"must not begin with {RESERVED}", given=found)
    return found


T = TypeVar("T")

HERE: Final = "$"
"""The field of an error about the whole value."""

NO_ITEMS: Final[list[Any]] = ReadOnlyList()
"""A shared empty list."""

NO_EXTRAS: Final[dict[str, JSON]] = ReadOnlyDict()
"""Shared empty extras, those of nearly every message."""


def within(place: str, error: InvalidInput) -> InvalidInput:
    """Return *error* as raised one level up, where the value is the member *place*.

    An error with more facts than a place, such as a `ChecksumMismatch`, is returned unchanged.
    """
    if type(error) is not InvalidInput:
        return error
    field = place if error.field == HERE else f"{place}.{error.field}"
    nested = InvalidInput(
        field, error.reason, limit=error.limit, given=error.given, next=error.next
    )
    return nested.with_traceback(error.__traceback__)


def read_as(place: str, read: Callable[[object], T], value: object) -> T:
    """Return `read(value)`; its errors name a place in the member *place*."""
    try:
        return read(value)
    except InvalidInput as error:
        raise within(place, error) from error.__cause__


@contextmanager
def inside(place: str) -> Generator[None]:
    """Raise the block's errors with a place in the member *place*."""
    try:
        yield
    except InvalidInput as error:
        raise within(place, error) from error.__cause__


@contextmanager
def whole_is(name: str) -> Generator[None]:
    """Raise the block's errors about the whole value with the field *name*."""
    try:
        yield
    except InvalidInput as error:
        if error.field != HERE:
            raise
        raise within(name, error) from error.__cause__


def text(field: str, value: object, *, least: int = 0) -> str:
    """Return *value* if it is text of *least* characters or more; else InvalidInput."""
    if not isinstance(value, str) or len(value) < least:
        wanted = "a string that is not empty" if least else "a string"
        raise InvalidInput(field, f"must be {wanted}", given=value)
    if not value.isascii():
        encoded(field, value)
    return value


def text_or_none(field: str, value: object) -> str | None:
    """Return *value* if it is None or text; else InvalidInput."""
    return None if value is None else text(field, value)


MOST_NAME: Final = 512
"""Bytes of the name of a run, a network or an agent."""


def checked_name(field: str, given: object) -> str:
    """Validate the name of a run, a network or an agent: 1 to 512 bytes."""
    name = text(field, given, least=1)
    if len(name.encode()) > MOST_NAME or "\0" in name:
        reason = f"must be at most {MOST_NAME} bytes, without U+0000"
        raise InvalidInput(field, reason, limit=MOST_NAME, given=name)
    return name


def whole_or_none(field: str, value: object) -> int | None:
    """Return *value* if it is None or a whole number of 0 or more; else InvalidInput."""
    return None if value is None else whole(field, value)


def whole(field: str, value: object) -> int:
    """Return *value* if it is a whole number from 0 to 2^63 - 1; else InvalidInput."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise InvalidInput(field, "must be a whole number from 0 to 2^63 - 1", given=value)
    return value


def one_of(field: str, value: object, allowed: Collection[object]) -> None:
    """Raise `InvalidInput` unless *value* is one of *allowed*."""
    if not isinstance(value, str | None) or value not in allowed:
        names = ", ".join(map(repr, allowed))
        raise InvalidInput(field, f"must be {'one of ' * (len(allowed) > 1)}{names}", given=value)


def members(value: object) -> dict[str, Any]:
    """Return *value* if it is a dict with text as keys; else InvalidInput."""
    if not isinstance(value, dict):
        raise InvalidInput(HERE, "must be an object", given=value)
    found = cast("dict[object, Any]", value)
    for name in found:
        if not isinstance(name, str):
            raise InvalidInput(HERE, "must have strings as keys", given=name)
    return cast("dict[str, Any]", found)


def items(field: str, value: object, read: Callable[[object], T]) -> list[T]:
    """Return a read-only list of `read(item)` for each item of *value*."""
    if not isinstance(value, list | tuple):
        raise InvalidInput(field, "must be a list", given=value)
    found = cast("Sequence[object]", value)
    if not found:
        return NO_ITEMS
    made: list[T] = []
    try:
        for each in found:
            made.append(read(each))  # noqa: PERF401 - its length is the place of an error
    except InvalidInput as error:
        raise within(f"{field}[{len(made)}]", error) from error.__cause__
    return ReadOnlyList(made)


def extra_members(value: object, fields: Collection[str]) -> dict[str, JSON]:
    """Return the members *value* that are none of *fields*, read-only.

    Raise `InvalidInput` for other values.
    """
    if value is NO_EXTRAS:
        return NO_EXTRAS
    if not isinstance(value, dict):
        raise InvalidInput("extras", "must be a dict", given=value)
    found = cast("dict[str, JSON]", kept(cast("object", value), "extras"))
    for name in found:
        if name in fields or name == "extras":
            raise InvalidInput("extras", "must not hold a member that is a field", given=name)
    return found or NO_EXTRAS


def gathered(given: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """Return the arguments in *given*, with unknown members in `extras`.

    A member `extras` that is an object counts as more such members.
    """
    if fields.issuperset(given):
        return given
    known: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, each in given.items():
        if name in fields:
            known[name] = each
        elif name == "extras" and isinstance(each, dict):
            others |= cast("dict[str, Any]", each)
        else:
            others[name] = each
    return {**known, "extras": others}


def made(kind: Callable[..., T], given: dict[str, Any], required: Iterable[str]) -> T:
    """Return *kind*(**given*); InvalidInput if one of *required* is missing."""
    for name in required:
        if name not in given:
            raise InvalidInput(name, "is missing")
    return kind(**given)


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
"""Why a call of a tool failed."""

_encode: Final = msgspec.json.Encoder().encode
_ROLES: Final = get_args(Role)
_STOPS: Final = (*get_args(StopReason), None)
_KINDS: Final = get_args(ErrorKind)
_ERROR: Final = ("name", "message", "kind")


class ToolCall(Struct, frozen=True, kw_only=True, gc=False):
    """One call of a tool.

    `input` is what the model sent: JSON, or its text if that is not JSON.
    """

    type: Literal["tool"] = "tool"
    id: str
    name: str
    input: JSON = None
    extras: dict[str, JSON] = NO_EXTRAS

    def __post_init__(self) -> None:
        if self.type != "tool":
            one_of("type", self.type, ("tool",))
        text("id", self.id, least=1)
        text("name", self.name)
        force_setattr(self, "input", kept(self.input, "input"))
        if self.extras is not NO_EXTRAS:
            force_setattr(self, "extras", extra_members(self.extras, _CALL))

    def export(self) -> dict[str, JSON]:
        """Return it as a plain dict."""
        return plain(wire_of(self))


class TextMessage(Struct, frozen=True, kw_only=True, gc=False):
    """A text of the system, a user or an agent."""

    type: Literal["text"] = "text"
    role: Role
    content: str | list[dict[str, JSON]]
    stop_reason: StopReason | None = None
    agent: str | None = None
    step: int | None = None
    extras: dict[str, JSON] = NO_EXTRAS

    def __post_init__(self) -> None:
        if self.type != "text" or self.role not in _ROLES or self.stop_reason not in _STOPS:
            one_of("type", self.type, ("text",))
            one_of("role", self.role, _ROLES)
            one_of("stop_reason", self.stop_reason, _STOPS)
        if isinstance(self.content, list | tuple):
            force_setattr(self, "content", items("content", self.content, _part))
        else:
            text("content", self.content)
        _check_common(self, _TEXT)

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
            one_of("type", self.type, ("tool_call",))
            one_of("role", self.role, ("assistant",))
            one_of("stop_reason", self.stop_reason, ("tool",))
        force_setattr(self, "tools", items("tools", self.tools, tool_call))
        _check_common(self, _CALLS)

    def export(self) -> dict[str, JSON]:
        """Return it as a plain dict."""
        return plain(wire_of(self))


class ToolResultMessage(Struct, frozen=True, kw_only=True, gc=False):
    """The result of one call of a tool.

    It is `{"data": …}`, or `{"error": {name, message, kind}}`.
    """

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
            one_of("type", self.type, ("tool_result",))
            one_of("role", self.role, ("tool_result",))
            one_of("stop_reason", self.stop_reason, ("tool",))
        if not isinstance(self.tool, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance] - a dict
            force_setattr(self, "tool", read_as("tool", tool_call, self.tool))
        force_setattr(self, "content", _content(self.content))
        whole_or_none("duration_ms", self.duration_ms)
        _check_common(self, _RESULT)

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
    name = found.get("type")
    if not isinstance(name, str) or name not in _READ:
        if "type" not in found:
            raise InvalidInput("type", "is missing")
        one_of("type", name, _READ)
    kind, fields, required = _READ[cast("str", name)]
    return made(kind, gathered(found, fields), required)


def tool_call(given: object) -> ToolCall:
    """Return *given*, a call or its plain dict, as a call; else InvalidInput."""
    if isinstance(given, ToolCall):
        return given
    found = gathered(members(given), _CALL)
    return made(ToolCall, found, ("id", "name", "input"))


def messages_of(field: str, given: object) -> list[Message]:
    """Return *given* as a read-only list of messages.

    `InvalidInput` names a place in *field*.
    """
    return items(field, given, message)


def wire_of(value: Message | ToolCall) -> dict[str, Any]:
    """Return the members of *value* as they are written: its fields, then its extras.

    They are not copied: encode them, do not return them to a caller. The fields are spelled out
    because this is most of the cost of writing a state.
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


def _check_common(given: Message, fields: frozenset[str]) -> None:
    """Validate the fields that all messages have, and freeze the extras."""
    if given.agent is not None:
        text("agent", given.agent)
    if given.step is not None:
        whole("step", given.step)
    if given.extras is not NO_EXTRAS:
        force_setattr(given, "extras", extra_members(given.extras, fields))


def _part(given: object) -> dict[str, JSON]:
    """Return *given*, one part of a text, read-only."""
    found = members(given)
    one_of("type", found.get("type"), ("text",))
    text("text", found.get("text"))
    return cast("dict[str, JSON]", kept(found, HERE))


def _content(given: object) -> dict[str, JSON]:
    """Return *given*, the content of a tool's result, read-only."""
    found = kept(given, "content")
    if not isinstance(found, dict) or len(found) != 1 or not found.keys() & {"data", "error"}:
        raise InvalidInput("content", "must hold either data or error", given=given)
    if "data" in found:
        return found
    error = found["error"]
    if not isinstance(error, dict):
        raise InvalidInput("content.error", "must be an object", given=error)
    for name in _ERROR:
        text(f"content.error.{name}", error.get(name))
    one_of("content.error.kind", error["kind"], _KINDS)
    return found


def to_milliseconds(field: str, instant: object) -> datetime:
    """Return *instant* in UTC, cut to milliseconds; `InvalidInput` if it is naive."""
    if not isinstance(instant, datetime):
        raise InvalidInput(field, "must be a datetime", given=instant)
    if instant.tzinfo is not UTC:
        if instant.utcoffset() is None:
            raise InvalidInput(field, "must be aware of its time zone", given=instant)
        try:
            instant = instant.astimezone(UTC)
        except OverflowError:
            raise InvalidInput(field, "must be in the years 1 to 9999", given=instant) from None
    odd = instant.microsecond % 1000
    return instant - timedelta(microseconds=odd) if odd else instant


def to_text(instant: datetime) -> str:
    """Return *instant*, which is in UTC, with three fraction digits and `Z`."""
    return instant.isoformat(timespec="milliseconds")[:-6] + "Z"


def from_text(field: str, text: object) -> datetime:
    """Parse *text*, an instant in RFC 3339; raise `InvalidInput` for other text."""
    if not isinstance(text, str):
        raise InvalidInput(field, "must be an instant as text", given=text)
    try:
        return to_milliseconds(field, datetime.fromisoformat(text))
    except ValueError:
        raise InvalidInput(field, "must be an instant as text", given=text) from None
