"""Convert messages of pydantic-ai to ours, and back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias, cast

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace as replaced
from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
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

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON, is_nested_over
from holdfast.ground.text import whole
from holdfast.memories.state.history import View, Window, WindowMessage, windowed
from holdfast.memories.state.message import (
    ErrorKind,
    Message,
    TextMessage,
    ToolCall,
    ToolCallMessage,
    ToolResultMessage,
)
from holdfast.memories.state.result import InferenceResult, memo, text_of
from holdfast.memories.state.sources import Before, said_to
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.inference.pages import (
    STORED,
    STORED_LATE,
    ResultPages,
    beginning,
    paged,
    shown_again,
    stored,
)
from holdfast.runtime.inference.validation import DEPTH, NotJSON, json_form


def to_model(messages: Iterable[Message]) -> list[ModelMessage]:
    """Return *messages* for a model, consecutive messages of one side joined."""
    found: list[ModelMessage] = []
    for message in messages:
        last = found[-1] if found else None
        if isinstance(message, ToolCallMessage) or message.role == "assistant":
            if not isinstance(last, ModelResponse):
                last = ModelResponse([])
                found.append(last)
            last.parts = [*last.parts, *_response_parts(message)]
        else:
            if not isinstance(last, ModelRequest):
                last = ModelRequest([])
                found.append(last)
            last.parts = [*last.parts, _request_part(message)]
    return found


def error_text(error: dict[str, JSON]) -> str:
    """Return the text of a tool's *error* for a model."""
    name, message = error["name"], error["message"]
    return f"{name}: {message}" if message else str(name)


def _response_parts(message: Message) -> list[ModelResponsePart]:
    if isinstance(message, ToolCallMessage):
        return [_call(each) for each in message.tools]
    return [TextPart(text_of(message))]


def _request_part(message: Message) -> ModelRequestPart:
    if isinstance(message, ToolResultMessage):
        call, content = message.tool, message.content
        error = content.get("error")
        if not isinstance(error, dict):
            data = shown_again(content["data"], message.extras)
            return ToolReturnPart(call.name, data, call.id)
        part = ToolReturnPart(call.name, error_text(error), call.id)
        part.outcome = "interrupted" if error["kind"] == "interrupted" else "failed"
        return part
    text = text_of(cast("TextMessage", message))
    return SystemPromptPart(text) if message.role == "system" else UserPromptPart(text)


def _call(call: ToolCall) -> ToolCallPart:
    given = call.input
    if given is None or isinstance(given, str | dict):
        return ToolCallPart(call.name, given, call.id)
    return ToolCallPart(call.name, encode(given).decode(), call.id)


Content: TypeAlias = dict[str, JSON]


class ToolOutcome(Struct, frozen=True):
    """The outcome of one tool call: its content, duration in ms, and extras."""

    content: Content
    duration_ms: int | None = None
    extras: dict[str, JSON] = {}


Answers: TypeAlias = Mapping[tuple[int, str], ToolOutcome]
"""Outcomes by step and call id."""


def failure(name: str, message: str, kind: ErrorKind) -> Content:
    """Return the content of a failed call."""
    return {"error": {"name": whole(name), "message": whole(message), "kind": kind}}


def said(response: ModelResponse) -> str:
    """Return the text of *response*, its parts joined."""
    return whole("".join(part.content for part in response.parts if isinstance(part, TextPart)))


def calls(response: ModelResponse) -> list[ToolCallPart]:
    """Return the calls of our tools in *response*."""
    return [part for part in response.parts if isinstance(part, ToolCallPart)]


def tool_call(part: ToolCallPart) -> ToolCall:
    """Return the call in *part*, with its arguments as JSON, or as text if invalid."""
    given: Any = part.args
    if isinstance(given, str) and is_nested_over(given, DEPTH):
        given = whole(given)
    elif isinstance(given, str):
        try:
            given = json_form(decode(given))
        except (DecodeError, UnicodeEncodeError, NotJSON):
            given = whole(given)
    name = whole(part.tool_name)
    try:
        return ToolCall(id=part.tool_call_id, name=name, input=given)
    except InvalidInput:
        # Numbers or nesting past what a message holds: then its text.
        sent = part.args if isinstance(part.args, str) else part.args_as_json_str()
        return ToolCall(id=part.tool_call_id, name=name, input=whole(sent))


def content_of(part: ToolReturnPart) -> Content:
    """Return the content of a call of which only *part* is known."""
    if part.outcome == "success":
        try:
            return {"data": json_form(cast("object", part.content))}
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
        # The text of an exception for a model begins with its class.
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
    """Return the reason of a refused call: a text, or the problems by place."""
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
    """Return the model's texts in *messages*, one for each reply with text."""
    found: list[Message] = []
    responses = [each for each in messages if isinstance(each, ModelResponse)]
    for step, response in enumerate(responses, 1):
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
    """Return the results of the calls in *messages*, in the order of the calls.

    *answers* has more facts of a call than the model got. A call without a result is left out.
    """
    found: list[ToolResultMessage] = []
    for step, response, parts in _steps(messages):
        for part in calls(response):
            answer = answers.get((step, part.tool_call_id))
            back = parts.get(part.tool_call_id)
            if answer is None and back is not None:
                answer = limited(content_of(back))
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
        extras=answer.extras,
    )


def limited(content: Content, pages: ResultPages | None = None) -> ToolOutcome:
    """Return the outcome of *content*, of which a record keeps the beginning.

    A long error is kept in *pages*.
    """
    error = content.get("error")
    if not isinstance(error, dict):
        found = paged(content["data"], pages or ResultPages(STORED))
        return ToolOutcome({"data": found.stored}, extras=found.extras)
    found = paged(error_text(error), pages or ResultPages(STORED))
    if not found.paged:
        return ToolOutcome(content)
    return ToolOutcome(_cut(error, STORED), extras=found.extras)


def reduced(outcome: ToolOutcome) -> ToolOutcome:
    """Return *outcome* with 1 KiB of its content, for a record that is full."""
    error = outcome.content.get("error")
    if isinstance(error, dict):
        return replaced(outcome, content=_cut(error, STORED_LATE))
    kept, size = stored(outcome.content["data"], STORED_LATE)
    return replaced(outcome, content={"data": kept}, extras=outcome.extras or size)


def _cut(error: dict[str, JSON], most: int) -> Content:
    return {"error": {name: beginning(str(each), most) for name, each in error.items()}}


def _steps(
    messages: Iterable[ModelMessage],
) -> list[tuple[int, ModelResponse, dict[str, ToolReturnPart]]]:
    """Return each reply with its step, and the returned parts of its calls by id."""
    found: list[tuple[int, ModelResponse, dict[str, ToolReturnPart]]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            found.append((len(found) + 1, message, {}))
        elif found:
            back = [part for part in message.parts if isinstance(part, ToolReturnPart)]
            found[-1][2].update((part.tool_call_id, part) for part in back)
    return found


Signature: TypeAlias = list[tuple[object, ...]]


class HistoryTurn(Struct, frozen=True):
    """The messages of one result, and the provider's own form where it is available."""

    messages: tuple[Message, ...]
    native: list[ModelMessage] | None = None


class HistoryTurns(Struct, frozen=True, kw_only=True):
    """The opening, earlier runs' turns, this run's turns, and the budget's window."""

    opening: list[Message]
    earlier: list[HistoryTurn]
    later: list[HistoryTurn]
    window: Window | None
    before: Before


def turns_of(state: NetworkState, *, agent: str, run_id: str, view: View) -> HistoryTurns:
    """Return the turns of *state* for *agent* in the run *run_id* through *view*.

    The input of this run is in none of the turns: it is sent once, by itself.
    """
    results = {result.id: result for result in state.results}
    there = list(results.values())
    said = said_to(state.messages, there, agent=agent, run_id=run_id, view=view)
    before = Before(said=said, results=there, run_id=run_id, view=view)
    window = None
    if view.budget is not None:
        window = windowed(said, budget=view.budget, measure=view.measure)
        kept = {id(each) for each in window.messages}
        said = [each for each in said if id(each.message) in kept]
    opening = [each.message for each in said if each.result_id is None]
    earlier: list[HistoryTurn] = []
    later: list[HistoryTurn] = []
    for result_id, spoken in _grouped(said).items():
        result = results[result_id]
        turn = HistoryTurn(
            tuple(spoken), _native(result, spoken) if result.agent == agent else None
        )
        (later if result.run_id == run_id else earlier).append(turn)
    return HistoryTurns(opening=opening, earlier=earlier, later=later, window=window, before=before)


def _grouped(said: Iterable[WindowMessage]) -> dict[str, list[Message]]:
    groups: dict[str, list[Message]] = {}
    for each in said:
        if each.result_id is not None:
            groups.setdefault(each.result_id, []).append(each.message)
    return groups


def _native(result: InferenceResult, spoken: Sequence[Message]) -> list[ModelMessage] | None:
    """Return *spoken* from the exchange itself, to send signatures and reasoning back.

    None where the two differ: a hook or a view changed what the agent sees.
    """
    if not result.raw:
        return None
    known: list[HistoryTurn] = memo(result, "native", list[HistoryTurn])
    if not known or not _are_same(known[0].messages, spoken):
        known[:] = [HistoryTurn(tuple(spoken), _exchanged(result, spoken))]
    found = known[0].native
    # A run may set fields of a message that it is given.
    return None if found is None else [copy(each) for each in found]


def _are_same(one: Sequence[Message], other: Sequence[Message]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _exchanged(result: InferenceResult, spoken: Sequence[Message]) -> list[ModelMessage] | None:
    prompts = [each for each in spoken[:1] if each.role == "user"]
    try:
        exchanged = ModelMessagesTypeAdapter.validate_json(result.raw)
    except ValidationError:
        return None
    restored = [
        *texts(exchanged, result.agent),
        *tool_results(exchanged, result.agent, {}),
    ]
    if _signature(spoken[len(prompts) :]) != _signature(restored):
        return None
    return [*to_model(prompts), *exchanged]


def _signature(messages: Iterable[Message]) -> Signature:
    """Return the contents of *messages*: texts, then tool results, without instants."""
    said: Signature = []
    returned: Signature = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            call = message.tool
            returned.append((call.id, call.name, call.input, _came(message)))
        elif not isinstance(message, ToolCallMessage):
            said.append((message.role, text_of(message)))
    return [*said, *returned]


def _came(message: ToolResultMessage) -> object:
    """Return what a model got of *message*; of a part its place in the whole."""
    error = message.content.get("error")
    if isinstance(error, dict):
        return error_text(error)
    match shown_again(message.content["data"], message.extras):
        case {"part": {"result_id": id, "offset": offset, "total": total}, "text": _}:
            return id, offset, total
        case data:
            return data
