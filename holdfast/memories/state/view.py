"""How an agent sees what was said: whose turns, which tools, within which budget."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from holdfast.ground.errors import InvalidInput
from holdfast.memories.state import message as checks
from holdfast.memories.state.message import (
    GivenMessage,
    Message,
    TextMessage,
    ToolCallMessage,
    ToolResultMessage,
    messages_of,
)

Turns = Literal["all", "own", "inputs"]
Others = Literal["note", "verbatim"]
Tools = Literal["keep", "drop", "summary"]
Measure = Callable[[Message], int]


def _names(field: str, given: object) -> frozenset[str] | None:
    """Return the names *given*, which None and a collection of text may be."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Collection):
        raise InvalidInput(field, "must be a list of names of tools", given=given)
    return frozenset(checks.text(field, each) for each in cast("Collection[object]", given))


class View(Struct, frozen=True, kw_only=True):
    """How an agent sees what was said; unless said otherwise, all of it, others' turns as notes.

    `include` names the tools whose calls stay, all others go; `exclude` those whose calls go, all
    others stay. `tools="drop"` drops the calls that go, with neither all of them; `"summary"` names
    those that stay in a line. `budget` is in bytes, or in what `measure` gives for a message.
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
        """Tell whether the calls of *tool* stay."""
        if self.include is not None:
            return tool in self.include
        if self.exclude is not None:
            return tool not in self.exclude
        return self.tools != "drop"


EVERYTHING = View(others="verbatim")
"""All that was said, as it was said."""


def select(messages: Iterable[GivenMessage], view: View) -> list[Message]:
    """Return *messages* as the tool rules of *view* leave them; applied again, they change nothing.

    A call goes with its result. Of a message with several calls those that may stay do.
    """
    with checks.whole_is("messages"):
        return selected(messages_of("messages", list(messages)), view)


def selected(messages: Sequence[Message], view: View) -> list[Message]:
    """Return *messages* as the tool rules of *view* leave them."""
    if view.tools == "keep" and not view.exclude and view.include is None:
        return list(messages)
    left = (_left(each, view) for each in messages)
    return [each for each in left if each is not None]


def _left(message: Message, view: View) -> Message | None:
    """Return what the tool rules of *view* leave of *message*, or None."""
    if isinstance(message, TextMessage):
        return message
    if isinstance(message, ToolResultMessage):
        return message if view.tools != "summary" and view.shows(message.tool.name) else None
    calls = [each for each in message.tools if view.shows(each.name)]
    if not calls:
        return None
    if view.tools == "summary":
        return _summary(message, [each.name for each in calls])
    return message if len(calls) == len(message.tools) else replace(message, tools=calls)


def _summary(message: ToolCallMessage, names: Iterable[str]) -> TextMessage:
    told = ", ".join(dict.fromkeys(names))
    return TextMessage(
        role="assistant",
        content=f"[Tools used: {told}]",
        agent=message.agent,
        step=message.step,
    )
