"""Tools that a model calls: type, layout by name, refusals.

Every call is counted for the process by tool, command and outcome.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, partial
from importlib.resources import files
from itertools import chain, product
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, get_args

from msgspec import UNSET, Struct

from holdfast.ground.errors import HoldfastError, InvalidInput, ToolNameTaken, ToolRefused
from holdfast.ground.metrics import REGISTRY

JSON: TypeAlias = "str | int | float | bool | list[JSON] | dict[str, JSON] | None"
Schema: TypeAlias = dict[str, Any]
Outcome = Literal["ok", "refused", "error"]


_FILE_COMMANDS: Final = ("view", "create", "str_replace", "insert", "delete", "rename")
CALLS: Final = REGISTRY.counter(
    "tool_calls_total", "Calls of tools.", tool=(), command=(), outcome=()
).begin(product(("memory",), _FILE_COMMANDS, get_args(Outcome)))


class Tool(Struct, frozen=True, kw_only=True):
    """One tool that a model may call.

    `parameters` is a JSON Schema of the arguments, `work` runs a call with them. `commands` are the
    values of the argument `command` by which calls are counted, if there are several. `refused`
    returns whether a result is an error of the model. With `checks`, the tool validates its
    arguments itself, and may accept more than `parameters` shows.
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
        """Return the result for *arguments*; raise ToolRefused for an error of the model."""
        outcome: Outcome = "error"
        try:
            answer = self.work(arguments)
            outcome = "refused" if self.refused and self.refused(answer) else "ok"
        except ToolRefused:
            outcome = "refused"
            raise
        finally:
            CALLS.add(self.name, self._command(arguments), outcome)
        return answer

    def _command(self, arguments: object) -> str:
        # Only known commands: a model must not be able to add metric labels without bound.
        given = cast("dict[str, object]", arguments) if isinstance(arguments, dict) else {}
        return next((each for each in self.commands if each == given.get("command")), "")


class Asker(Protocol):
    """The call at work in a run, which may ask people."""

    def ask(self, text: str, **form: Any) -> Any:
        """Return the answer to a question; it suspends the call until there is one."""
        ...


asker: ContextVar[Any] = ContextVar("asker", default=None)
"""The `Asker` of the call at work; None outside of a run."""


def ask_human(
    *, timeout: float | None = None, default: Any = UNSET, who: Sequence[str] = ()
) -> Tool:
    """Return the tool with which a model asks a person.

    After *timeout* seconds *default* is the answer; without one the part of the run fails. *who*
    may answer: `user:NAME`, `key:NAME`, `scope:admin`; if empty, all that may write.
    """
    form: dict[str, Any] = {"timeout": timeout, "default": default, "who": who}

    def work(arguments: object) -> JSON:
        given = cast("dict[str, Any]", arguments)
        call: Asker | None = asker.get()
        if call is None:
            raise ToolRefused("There is no run in which a person could be asked.")
        return {"answer": call.ask(given["question"], options=given.get("options"), **form)}

    return Tool(
        id="human.ask",
        name="ask_human",
        description=(
            "Ask a person, and wait for the answer. Ask only what you cannot find out yourself."
        ),
        parameters=object_schema(
            {
                "question": {"type": "string", "description": "One question, complete in itself."},
                "options": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": 100,
                    "description": "The answers to choose from; without them any text.",
                },
            },
            "question",
        ),
        work=work,
    )


def lay_out(*toolsets: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools of all *toolsets* by name; ToolNameTaken if a name repeats."""
    table: dict[str, Tool] = {}
    for tool in chain.from_iterable(toolsets):
        if holder := table.get(tool.name):
            raise ToolNameTaken(tool.name, holder.id, tool.id)
        table[tool.name] = tool
    return table


# Descriptions are Markdown pages, so that they can be edited as prose.


class Wording(Struct, frozen=True, kw_only=True):
    """The description of a tool, and those of its parameters by name."""

    description: str
    parameters: dict[str, str]


@cache
def wording(page: str) -> Wording:
    """Parse `prompts/<page>.md`: the description, then a section per parameter."""
    text = files("holdfast.tools").joinpath("prompts", f"{page}.md").read_text("utf-8")
    description, *sections = text.split("\n## ")
    parts = [section.partition("\n") for section in sections]
    return Wording(
        description=description.strip(),
        parameters={name.strip(): words.strip() for name, _, words in parts},
    )


def object_schema(properties: dict[str, Any], *required: str) -> Schema:
    """Return the JSON Schema of an object with *properties* and no others."""
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
    }


def toolset(
    home: str,
    prefix: str,
    acts: Mapping[str, Callable[[object], JSON]],
    schemas: Mapping[str, Schema],
    refusal: Callable[[HoldfastError], JSON],
) -> list[Tool]:
    """Return a tool for each of *acts*, described by the page *home*.

    *refusal* makes a result of an error of the model.
    """

    def work(act: Callable[[object], JSON], arguments: object) -> JSON:
        try:
            return act(arguments)
        except HoldfastError as error:
            return refusal(error)

    words = wording(home).parameters
    return [
        Tool(
            id=f"{home}.{name}",
            name=f"{prefix}_{name}",
            description=words[name],
            parameters=schemas[name],
            work=partial(work, act),
            refused=is_error,
            checks=True,
        )
        for name, act in acts.items()
    ]


CORRECT: Final = "Correct the arguments, and call again."
"""What to do about an error that names nothing else."""


def told(error: HoldfastError, **facts: JSON) -> JSON:
    """Return *error*, with *facts* about it, as the result of a tool."""
    return {
        "error": {
            **facts,
            "type": _snake(type(error).__name__),
            "message": error.message,
            "next": error.next or CORRECT,
            "field": error.field if isinstance(error, InvalidInput) else None,
        }
    }


def is_error(answer: JSON) -> bool:
    """Check whether *answer* is an error result."""
    return isinstance(answer, dict) and "error" in answer


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
