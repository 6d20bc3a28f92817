"""Tools that a model calls: type, layout by name, refusals.

Every call is counted for the process by tool, command and outcome.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from itertools import chain
from threading import Lock
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from holdfast.ground.errors import HoldfastError, InvalidInput, ToolNameTaken, ToolRefused

JSON: TypeAlias = "str | int | float | bool | list[JSON] | dict[str, JSON] | None"
Schema: TypeAlias = dict[str, Any]
Outcome = Literal["ok", "refused", "error"]


class Calls:
    """How often each tool was called in this process, and how that ended."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, Outcome]] = Counter()
        self._lock = Lock()

    def add(self, tool: str, command: str, outcome: Outcome) -> None:
        """Count one more call of *tool*; *command* is "" for a tool that has none."""
        with self._lock:
            self._counts[tool, command, outcome] += 1

    def counts(self) -> dict[tuple[str, str, Outcome], int]:
        """Return the counts so far by (tool, command, outcome)."""
        with self._lock:
            return dict(self._counts)


calls = Calls()
"""The calls of this process."""


class Tool(Struct, frozen=True, kw_only=True):
    """One thing a model may call.

    `parameters` is a JSON Schema of the arguments, `work` does what they ask. `commands` are the
    values of the argument `command` that calls are counted by, when there are several. `refused`
    tells an answer that says what the model did wrong. One that `checks` says itself which
    arguments it does not take, and may take more than `parameters` shows.
    """

    id: str
    name: str
    description: str
    parameters: Schema
    work: Callable[[object], JSON]
    commands: tuple[str, ...] = ()
    refused: Callable[[JSON], bool] | None = None
    checks: bool = False

    def call(self, arguments: object) -> JSON:
        """Return the answer to *arguments*; ToolRefused says what the model did wrong."""
        outcome: Outcome = "error"
        try:
            answer = self.work(arguments)
            outcome = "refused" if self.refused and self.refused(answer) else "ok"
        except ToolRefused:
            outcome = "refused"
            raise
        finally:
            calls.add(self.name, self._command(arguments), outcome)
        return answer

    def _command(self, arguments: object) -> str:
        # Only known commands: a model must not be able to make a metric grow without bound.
        given = cast("dict[str, object]", arguments) if isinstance(arguments, dict) else {}
        return next((each for each in self.commands if each == given.get("command")), "")


def lay_out(*toolsets: Iterable[Tool]) -> dict[str, Tool]:
    """Lay *toolsets* side by side, by the name a model sees; ToolNameTaken on a clash."""
    table: dict[str, Tool] = {}
    for tool in chain.from_iterable(toolsets):
        if holder := table.get(tool.name):
            raise ToolNameTaken(tool.name, holder.id, tool.id)
        table[tool.name] = tool
    return table


# They are pages of their own, so that whoever tunes them reads prose and not Python.


class Wording(Struct, frozen=True, kw_only=True):
    """A tool's description, and its parameters' by name."""

    description: str
    parameters: dict[str, str]


@cache
def wording(page: str) -> Wording:
    """Return what `prompts/<page>.md` says: the description, then a heading per parameter."""
    text = files("holdfast.tools").joinpath("prompts", f"{page}.md").read_text("utf-8")
    description, *sections = text.split("\n## ")
    told = [section.partition("\n") for section in sections]
    return Wording(
        description=description.strip(),
        parameters={name.strip(): words.strip() for name, _, words in told},
    )


def told(error: HoldfastError) -> JSON:
    """Return *error* as the answer of a tool."""
    return {
        "error": {
            "type": _snake(type(error).__name__),
            "message": error.message,
            "next": error.next,
            "field": error.field if isinstance(error, InvalidInput) else None,
        }
    }


def is_error(answer: JSON) -> bool:
    """Tell whether *answer* says that something went wrong."""
    return isinstance(answer, dict) and "error" in answer


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
