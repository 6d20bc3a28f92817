"""Our messages, as pydantic-ai sends them."""

from collections.abc import Iterable
from typing import cast

from msgspec.json import encode
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from holdfast.ground.json_values import JSON
from holdfast.memories.state.message import (
    Message,
    TextMessage,
    ToolCall,
    ToolCallMessage,
    ToolResultMessage,
)
from holdfast.memories.state.result import text_of


def to_model(messages: Iterable[Message]) -> list[ModelMessage]:
    """Return *messages* as they are sent: what one side says in a row is one message."""
    found: list[ModelMessage] = []
    for message in messages:
        last = found[-1] if found else None
        if isinstance(message, ToolCallMessage) or message.role == "assistant":
            if not isinstance(last, ModelResponse):
                last = ModelResponse([])
                found.append(last)
            last.parts = [*last.parts, *_said(message)]
        else:
            if not isinstance(last, ModelRequest):
                last = ModelRequest([])
                found.append(last)
            last.parts = [*last.parts, _heard(message)]
    return found


def error_text(error: dict[str, JSON]) -> str:
    """Return what a model is told of the *error* of a tool."""
    name, message = error["name"], error["message"]
    return f"{name}: {message}" if message else str(name)


def _said(message: Message) -> list[ModelResponsePart]:
    if isinstance(message, ToolCallMessage):
        return [_call(each) for each in message.tools]
    return [TextPart(text_of(message))]


def _heard(message: Message) -> ModelRequestPart:
    if isinstance(message, ToolResultMessage):
        return _returned(message)
    text = text_of(cast("TextMessage", message))
    return SystemPromptPart(text) if message.role == "system" else UserPromptPart(text)


def _call(call: ToolCall) -> ToolCallPart:
    given = call.input
    if given is None or isinstance(given, str | dict):
        return ToolCallPart(call.name, given, call.id)
    return ToolCallPart(call.name, encode(given).decode(), call.id)


def _returned(message: ToolResultMessage) -> ToolReturnPart:
    call, content = message.tool, message.content
    error = content.get("error")
    if not isinstance(error, dict):
        return ToolReturnPart(call.name, content["data"], call.id)
    part = ToolReturnPart(call.name, error_text(error), call.id)
    part.outcome = "interrupted" if error["kind"] == "interrupted" else "failed"
    return part
