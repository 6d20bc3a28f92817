"""An agent: what it is told, what it may call and what watches it. It holds nothing of any run."""

import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, TypeAlias

from pydantic_ai import Tool as ModelTool
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset

from holdfast.ground.errors import InvalidInput
from holdfast.runtime.hooks import AgentHooks, AnyRun
from holdfast.tools.base import Tool

AnyTool: TypeAlias = Tool | ModelTool[Any] | Callable[..., Any]
AnyToolset: TypeAlias = AbstractToolset[Any]
AnyModel: TypeAlias = Model | KnownModelName | str
Instructions: TypeAlias = str | Callable[[AnyRun], str | Awaitable[str]]


NAME_LIMIT = 128
"""Characters of an agent's name."""


@dataclass(frozen=True, eq=False)
class Agent:
    """Who is asked: a name, a system text, tools. Many runs may use one at once.

    *instructions* are text, or a function of the run it is in. *assistant* is said for it before
    the conversation begins. *role* and *skills* count in a team.
    """

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
    history: Any = None
    role: str | None = None
    skills: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name)

    def replace(self, **changes: Any) -> "Agent":
        """Return a copy of it with *changes*."""
        return replace(self, **changes)

    def with_model(self, model: AnyModel | None) -> "Agent":
        """Return a copy of it that asks *model*; everything else stays."""
        return replace(self, model=model)


def check_name(name: object) -> None:
    """Raise InvalidInput unless *name* may be an agent's."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LIMIT:
        raise InvalidInput("name", f"must be text of 1 to {NAME_LIMIT} characters", given=name)
    if name != name.strip() or any(unicodedata.category(char) == "Cc" for char in name):
        raise InvalidInput("name", "must have no control character and no space at its ends")
