"""An agent: what it is told, what it may call and what watches it. It holds nothing of any run."""

import asyncio
import unicodedata
from collections.abc import AsyncGenerator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self, Unpack

from pydantic_ai import Agent as ModelAgent
from pydantic_ai.settings import ModelSettings

from holdfast.ground.errors import InvalidInput
from holdfast.memories.state.result import InferenceResult
from holdfast.runtime.calling.alone import Options, RunOptions, run_alone, stream_alone
from holdfast.runtime.calling.bare import bare_agent
from holdfast.runtime.history import History
from holdfast.runtime.hooks import AgentHooks
from holdfast.runtime.mcp_servers import close
from holdfast.runtime.parts import AnyModel, AnyTool, AnyToolset, Instructions
from holdfast.runtime.run_events import RunEvent
from holdfast.runtime.tooling import named
from holdfast.runtime.user_message import UserMessage

if TYPE_CHECKING:
    from holdfast.runtime.context import Context

NAME_LIMIT = 128
"""Characters of an agent's name."""


@dataclass(frozen=True, eq=False)
class Agent:
    """Who is asked: a name, a system text, tools. Many runs may use one at once.

    *instructions* are text, or a function of the run it is in. *assistant* is said for it before
    the conversation begins. *tool_choice* forces a tool, any or one by name, in the first request
    of a call. *role* and *skills* count in a team.

    >>> from holdfast.testing.scripted import ScriptedModel
    >>> ada = Agent("ada", instructions="Be brief.", model=ScriptedModel(["Hello."]))
    >>> ada.run_sync("Hi?").text
    'Hello.'
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

    def replace(self, **changes: Any) -> "Agent":
        """Return a copy of it with *changes*."""
        return replace(self, **changes)

    def with_model(self, model: AnyModel | None) -> "Agent":
        """Return a copy of it that asks *model*; everything else stays."""
        return replace(self, model=model)

    async def run(self, input: str | UserMessage, **options: Unpack[RunOptions]) -> InferenceResult:
        """Return what one call of it with *input* came to; RunFailed, with it, if it failed.

        NoModel, NoAgentEnabled and NotRunnable, before anything is stored or sent, if it cannot
        be called as it is.
        """
        return await run_alone(self, input, Options(**options))

    def run_sync(self, input: str | UserMessage, **options: Unpack[RunOptions]) -> InferenceResult:
        """Do as `run` does, from plain code, and close its MCP servers."""
        return asyncio.run(self._run_and_close(input, Options(**options)))

    def stream(
        self, input: str | UserMessage, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[RunEvent]:
        """Give what happens as `run` would do it; leaving early cancels that.

        The last event tells how it ended; RunFailed is raised after it.
        """
        return stream_alone(self, input, Options(**options))

    def to_pydantic_ai(self, context: "Context") -> ModelAgent[Any, str]:
        """Return the pydantic-ai agent it is, its tools knowing *context*, for going on there."""
        return bare_agent(self, context)

    async def aclose(self) -> None:
        """Close the connections to its MCP servers; the next run makes new ones."""
        await close(self.toolsets)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run_and_close(self, input: str | UserMessage, options: Options) -> InferenceResult:
        # A connection belongs to an event loop, and this one ends here.
        try:
            return await run_alone(self, input, options)
        finally:
            await self.aclose()


def check_name(name: object) -> None:
    """Raise InvalidInput unless *name* may be an agent's."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LIMIT:
        raise InvalidInput("name", f"must be text of 1 to {NAME_LIMIT} characters", given=name)
    if name != name.strip() or any(unicodedata.category(char) == "Cc" for char in name):
        raise InvalidInput("name", "must have no control character and no space at its ends")


def _check_instructions(given: object) -> None:
    if not isinstance(given, str) and not callable(given):
        raise InvalidInput("instructions", "must be text or a function of the run", given=given)
