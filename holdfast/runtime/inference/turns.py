"""What was said before a call, by turns: whose they are, and how a provider knows them."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct
from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from holdfast.memories.state.history import View, Window, WindowMessage, formatted, windowed
from holdfast.memories.state.message import (
    Message,
    TextMessage,
    ToolCallMessage,
    ToolResultMessage,
)
from holdfast.memories.state.result import InferenceResult, text_of
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.inference.messages import texts, tool_results
from holdfast.runtime.inference.to_model import error_text, to_model

Signature: TypeAlias = list[tuple[object, ...]]


class HistoryTurn(Struct, frozen=True):
    """What one result tells, and the same as its provider knows it, where that is to be had."""

    messages: tuple[Message, ...]
    native: list[ModelMessage] | None = None


class HistoryTurns(Struct, frozen=True, kw_only=True):
    """The opening, the turns of earlier runs, those of this run, and what a budget left out."""

    opening: list[Message]
    earlier: list[HistoryTurn]
    later: list[HistoryTurn]
    window: Window | None


def turns_of(state: NetworkState, *, agent: str, run_id: str, view: View) -> HistoryTurns:
    """Return what *agent*, in the run *run_id*, sees of *state* through *view*.

    The input of this run is in none of the turns: it is sent once, by itself.
    """
    results = {result.id: result for result in state.results}
    said = [
        each
        for each in formatted(state.messages, results.values(), agent=agent, view=view)
        if not _is_input(each, results, run_id)
    ]
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
    return HistoryTurns(opening=opening, earlier=earlier, later=later, window=window)


def _is_input(said: WindowMessage, results: dict[str, InferenceResult], run_id: str) -> bool:
    message = said.message
    if said.result_id is None or not isinstance(message, TextMessage) or message.role != "user":
        return False
    result = results[said.result_id]
    # A note of what another agent said is a user's message too, and has its agent's name.
    return result.run_id == run_id and message.agent is None and text_of(message) == result.input


def _grouped(said: Iterable[WindowMessage]) -> dict[str, list[Message]]:
    groups: dict[str, list[Message]] = {}
    for each in said:
        if each.result_id is not None:
            groups.setdefault(each.result_id, []).append(each.message)
    return groups


def _native(result: InferenceResult, spoken: Sequence[Message]) -> list[ModelMessage] | None:
    """Return *spoken* from the exchange itself, so that signatures and reasoning go back.

    None where the two do not tell the same: a hook or a view changed what the agent sees.
    """
    if not result.raw:
        return None
    asked = [each for each in spoken[:1] if each.role == "user"]
    try:
        exchanged = ModelMessagesTypeAdapter.validate_json(result.raw)
    except ValidationError:
        return None
    told_again = [
        *texts(exchanged, result.agent),
        *tool_results(exchanged, result.agent, {}),
    ]
    if _signature(spoken[len(asked) :]) != _signature(told_again):
        return None
    return [*to_model(asked), *exchanged]


def _signature(messages: Iterable[Message]) -> Signature:
    """Return what *messages* tell, without when and in which order of kinds."""
    said: Signature = []
    returned: Signature = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            error = message.content.get("error")
            came = error_text(error) if isinstance(error, dict) else message.content["data"]
            returned.append((message.tool.id, message.tool.name, message.tool.input, came))
        elif not isinstance(message, ToolCallMessage):
            said.append((message.role, text_of(message)))
    return [*said, *returned]
