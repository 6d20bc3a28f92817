"""The newest part of what was said that fits a budget, and what was left out for it."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from holdfast.memories.state import message as checks
from holdfast.memories.state.message import (
    GivenMessage,
    Message,
    TextMessage,
    ToolCallMessage,
    ToolResultMessage,
    messages_of,
    wire_of,
)
from holdfast.memories.state.result import text_of
from holdfast.memories.state.view import Measure

_encode: Final = msgspec.json.Encoder().encode

Reason = Literal["over_budget", "older"]


class Omitted(Struct, frozen=True, kw_only=True):
    """A message that a window left out: of which result, and its place among what was given.

    `over_budget` is the newest that did not fit, `older` what came before it.
    """

    result_id: str | None
    index: int
    type: str
    size: int
    reason: Reason


class Window(Struct, frozen=True, kw_only=True):
    """What fits a budget, in its order, and what was left out.

    `over_budget` says that what must be kept alone is more than the budget.
    """

    messages: list[Message]
    omitted: list[Omitted]
    size: int
    over_budget: bool


class WindowMessage(Struct, frozen=True):
    """A message, and the id of the result it came from; None for the opening."""

    message: Message
    result_id: str | None


def window(
    messages: Iterable[GivenMessage], *, budget: int, measure: Measure | None = None
) -> Window:
    """Return the newest of *messages* that fit the *budget*, in their order, without a gap.

    System messages and the newest user message are kept always. Calls stay with their results.
    The budget is in bytes of UTF-8, or in what *measure* gives for a message.
    """
    checks.whole("budget", budget)
    with checks.whole_is("messages"):
        said = [WindowMessage(each, None) for each in messages_of("messages", list(messages))]
    return windowed(said, budget=budget, measure=measure)


def windowed(
    said: Sequence[WindowMessage], *, budget: int | None, measure: Measure | None
) -> Window:
    """Return the newest of *said* that fit the *budget*; all of it if there is none."""
    sizes = [_measured(each.message, measure) for each in said]
    left = sum(sizes) if budget is None else budget
    pinned = _pinned(said)
    units = _units(said, pinned)
    left -= sum(sizes[index] for index in pinned)
    over_budget = left < 0
    kept = set(pinned)
    while units and not over_budget:
        cost = sum(sizes[index] for index in units[-1])
        if cost > left:
            break
        left -= cost
        kept.update(units.pop())
    newest_left = set(units[-1]) if units else set[int]()
    omitted = [
        Omitted(
            result_id=each.result_id,
            index=index,
            type=each.message.type,
            size=sizes[index],
            reason="over_budget" if index in newest_left else "older",
        )
        for index, each in enumerate(said)
        if index not in kept
    ]
    return Window(
        messages=[each.message for index, each in enumerate(said) if index in kept],
        omitted=omitted,
        size=sum(sizes[index] for index in kept),
        over_budget=over_budget,
    )


def size_bytes(message: Message) -> int:
    """Return what *message* weighs: UTF-8 bytes of its text, or of the JSON of its calls or result.

    The call that a result repeats is weighed with the calls.
    """
    if isinstance(message, TextMessage):
        return len(text_of(message).encode())
    if isinstance(message, ToolCallMessage):
        return sum(len(_encode(wire_of(each))) for each in message.tools)
    return len(_encode(message.content))


def _measured(message: Message, measure: Measure | None) -> int:
    if measure is None:
        return size_bytes(message)
    return checks.whole("measure", measure(message))


def _pinned(said: Sequence[WindowMessage]) -> list[int]:
    """Return the places of what is kept always: system messages and the newest user message."""
    pinned = [index for index, each in enumerate(said) if each.message.role == "system"]
    asked = [index for index, each in enumerate(said) if each.message.role == "user"]
    # What another agent did is told in a user's place, and is not what was asked.
    own = [index for index in asked if said[index].message.agent is None]
    return [*pinned, *(own or asked)[-1:]]


def _units(said: Sequence[WindowMessage], pinned: Sequence[int]) -> list[list[int]]:
    """Return the places of all but the *pinned*, those together that stay or go together.

    What stands between a call and its result goes with both, or their going would leave a gap.
    """
    units: list[list[int]] = []
    unit_of: dict[str, int] = {}
    apart = set(pinned)
    for index, each in enumerate(said):
        message = each.message
        if index in apart:
            continue
        if isinstance(message, ToolResultMessage) and message.tool.id in unit_of:
            _joined(units, unit_of, unit_of[message.tool.id]).append(index)
            continue
        if isinstance(message, ToolCallMessage):
            unit_of.update((call.id, len(units)) for call in message.tools)
        units.append([index])
    return units


def _joined(units: list[list[int]], unit_of: dict[str, int], number: int) -> list[int]:
    """Return the unit *number*, once all later ones have become part of it."""
    if number < len(units) - 1:
        units[number:] = [[place for unit in units[number:] for place in unit]]
        unit_of.update((id, min(unit, number)) for id, unit in list(unit_of.items()))
    return units[number]
