"""The history of a state as messages: what was asked, what was said, calls beside their results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, cast

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.memories.state import message as checks
from holdfast.memories.state.history import WindowMessage
from holdfast.memories.state.message import (
    GivenMessage,
    Message,
    TextMessage,
    ToolCall,
    ToolCallMessage,
    ToolResultMessage,
    messages_of,
)
from holdfast.memories.state.note import note
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.view import EVERYTHING, View, selected

Formatter = Callable[[InferenceResult], Iterable[GivenMessage]]

_INTERRUPTED: Final[dict[str, JSON]] = {
    "error": {
        "name": "Interrupted",
        "message": "The call ended before the tool answered.",
        "kind": "interrupted",
    }
}


def formatted(
    opening: Iterable[Message],
    results: Iterable[InferenceResult],
    *,
    formatter: Formatter | None = None,
    agent: str | None = None,
    view: View | None = None,
) -> Iterator[WindowMessage]:
    """Give *opening*, then what *results* tell, oldest first, as *agent* sees it through *view*.

    *formatter* says what one result tells, instead of its input, texts, calls and their results.
    """
    view = view or EVERYTHING
    if agent is None and view.turns == "own":
        raise InvalidInput("agent", "must be given where turns are its own")
    yield from (WindowMessage(each, None) for each in selected(list(opening), view))
    previous: InferenceResult | None = None
    for result in results:
        other = agent is not None and result.agent != agent
        if other and view.turns == "own":
            continue
        told = _told(result, previous) if formatter is None else _formatted(result, formatter)
        previous = result
        if view.turns == "inputs":
            told = [each for each in told if each.role == "user"]
        shown = selected(told, view)
        if other and view.others == "note":
            shown = note(result.agent, shown)
        yield from (WindowMessage(each, result.id) for each in shown)


def _told(result: InferenceResult, previous: InferenceResult | None) -> list[Message]:
    """Return what *result* tells after *previous*: its input if that is new, then each step."""
    told: list[Message] = []
    if result.input and not _same_input(result, previous):
        told.append(TextMessage(role="user", content=result.input))
    texts, calls = _by_step(result)
    for step in sorted({*texts, *calls}):
        told.extend(texts.get(step, ()))
        answered = calls.get(step)
        if answered:
            told.append(
                ToolCallMessage(
                    tools=[each.tool for each in answered],
                    agent=answered[0].agent,
                    step=answered[0].step,
                )
            )
            told.extend(answered)
    return told


def _same_input(result: InferenceResult, previous: InferenceResult | None) -> bool:
    if previous is None or result.run_id is None:
        return False
    return (previous.run_id, previous.input) == (result.run_id, result.input)


def _by_step(
    result: InferenceResult,
) -> tuple[dict[int, list[Message]], dict[int, list[ToolResultMessage]]]:
    """Return the texts of *result*, and what each of its calls gave, both by step."""
    texts: dict[int, list[Message]] = {}
    called: list[tuple[ToolCallMessage, ToolCall]] = []
    returned = list(result.tool_calls)
    known = {each.tool.id for each in returned}
    for each in result.output:
        if isinstance(each, TextMessage):
            texts.setdefault(each.step or 0, []).append(each)
        elif isinstance(each, ToolCallMessage):
            called.extend((each, call) for call in each.tools)
        elif each.tool.id not in known:
            returned.append(each)
    calls: dict[int, list[ToolResultMessage]] = {}
    for step, answer in _answered(called, returned):
        calls.setdefault(step, []).append(answer)
    return texts, calls


def _answered(
    called: Iterable[tuple[ToolCallMessage, ToolCall]], returned: Sequence[ToolResultMessage]
) -> Iterator[tuple[int, ToolResultMessage]]:
    """Give what each call gave with its step: first those *called*, then others that *returned*.

    A call that nothing answers was interrupted.
    """
    waiting: dict[str, list[ToolResultMessage]] = {}
    for each in returned:
        waiting.setdefault(each.tool.id, []).append(each)
    for said, call in called:
        step, found = said.step or 0, waiting.get(call.id, [])
        at_step = [each for each in found if (each.step or 0) == step]
        if answers := at_step or found:
            waiting[call.id] = [each for each in found if each is not answers[0]]
            yield step, answers[0]
        else:
            yield step, _interrupted(said, call)
    for each in returned:
        if any(each is left for left in waiting[each.tool.id]):
            yield each.step or 0, each


def _interrupted(message: ToolCallMessage, call: ToolCall) -> ToolResultMessage:
    return ToolResultMessage(
        tool=call, content=_INTERRUPTED, agent=message.agent, step=message.step
    )


def _formatted(result: InferenceResult, formatter: Formatter) -> list[Message]:
    """Return what *formatter* makes of *result*, checked."""
    made = cast("object", formatter(result))
    with checks.whole_is("formatter"):
        return messages_of("formatter", made)
