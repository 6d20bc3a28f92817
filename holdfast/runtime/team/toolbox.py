"""What an agent of a team may call in one turn, each call ending in an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AnyTool, AnyToolset, name_of, named
from holdfast.runtime.context import Context, ToolContext
from holdfast.runtime.events import LogUpdate
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.mcp import kept, reach
from holdfast.runtime.steps.tools import READ_RESULT, ResultPages, StepTools, ToolCallOutcome
from holdfast.runtime.tools import equipped, in_thread
from holdfast.tools.base import Tool

RESULT_LIMIT: Final = 25_000
"""Characters of a tool's answer that go into a prompt at once; a longer one comes in parts."""


@dataclass(frozen=True)
class Equipment:
    """All that one agent has. *own* are the tools of team and memory, which page themselves."""

    agent: Agent
    own: Sequence[Tool]
    tools: Sequence[AnyTool]
    toolsets: Sequence[AnyToolset]

    def check(self) -> None:
        """Raise ToolNameTaken when two of them have one name."""
        named([*self.own, ResultPages(1).tool()], self.tools)


class TurnToolbox:
    """The tools of one agent, and what came of each call by its id."""

    def __init__(self, equipment: Equipment, context: Context) -> None:
        self._equipment, self._context = equipment, context
        self._pages = ResultPages(RESULT_LIMIT)
        self._own = {tool.name for tool in equipment.own}
        self._state = NetworkState()
        self.answers: dict[str, ToolCallOutcome] = {}
        self.offered: Mapping[str, ToolsetTool[Any]] = {}
        self.threaded = {name_of(tool) for tool in equipment.tools if in_thread(tool)}
        self.finished = False

    def toolset(self) -> StepTools:
        """Return them all as one toolset."""
        equipment = self._equipment
        tools = [*equipment.own, self._pages.tool(), *equipment.tools]
        toolsets = [kept(each) for each in equipment.toolsets]
        return StepTools(equipped(tools, toolsets, context_of=self._context_of), self)

    async def offer(
        self,
        tools: Mapping[str, ToolsetTool[Any]],
        messages: Sequence[ModelMessage],  # noqa: ARG002 - offered whatever was said
    ) -> Mapping[str, ToolsetTool[Any]]:
        """Return all, but for reading on where nothing came in parts."""
        self.offered = {
            name: tool for name, tool in tools.items() if name != READ_RESULT or len(self._pages)
        }
        return self.offered

    def pages_of(self, name: str) -> ResultPages | None:
        """Return where a long result of *name* is kept."""
        return None if name in self._own or name == READ_RESULT else self._pages

    async def sleep(self, seconds: float) -> None:
        """Wait, by the run's own measure of time."""
        await self._context.sleep(seconds)

    async def left_behind(self, name: str) -> None:
        """Tell that *name*, which would not stop, is left to itself."""
        told = f"the tool {name} did not stop with the run and is left behind"
        await self._context.tell(LogUpdate(severity="warning", content=told))

    async def reach(self, toolset: AbstractToolset[Any]) -> None:
        """Connect the servers in *toolset*; tell of those that cannot be reached."""
        for name, error in (await reach([toolset], self._context.servers_down)).items():
            told = f"the MCP server {name} cannot be reached, its tools are not offered: {error}"
            await self._context.tell(LogUpdate(severity="warning", content=told))

    def settings(self, ctx: RunContext[Any]) -> ModelSettings:
        """Return the settings of a request: a choice of the agent is forced on the first only."""
        agent = self._equipment.agent
        settings = ModelSettings(**(agent.model_settings or {}))
        choice = agent.tool_choice
        if ctx.run_step > 1 or choice == "auto" or (choice != "any" and choice not in self.offered):
            return settings
        forced = ModelSettings(tool_choice="required" if choice == "any" else [choice])
        return settings | forced

    def _context_of(self, ctx: RunContext[Any]) -> ToolContext:
        agent, context = self._equipment.agent, self._context
        call_id, name = ctx.tool_call_id or "", ctx.tool_name or ""
        return ToolContext(
            agent=agent,
            state=self._state.on_behalf(
                agent=agent.name, run_id=context.run_id, tool=name, call_id=call_id
            ),
            run_id=context.run_id,
            call_id=call_id,
            tool_name=name,
            usage=ctx.usage,
            context=context,
            memory=context.memory,
        )
