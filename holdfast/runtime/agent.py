"""An agent: what it is told, what it may call and what watches it. It holds nothing of any run.

Each of its hooks may be plain or awaitable, and one that returns nothing changes nothing.
"""

import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self, TypeAlias

from msgspec import Struct
from pydantic_ai.settings import ModelSettings

from holdfast.ground.errors import InvalidInput
from holdfast.memories.state.history import Message
from holdfast.runtime.history import History
from holdfast.runtime.hooks import AnyRun, OnResult
from holdfast.runtime.parts import AnyModel, AnyTool, AnyToolset, Instructions, named

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
