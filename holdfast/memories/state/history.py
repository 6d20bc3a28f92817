"""Format, select and window the history of a network."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from html import escape
from typing import Any, Final, Literal, cast, get_args, overload

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import force_setattr, replace

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.memories.state import message as checks
from holdfast.memories.state.message import (
    ErrorKind,
    GivenMessage,
    Message,
    TextMessage,
    ToolCall,
    ToolCallMessage,
    ToolResultMessage,
    message,
    messages_of,
    wire_of,
)
from holdfast.memories.state.result import InferenceResult, memo, remembered, text_of

Turns = Literal["all", "own", "inputs"]
Others = Literal["note", "verbatim"]
Tools = Literal["keep", "drop", "summary"]
Measure = Callable[[Message], int]


def _names(field: str, given: object) -> frozenset[str] | None:
    """Validate *given*, a collection of names or None."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Collection):
        raise InvalidInput(field, "must be a list of names of tools", given=given)
    return frozenset(checks.text(field, each) for each in cast("Collection[object]", given))


class View(Struct, frozen=True, kw_only=True):
    """The history as an agent sees it: by default all of it, others' turns as notes.

    `include` names the only tools with calls that stay, `exclude` those with calls that go.
    `tools="drop"` drops the calls that go, or all calls if neither is given; `"summary"` replaces
    calls that stay by a line with their names. `budget` is in bytes, or in the unit of `measure`,
    which returns the size of a message.
    """

    turns: Turns = "all"
    others: Others = "note"
    tools: Tools = "keep"
    include: Collection[str] | None = None
    exclude: Collection[str] | None = None
    budget: int | None = None
    measure: Measure | None = None

    def __post_init__(self) -> None:
        checks.one_of("turns", self.turns, get_args(Turns))
        checks.one_of("others", self.others, get_args(Others))
        checks.one_of("tools", self.tools, get_args(Tools))
        if self.include is not None and self.exclude is not None:
            raise InvalidInput("include", "must not be given together with exclude")
        for name in ("include", "exclude"):
            force_setattr(self, name, _names(name, getattr(self, name)))
        checks.whole_or_none("budget", self.budget)
        if self.measure is not None and not callable(self.measure):
            raise InvalidInput("measure", "must be a function of a message", given=self.measure)

    def shows(self, tool: str) -> bool:
        """Check whether the calls of *tool* stay."""
        if self.include is not None:
            return tool in self.include
        if self.exclude is not None:
            return tool not in self.exclude
        return self.tools != "drop"


EVERYTHING = View(others="verbatim")
"""The whole history, unchanged."""


def select(messages: Iterable[GivenMessage], view: View) -> list[Message]:
    """Return *messages* filtered by the tool rules of *view*.

    A second call changes nothing.

    A call goes with its result. Of a message with several calls those that may stay do.
    """
    with checks.whole_is("messages"):
        return selected(messages_of("messages", list(messages)), view)


def selected(messages: Sequence[Message], view: View) -> list[Message]:
    """Return *messages* filtered by the tool rules of *view*."""
    if view.tools == "keep" and not view.exclude and view.include is None:
        return list(messages)
    left = (_left(each, view) for each in messages)
    return [each for each in left if each is not None]


def _left(message: Message, view: View) -> Message | None:
    """Filter *message* by the tool rules of *view*; None if it goes."""
    if isinstance(message, TextMessage):
        return message
    if isinstance(message, ToolResultMessage):
        return message if view.tools != "summary" and view.shows(message.tool.name) else None
    calls = [each for each in message.tools if view.shows(each.name)]
    if not calls:
        return None
    if view.tools == "summary":
        tools = ", ".join(dict.fromkeys(each.name for each in calls))
        return TextMessage(
            role="assistant",
            content=f"[Tools used: {tools}]",
            agent=message.agent,
            step=message.step,
        )
    return message if len(calls) == len(message.tools) else replace(message, tools=calls)


_encode: Final = msgspec.json.Encoder().encode

Reason = Literal["over_budget", "older"]


class Omitted(Struct, frozen=True, kw_only=True):
    """A message that a window left out, with its result and its place in the input.

    `over_budget` is the newest that did not fit, `older` is what came before it.
    """

    result_id: str | None
    index: int
    type: str
    size: int
    reason: Reason


class WindowMessage(Struct, frozen=True, gc=False):
    """A message, the id of its result (None for the opening), and its bytes."""

    message: Message
    result_id: str | None
    size: int


class OmittedMessages(Sequence[Omitted]):
    """The messages that a window left out, in order, with their `size` in all.

    The list is made when it is read: a long history leaves out more with each turn.
    """

    def __init__(
        self,
        said: Sequence[WindowMessage],
        sizes: Sequence[int],
        kept: Collection[int],
        newest: Collection[int],
    ) -> None:
        self._said, self._sizes, self._kept, self._newest = said, sizes, kept, newest
        self.size = sum(sizes) - sum(sizes[index] for index in kept)

    def __iter__(self) -> Iterator[Omitted]:
        for index, (each, size) in enumerate(zip(self._said, self._sizes, strict=True)):
            if index not in self._kept:
                reason = "over_budget" if index in self._newest else "older"
                yield Omitted(
                    result_id=each.result_id,
                    index=index,
                    type=each.message.type,
                    size=size,
                    reason=reason,
                )

    @overload
    def __getitem__(self, index: int) -> Omitted: ...
    @overload
    def __getitem__(self, index: slice) -> list[Omitted]: ...
    def __getitem__(self, index: int | slice) -> Omitted | list[Omitted]:
        return list(self)[index]

    def __len__(self) -> int:
        return len(self._said) - len(self._kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[object]", other))

    def __hash__(self) -> int:
        return hash((len(self), self.size))

    def __repr__(self) -> str:
        return repr(list(self))


class Window(Struct, frozen=True, kw_only=True):
    """The messages that fit a budget, in order, and those left out.

    `over_budget` is true if the messages that are always kept exceed the budget by themselves.
    """

    messages: list[Message]
    omitted: OmittedMessages
    size: int
    over_budget: bool


def window(
    messages: Iterable[GivenMessage], *, budget: int, measure: Measure | None = None
) -> Window:
    """Return the newest *messages* that fit the *budget*, in order, without a gap.

    System messages and the newest user message are always kept. Calls stay with their results. The
    budget is in bytes of UTF-8, or in the unit of *measure*, which returns the size of a message.
    """
    checks.whole("budget", budget)
    with checks.whole_is("messages"):
        said = list(_alone(messages_of("messages", list(messages))))
    return windowed(said, budget=budget, measure=measure)


def _alone(opening: Iterable[Message]) -> Iterator[WindowMessage]:
    """Yield the messages of *opening*, which are of no result."""
    return (WindowMessage(each, None, size_bytes(each)) for each in opening)


def windowed(
    said: Sequence[WindowMessage], *, budget: int | None, measure: Measure | None
) -> Window:
    """Return the newest of *said* that fit the *budget*; all of it if there is none."""
    sizes = [each.size if measure is None else _measured(each.message, measure) for each in said]
    pinned = frozenset(_pinned(said))
    left = (sum(sizes) if budget is None else budget) - sum(sizes[index] for index in pinned)
    over_budget = left < 0
    kept = set(pinned)
    units = _units(said, pinned, _start(said, sizes, pinned, left))
    while units and not over_budget:
        cost = sum(sizes[index] for index in units[-1])
        if cost > left:
            break
        left -= cost
        kept.update(units.pop())
    return Window(
        messages=[said[index].message for index in sorted(kept)],
        omitted=OmittedMessages(said, sizes, kept, units[-1] if units else ()),
        size=sum(sizes[index] for index in kept),
        over_budget=over_budget,
    )


def _start(
    said: Sequence[WindowMessage], sizes: Sequence[int], pinned: Collection[int], left: int
) -> int:
    """Return where the newest results begin that exceed *left*; 0 if all fit.

    The *pinned* do not count. A result holds calls with their answers, so it is a whole unit.
    """
    first = len(said)
    while first > 0 and left >= 0:
        first -= 1
        left -= 0 if first in pinned else sizes[first]
    name = said[first].result_id if first < len(said) else None
    while first > 0 and said[first - 1].result_id == name:
        first -= 1
    return first if name is not None else 0


def size_bytes(message: Message) -> int:
    """Return the size of *message* in bytes of UTF-8.

    It is the size of its text, or of the JSON of its calls or its result. The call that a result
    repeats is counted with the calls.
    """
    if isinstance(message, TextMessage):
        text = text_of(message)
        return len(text) if text.isascii() else len(text.encode())
    if isinstance(message, ToolCallMessage):
        return sum(len(_encode(wire_of(each))) for each in message.tools)
    return len(_encode(message.content))


def _measured(message: Message, measure: Measure | None) -> int:
    if measure is None:
        return size_bytes(message)
    return checks.whole("measure", measure(message))


def _pinned(said: Sequence[WindowMessage]) -> Iterator[int]:
    """Yield the places of messages that are always kept.

    They are the system messages and the newest user message.
    """
    yield from (index for index, each in enumerate(said) if each.message.role == "system")
    users = [index for index, each in enumerate(said) if each.message.role == "user"]
    # A note about another agent has the role of a user, and is no request of the user.
    own = (index for index in reversed(users) if said[index].message.agent is None)
    yield from (next(own, users[-1]),) if users else ()


def _units(said: Sequence[WindowMessage], pinned: Collection[int], start: int) -> list[list[int]]:
    """Return the places from *start* on, without *pinned*, by calls and results.

    A message between a call and its result goes with both, else it would leave a gap.
    """
    units: list[list[int]] = []
    unit_of: dict[str, int] = {}
    for index in range(start, len(said)):
        message = said[index].message
        if index in pinned:
            continue
        if isinstance(message, ToolResultMessage) and message.tool.id in unit_of:
            _joined(units, unit_of, unit_of[message.tool.id]).append(index)
            continue
        if isinstance(message, ToolCallMessage):
            unit_of.update((call.id, len(units)) for call in message.tools)
        units.append([index])
    return units


def _joined(units: list[list[int]], unit_of: dict[str, int], number: int) -> list[int]:
    """Merge all later units into the unit *number*, and return it."""
    if number < len(units) - 1:
        units[number:] = [[place for unit in units[number:] for place in unit]]
        unit_of.update((id, min(unit, number)) for id, unit in list(unit_of.items()))
    return units[number]


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
    """Return a system message."""
    return TextMessage(role="system", content=text)


def user(text: str) -> TextMessage:
    """Return a user's message."""
    return TextMessage(role="user", content=text)


def assistant(text: str) -> TextMessage:
    """Return an agent's message."""
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
    """Return the result of the call *id* of the tool *name*: *data* or an *error*.

    An error is `{"name", "message", "kind"}`.
    """
    if (data is UNSET) == (error is None):
        raise InvalidInput("content", "must hold either data or error")
    content: dict[str, Any] = {"data": data} if error is None else {"error": error}
    return ToolResultMessage(tool=_call(id, name, input), content=content)


def text(message: GivenMessage) -> str:
    """Return the text of *message*, its parts joined.

    It is "" for calls of tools and their results.
    """
    return text_of(from_dict(message))


def from_dict(given: GivenMessage) -> Message:
    """Convert the plain dict *given* to a message; a message is returned as it is."""
    with checks.whole_is("message"):
        return message(given)


def _call(id: str, name: str, input: object) -> ToolCall:
    # The constructor validates that *input* is JSON.
    return ToolCall(id=id, name=name, input=cast("JSON", input))


def note(agent: str, messages: Sequence[Message]) -> list[Message]:
    """Return *messages* with the texts and calls of *agent* in one user message.

    Messages of users and the system stay as they are. Each text, and each part of a call, is
    escaped, so that it can neither close the block nor open another. A call is a line of its own.
    """
    answers = {each.tool.id: each for each in messages if isinstance(each, ToolResultMessage)}
    shown: list[Message] = []
    lines: list[str] = []
    for each in messages:
        if isinstance(each, ToolCallMessage):
            lines.extend(_calls(each, answers))
        elif each.role == "assistant":
            lines.append(escape(text_of(each), quote=False))
        elif isinstance(each, TextMessage):
            shown.append(each)
    if any(lines):
        block, name = "\n".join(filter(None, lines)), escape(agent)
        shown.append(
            TextMessage(
                role="user", content=f'<agent name="{name}">\n{block}\n</agent>', agent=agent
            )
        )
    return shown


def _calls(message: ToolCallMessage, answers: dict[str, ToolResultMessage]) -> Iterable[str]:
    """Yield a line for each call of *message*, with its result."""
    for call in message.tools:
        line = f"[tool {_shown(call.name)[1:-1]}] {_shown(call.input)}"
        answer = answers.get(call.id)
        yield line if answer is None else f"{line} -> {_shown(answer.content)}"


def _shown(given: JSON) -> str:
    """Return *given* as JSON that is escaped for a block."""
    return escape(_encode(given).decode(), quote=False)


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
) -> list[WindowMessage]:
    """Return *opening*, then the messages of *results*, oldest first, through *view*.

    *agent* is the reader. *formatter* returns the messages of one result, in place of its input,
    texts, calls and their results.
    """
    view = view or EVERYTHING
    if agent is None and view.turns == "own":
        raise InvalidInput("agent", "must be given where turns are its own")
    said = list(_alone(selected(list(opening), view)))
    options = (view.turns, view.others, view.tools, view.include, view.exclude)
    shape = " ".join(str(sorted(each) if isinstance(each, frozenset) else each) for each in options)
    names = [[f"shown {asks} {other} {shape}" for other in (0, 1)] for asks in (0, 1)]
    previous: InferenceResult | None = None
    for result in results:
        other = agent is not None and result.agent != agent
        if other and view.turns == "own":
            continue
        if formatter is not None:
            said += _viewed(result, _formatted(result, formatter), view, other=other)
            continue
        asks = _asks(result, previous)
        previous, name = result, names[asks][other]
        # Each turn of a conversation formats all before it; a result never changes.
        known: list[WindowMessage] | None = remembered(result).get(name)
        if known is None:
            known = _viewed(result, _messages_of(result, asks=asks), view, other=other)
            remembered(result)[name] = known
        said += known
    return said


def _viewed(
    result: InferenceResult, messages: list[Message], view: View, *, other: bool
) -> list[WindowMessage]:
    """Return *messages* of *result* through *view*; *other*: another agent reads."""
    if view.turns == "inputs":
        messages = [each for each in messages if each.role == "user"]
    shown = selected(messages, view)
    if other and view.others == "note":
        shown = note(result.agent, shown)
    return [WindowMessage(each, result.id, size_bytes(each)) for each in shown]


def _messages_of(result: InferenceResult, *, asks: bool) -> list[Message]:
    """Return the messages of *result*: its input if it *asks*, then each step."""
    # All views share them.
    return memo(result, f"formed {asks}", lambda: _formed(result, asks=asks))


def _formed(result: InferenceResult, *, asks: bool) -> list[Message]:
    messages: list[Message] = []
    if asks:
        messages.append(TextMessage(role="user", content=result.input))
    texts, calls = _by_step(result)
    for step in sorted({*texts, *calls}):
        messages.extend(texts.get(step, ()))
        answered = calls.get(step)
        if answered:
            messages.append(
                ToolCallMessage(
                    tools=[each.tool for each in answered],
                    agent=answered[0].agent,
                    step=answered[0].step,
                )
            )
            messages.extend(answered)
    return messages


def _asks(result: InferenceResult, previous: InferenceResult | None) -> bool:
    """Return whether the input of *result* is not that of *previous* in one run."""
    if previous is None or previous.run_id != result.run_id or result.run_id is None:
        return result.input != ""
    return result.input not in ("", previous.input)


def _by_step(
    result: InferenceResult,
) -> tuple[dict[int, list[Message]], dict[int, list[ToolResultMessage]]]:
    """Return the texts of *result* and the results of its calls, both by step."""
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
    """Yield the results of calls with their steps: of *called* first, then the others.

    The others are those in *returned* without a call. A call without a result was interrupted.
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
    """Return the messages of *formatter* for *result*, validated."""
    made = cast("object", formatter(result))
    with checks.whole_is("formatter"):
        return messages_of("formatter", made)
