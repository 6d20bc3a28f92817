"""The specification of an agent, its hooks, and the message of a user.

A hook may be plain or awaitable. One that returns None changes nothing.
"""

import inspect
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeAlias, cast

from msgspec import Struct
from pydantic_ai import Tool as ModelTool
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset

from holdfast import library
from holdfast.ground.errors import InvalidInput, ToolNameTaken
from holdfast.ground.validation import listed
from holdfast.memories.state.history import Message
from holdfast.memories.state.result import InferenceResult
from holdfast.runtime.history import History
from holdfast.tools.base import Tool

AnyRun: TypeAlias = Any
"""The run of an agent: a `NetworkRun`, a `Context`, or None outside of both.

The author of a hook for one of them names it in the hook's signature.
"""

Changed: TypeAlias = InferenceResult | None
OnResult: TypeAlias = Callable[[InferenceResult, AnyRun], Changed | Awaitable[Changed]]


AnyTool: TypeAlias = Tool | ModelTool[Any] | Callable[..., Any]
AnyToolset: TypeAlias = AbstractToolset[Any]
AnyModel: TypeAlias = Model | KnownModelName | str
Instructions: TypeAlias = str | Callable[[AnyRun], str | Awaitable[str]]


def model_name(model: AnyModel) -> str:
    """Return the name of *model*."""
    return model if isinstance(model, str) else model.model_name


def name_of(tool: AnyTool) -> str:
    """Return the name under which a model sees *tool*."""
    if isinstance(tool, Tool | ModelTool):
        return tool.name
    whole = _whole(tool)
    return getattr(whole, "__name__", type(whole).__name__)


def named(*toolsets: Iterable[AnyTool]) -> dict[str, AnyTool]:
    """Index the tools of *toolsets* by name; raise ToolNameTaken on a clash."""
    table: dict[str, AnyTool] = {}
    for tools in toolsets:
        for tool in tools:
            name = name_of(tool)
            if name in table:
                raise ToolNameTaken(name, _id_of(table[name]), _id_of(tool))
            table[name] = tool
    return table


def plain_function(function: Any) -> Any:
    """Return the function behind *function*, a partial or a callable object."""
    whole = _whole(function)
    return whole if inspect.isroutine(whole) else whole.__call__


def _whole(function: Any) -> Any:
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def _id_of(tool: AnyTool) -> str:
    if isinstance(tool, Tool):
        return tool.id
    if isinstance(tool, ModelTool):
        return getattr(cast("ModelTool[Any]", tool).function, "__qualname__", tool.name)
    return getattr(plain_function(tool), "__qualname__", name_of(tool))


NAME_LIMIT = 128
"""Characters of an agent's name."""


class AgentStart(Struct, frozen=True, kw_only=True):
    """The request that is about to be sent, number *step* of a call, counted from 1.

    *prompt* opens the request (system text, opening, new input), *history* is what was said before.
    A changed pair counts for this request; *stop* ends the call without it.
    """

    agent: "AgentSpec"
    run: AnyRun
    input: str
    prompt: tuple[Message, ...]
    history: tuple[Message, ...]
    stop: bool = False
    step: int = 1


Started: TypeAlias = AgentStart | dict[str, Any] | None
Enabled: TypeAlias = Callable[[Any, AnyRun], bool | Awaitable[bool]]
"""Returns whether an agent may be called in a run; a user's may expect an `Agent`."""
OnStart: TypeAlias = Callable[[AgentStart], Started | Awaitable[Started]]


class AgentHooks(Struct, frozen=True, kw_only=True):
    """The functions called around the calls of an agent.

    *enabled* keeps the agent out of a run. *on_start* is called before each request, *on_response*
    after each reply and before its tools, *on_finish* once at the end.
    """

    enabled: Enabled | bool | None = None
    on_start: OnStart | None = None
    on_response: OnResult | None = None
    on_finish: OnResult | None = None


@dataclass(frozen=True, eq=False)
class AgentSpec:
    """Name, instructions, tools and settings of an agent. `Agent` can be run."""

    name: str
    _: KW_ONLY
    instructions: Instructions
    description: str = ""
    assistant: str = ""
    tools: Sequence[AnyTool] = ()
    toolsets: Sequence[AnyToolset] = ()
    tool_choice: str = "auto"
    model: AnyModel | None = None
    model_settings: ModelSettings | None = None
    hooks: AgentHooks | None = None
    history: History | None = None
    hf: "library.Holdfast | None" = None
    auto_persist: bool = False
    role: str | None = None
    skills: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "skills", listed(self.skills))
        text: object = self.instructions
        if not isinstance(text, str) and not callable(text):
            raise InvalidInput("instructions", "must be text or a function of the run", given=text)
        tools = named(self.tools)
        if not self.toolsets and self.tool_choice not in ("auto", "any", *tools):
            there = ", ".join(tools) or "none"
            raise InvalidInput(
                "tool_choice",
                f"must be auto, any or the name of a tool; there are: {there}",
                given=self.tool_choice,
            )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with *changes*."""
        return replace(self, **changes)

    def with_model(self, model: AnyModel | None) -> Self:
        """Return a copy that uses *model*; everything else stays."""
        return replace(self, model=model)


def check_name(name: object) -> None:
    """Raise InvalidInput unless *name* is valid for an agent."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LIMIT:
        raise InvalidInput("name", f"must be text of 1 to {NAME_LIMIT} characters", given=name)
    if name != name.strip() or "Cc" in map(unicodedata.category, name):
        raise InvalidInput("name", "must have no control character and no space at its ends")


class UserMessage(Struct, frozen=True):
    """The message of a user: *content*, with an *id* and an instant.

    Both are made where they are not given. *system_prompt* is added to the system text of every
    agent of the run that the message begins.
    """

    content: str
    id: str | None = None
    at: datetime | None = None
    system_prompt: str | None = None


def user_message(given: object) -> UserMessage:
    """Return *given*, text or a message, as a message; raise InvalidInput for others."""
    if isinstance(given, str):
        return UserMessage(given)
    if not isinstance(given, UserMessage):
        raise InvalidInput("input", "must be text or a UserMessage", given=given)
    for name, text in (("content", given.content), ("system_prompt", given.system_prompt or "")):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's
            raise InvalidInput(f"input.{name}", "must be text", given=text)
    return given
