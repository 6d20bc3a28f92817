"""What pydantic-ai got from a model and its tools, as our messages."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from msgspec import DecodeError
from msgspec.json import decode
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.memories.state.message import (
    ErrorKind,
    Message,
    TextMessage,
    ToolCall,
    ToolResultMessage,
)
from holdfast.runtime.inference.json_form import NotJSON, json_form

Content: TypeAlias = dict[str, JSON]


class ToolOutcome:
    """What one call of a tool came to: its content, and how long it took."""

    def __init__(self, content: Content, duration_ms: int | None = None) -> None:
        self.content, self.duration_ms = content, duration_ms


Answers: TypeAlias = Mapping[tuple[int, str], ToolOutcome]
"""By the step and the id of the call."""


def failure(name: str, message: str, kind: ErrorKind) -> Content:
    """Return the content of a call that gave no data."""
    return {"error": {"name": whole(name), "message": whole(message), "kind": kind}}


def whole(text: str) -> str:
    """Return *text* with each lone half of a character replaced."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def said(response: ModelResponse) -> str:
    """Return the text of *response*, its pieces joined."""
    return whole("".join(part.content for part in response.parts if isinstance(part, TextPart)))


def calls(response: ModelResponse) -> list[ToolCallPart]:
    """Return the calls of our tools that *response* asks for."""
    return [part for part in response.parts if isinstance(part, ToolCallPart)]


def tool_call(part: ToolCallPart) -> ToolCall:
    """Return the call *part* asks for, with what the model sent; as text where that is no JSON."""
    given: Any = part.args
    if isinstance(given, str):
        try:
            given = decode(given)
        except (DecodeError, UnicodeEncodeError):
            given = whole(given)
    name = whole(part.tool_name)
    try:
        return ToolCall(id=part.tool_call_id, name=name, input=given)
    except InvalidInput:
        # Numbers or nesting past what a message holds: then its text.
        sent = part.args if isinstance(part.args, str) else part.args_as_json_str()
        return ToolCall(id=part.tool_call_id, name=name, input=whole(sent))


def content_of(part: ToolReturnPart) -> Content:
    """Return what *part* tells of its call, of which nothing else is known."""
    if part.outcome == "success":
        try:
            return {"data": json_form(part.content)}
        except NotJSON as error:
            return failure("NotJSON", str(error), "not_json")
    cause = part.retry.cause if part.retry else None
    kind: ErrorKind = "bad_arguments"
    if part.outcome in ("denied", "interrupted"):
        kind = cast("ErrorKind", part.outcome)
    elif part.outcome == "failed":
        kind = "raised"
    elif cause in ("unknown_tool", "unavailable_tool"):
        kind = "unknown_tool"
    name, reason = _NAMES[kind], _reason(part.content)
    if kind == "raised" and ": " in reason:
        # What a model is told of an exception begins with its class.
        name, _, reason = reason.partition(": ")
    return failure(name, reason, kind)


_NAMES: Mapping[ErrorKind, str] = {
    "bad_arguments": "BadArguments",
    "denied": "Denied",
    "interrupted": "Interrupted",
    "raised": "ToolFailed",
    "unknown_tool": "UnknownTool",
}


def _reason(content: object) -> str:
    """Return why a call was refused: a text, or what validation found, a place each."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "; ".join(map(_problem, cast("list[object]", content)))
    return str(content)


def _problem(found: object) -> str:
    if not isinstance(found, dict):
        return str(found)
    problem = cast("dict[str, Any]", found)
    place = ".".join(map(str, problem.get("loc", ()))) or "arguments"
    return f"{place}: {problem.get('msg', problem)}"


def texts(messages: Iterable[ModelMessage], agent: str) -> list[Message]:
    """Return what the model said in *messages*, a text for each reply that has one."""
    found: list[Message] = []
    for step, response in _replies(messages):
        if text := said(response):
            stop = "tool" if calls(response) else "stop"
            found.append(
                TextMessage(
                    role="assistant", content=text, stop_reason=stop, agent=agent, step=step
                )
            )
    return found


def tool_results(
    messages: Iterable[ModelMessage], agent: str, answers: Answers
) -> list[ToolResultMessage]:
    """Return what the calls in *messages* came to, in the order they were asked for.

    *answers* knows more of a call than what the model was told. A call that has no answer yet is
    left out.
    """
    found: list[ToolResultMessage] = []
    for step, response, parts in _steps(messages):
        for part in calls(response):
            answer = answers.get((step, part.tool_call_id))
            back = parts.get(part.tool_call_id)
            if answer is None and back is not None:
                answer = ToolOutcome(content_of(back))
            if answer is not None:
                found.append(_result(part, agent, step, answer))
    return found


def _result(part: ToolCallPart, agent: str, step: int, answer: ToolOutcome) -> ToolResultMessage:
    make: Callable[..., ToolResultMessage] = ToolResultMessage
    return make(
        tool=tool_call(part),
        content=answer.content,
        agent=agent,
        step=step,
        duration_ms=answer.duration_ms,
    )


def _replies(messages: Iterable[ModelMessage]) -> list[tuple[int, ModelResponse]]:
    responses = [each for each in messages if isinstance(each, ModelResponse)]
    return list(enumerate(responses, 1))


def _steps(
    messages: Iterable[ModelMessage],
) -> list[tuple[int, ModelResponse, dict[str, ToolReturnPart]]]:
    """Return each reply with its step and, by id, what came back for its calls."""
    found: list[tuple[int, ModelResponse, dict[str, ToolReturnPart]]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            found.append((len(found) + 1, message, {}))
        elif found:
            back = [part for part in message.parts if isinstance(part, ToolReturnPart)]
            found[-1][2].update((part.tool_call_id, part) for part in back)
    return found
