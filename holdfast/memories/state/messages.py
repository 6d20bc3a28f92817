"""Makes messages, and reads what they say."""

from typing import Any, cast

from msgspec import UNSET

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.memories.state import message as checks
from holdfast.memories.state.history import Omitted, Window, size_bytes, window
from holdfast.memories.state.message import (
    ErrorKind,
    GivenMessage,
    Message,
    TextMessage,
    ToolCall,
    ToolCallMessage,
    ToolResultMessage,
    message,
)
from holdfast.memories.state.result import text_of
from holdfast.memories.state.view import select

__all__ = [
    "ErrorKind",
    "GivenMessage",
    "Message",
    "Omitted",
    "TextMessage",
    "ToolCall",
    "ToolCallMessage",
    "ToolResultMessage",
    "Window",
    "assistant",
    "call",
    "from_dict",
    "result",
    "select",
    "size_bytes",
    "system",
    "text",
    "user",
    "window",
]


def system(text: str) -> TextMessage:
    """Return *text* as what the system said."""
    return TextMessage(role="system", content=text)


def user(text: str) -> TextMessage:
    """Return *text* as what a user said."""
    return TextMessage(role="user", content=text)


def assistant(text: str) -> TextMessage:
    """Return *text* as what an agent said."""
    return TextMessage(role="assistant", content=text)


def call(id: str, name: str, input: object) -> ToolCallMessage:
    """Return one call of the tool *name* with *input*, under the call's *id*."""
    return ToolCallMessage(tools=[_call(id, name, input)])


def result(
    id: str,
    name: str,
    input: object,
    *,
    data: object = UNSET,
    error: dict[str, Any] | None = None,
) -> ToolResultMessage:
    """Return what the call *id* of the tool *name* gave: *data*, or an *error*, not both.

    An error is `{"name", "message", "kind"}`.
    """
    if (data is UNSET) == (error is None):
        raise InvalidInput("content", "must hold either data or error")
    content: dict[str, Any] = {"data": data} if error is None else {"error": error}
    return ToolResultMessage(tool=_call(id, name, input), content=content)


def text(message: GivenMessage) -> str:
    """Return the text of *message*, its parts joined; "" for calls of tools and their results."""
    return text_of(from_dict(message))


def from_dict(given: GivenMessage) -> Message:
    """Return the message that the plain dict *given* tells of; a message is returned as it is."""
    with checks.whole_is("message"):
        return message(given)


def _call(id: str, name: str, input: object) -> ToolCall:
    # What it is given becomes JSON, or is refused, as it is made.
    return ToolCall(id=id, name=name, input=cast("JSON", input))
