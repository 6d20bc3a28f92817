"""What an agent is: its specification, hooks, the user's message.

Each of its hooks may be plain or awaitable, and one that returns nothing changes nothing.
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

from holdfast.ground.errors import InvalidInput, ToolNameTaken
from holdfast.memories.state.history import Message
from holdfast.memories.state.result import InferenceResult
from holdfast.runtime.history import History
from holdfast.tools.base import Tool

AnyRun: TypeAlias = Any
"""The run an agent is called in: a `NetworkRun`, a `Context`, or None when it stands alone.

Whoever writes a hook for one of them says so in its own signature.
"""

Changed: TypeAlias = InferenceResult | None
OnResult: TypeAlias = Callable[[InferenceResult, AnyRun], Changed | Awaitable[Changed]]


AnyTool: TypeAlias = Tool | ModelTool[Any] | Callable[..., Any]
AnyToolset: TypeAlias = AbstractToolset[Any]
AnyModel: TypeAlias = Model | KnownModelName | str
Instructions: TypeAlias = str | Callable[[AnyRun], str | Awaitable[str]]


def name_of(tool: AnyTool) -> str:
    """Return the name a model sees *tool* by."""
    if isinstance(tool, Tool | ModelTool):
        return tool.name
    whole = _whole(tool)
    return getattr(whole, "__name__", type(whole).__name__)


def named(*toolsets: Iterable[AnyTool]) -> dict[str, AnyTool]:
    """Lay *toolsets* side by side by name; ToolNameTaken on a clash."""
    table: dict[str, AnyTool] = {}
    for tools in toolsets:
        for tool in tools:
            name = name_of(tool)
            if name in table:
                raise ToolNameTaken(name, _id_of(table[name]), _id_of(tool))
            table[name] = tool
    return table


def plain_function(function: Any) -> Any:
    """Return the function that *function*, a partial or an object to be called, comes down to."""
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
    """What is about to be sent: the *step*-th request of a call, counted from 1.

    *prompt* is what opens the request (system text, opening, new input), *history* what was said
    before. A changed pair counts for this request; *stop* ends the call without it.
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
"""Whether an agent may be called in a run. A user's may be written for an `Agent`."""
OnStart: TypeAlias = Callable[[AgentStart], Started | Awaitable[Started]]


class AgentHooks(Struct, frozen=True, kw_only=True):
    """What is asked around the calls of an agent.

    *enabled* keeps the agent out of a run; *on_start* is asked before each request, *on_response*
    after each reply and before its tools, *on_finish* once at the end.
    """

    enabled: Enabled | bool | None = None
    on_start: OnStart | None = None
    on_response: OnResult | None = None
    on_finish: OnResult | None = None


@dataclass(frozen=True, eq=False)
class AgentSpec:
    """What an agent is: a name, a system text, tools. `Agent` is one that can be run."""

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
    role: str | None = None
    skills: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_instructions(self.instructions)
        tools = named(self.tools)
        if not self.toolsets and self.tool_choice not in ("auto", "any", *tools):
            there = ", ".join(tools) or "none"
            raise InvalidInput(
                "tool_choice",
                f"must be auto, any or the name of a tool; there are: {there}",
                given=self.tool_choice,
            )

    def replace(self, **changes: Any) -> Self:
        """Return a copy of it with *changes*."""
        return replace(self, **changes)

    def with_model(self, model: AnyModel | None) -> Self:
        """Return a copy of it that asks *model*; everything else stays."""
        return replace(self, model=model)


def check_name(name: object) -> None:
    """Raise InvalidInput unless *name* may be an agent's."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LIMIT:
        raise InvalidInput("name", f"must be text of 1 to {NAME_LIMIT} characters", given=name)
    if name != name.strip() or any(unicodedata.category(char) == "Cc" for char in name):
        raise InvalidInput("name", "must have no control character and no space at its ends")


def _check_instructions(given: object) -> None:
    if not isinstance(given, str) and not callable(given):
        raise InvalidInput("instructions", "must be text or a function of the run", given=given)


class UserMessage(Struct, frozen=True):
    """What a user says: *content*, its *id* and when, both made where they are not given.

    *system_prompt* is added to the system text of every agent of the run it begins.
    """

    content: str
    id: str | None = None
    at: datetime | None = None
    system_prompt: str | None = None


def user_message(given: object) -> UserMessage:
    """Return *given*, text or a message, as a message; else InvalidInput."""
    if isinstance(given, str):
        return UserMessage(given)
    if not isinstance(given, UserMessage):
        raise InvalidInput("input", "must be text or a UserMessage", given=given)
    for name, text in (("content", given.content), ("system_prompt", given.system_prompt or "")):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's
            raise InvalidInput(f"input.{name}", "must be text", given=text)
    return given
