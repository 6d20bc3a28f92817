"""What a step may call: the caller's tools as the step allows them, and those of the contract."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage
from pydantic_ai.settings import ModelSettings, ToolChoice
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from holdfast.ground.errors import NotRunnable
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AnyTool, name_of, named
from holdfast.runtime.context import Profile, ToolContext
from holdfast.runtime.mcp import kept, reach
from holdfast.runtime.steps.contract import Acceptance, Assignment, Stopped
from holdfast.runtime.steps.tools import (
    FINISH,
    READ_RESULT,
    ResultPages,
    StepTools,
    ToolCallOutcome,
)
from holdfast.runtime.tools import equipped, in_thread
from holdfast.tools.base import Tool
from holdfast.tools.run import run as run_tools

Concludes: TypeAlias = Callable[[Sequence[ModelMessage], Sequence[ToolDefinition]], Awaitable[bool]]
"""Tells whether the request that sends messages, with tools, is one a step concludes in."""

ANSWER: Final = 24_000
"""Characters of one answer of a memory tool."""

_FINISH: Final = Tool(
    id="step.finish", name=FINISH, description="", parameters={}, work=lambda _: None
)


def memory_tools(memory: RunMemory, *, profile: Profile, writer: str, most: int) -> list[Tool]:
    """Return the three tools of *memory* as a step has them, of *most* characters an answer."""
    return run_tools(memory, profile=profile, writer=writer, budget=min(ANSWER, most))


def check_names(tools: Iterable[AnyTool], contract: Iterable[Tool]) -> None:
    """Raise ToolNameTaken when two of *tools* have one name, or one has that of a tool of ours."""
    named([*contract, ResultPages(1).tool(), _FINISH], tools)


class Toolbox:
    """The tools of one try of a step: what is offered now, and what came of each call by its id.

    Nothing is run once *acceptance* is finished, nothing offered in a request that *concludes*.
    """

    def __init__(
        self,
        assignment: Assignment,
        *,
        answers: dict[str, ToolCallOutcome],
        acceptance: Acceptance,
        concludes: Concludes,
    ) -> None:
        self._assignment, self._acceptance, self._concludes = assignment, acceptance, concludes
        self.pages = ResultPages(assignment.tool_result_limit)
        self._contract: list[Tool] = [*assignment.contract_tools, self.pages.tool()]
        self._ours = {tool.name for tool in self._contract}
        self._allowed = assignment.step.tools
        self._state: NetworkState | None = None
        self.answers = answers
        self.offered: Mapping[str, ToolsetTool[Any]] = {}
        self.threaded = {name_of(tool) for tool in assignment.tools if in_thread(tool)}

    def toolset(self) -> StepTools:
        """Return them all as one toolset."""
        toolsets = [kept(each) for each in self._assignment.toolsets]
        tools = [*self._assignment.tools, *self._contract]
        return StepTools(equipped(tools, toolsets, context_of=self._context_of), self)

    @property
    def finished(self) -> bool:
        """Whether the step has its result, so that nothing is run any more."""
        return self._acceptance.finished

    async def offer(
        self, tools: Mapping[str, ToolsetTool[Any]], messages: Sequence[ModelMessage]
    ) -> Mapping[str, ToolsetTool[Any]]:
        """Return those of *tools* that may be called in the request that sends *messages*."""
        offered = {name: tool for name, tool in tools.items() if self._allows(name)}
        definitions = [tool.tool_def for tool in offered.values()]
        if await self._concludes(messages, definitions):
            offered = {}
        self.offered = offered
        return offered

    def _allows(self, name: str) -> bool:
        if name == READ_RESULT:
            return len(self.pages) > 0
        return name in self._ours or self._allowed is None or name in self._allowed

    def pages_of(self, name: str) -> ResultPages | None:
        """Return where a long result of *name* is kept; None for tools that page themselves."""
        return None if name in self._ours else self.pages

    @property
    def chooses(self) -> bool:
        """Whether the agent says which tool is called first."""
        return self._assignment.agent.tool_choice != "auto"

    def settings(self, ctx: RunContext[Any]) -> ModelSettings:
        """Return the settings of a request: a choice of the agent is forced on the first only."""
        agent = self._assignment.agent
        settings = ModelSettings(**(agent.model_settings or {}))
        choice = agent.tool_choice
        named = choice == "any" or choice in self.offered
        if ctx.run_step > 1 or not self.offered or not named:
            return settings
        forced: ToolChoice = "required" if choice == "any" else [choice]
        return settings | ModelSettings(tool_choice=forced)

    async def sleep(self, seconds: float) -> None:
        """Wait, by the run's own measure of time."""
        await self._assignment.context.sleep(seconds)

    async def left_behind(self, name: str) -> None:
        """Tell that *name*, which would not stop, is left to itself."""
        told = f"the tool {name} did not stop with the run and is left behind"
        await self._assignment.context.tell(self._assignment.log("warning", told))

    async def reach(self, toolset: AbstractToolset[Any]) -> None:
        """Connect the servers in *toolset*; tell of those that cannot be reached.

        Stopped, as where a model cannot be reached, if one of them is required.
        """
        context = self._assignment.context
        try:
            unreached = await reach([toolset], context.servers_down)
        except NotRunnable as error:
            raise Stopped("model_error", str(error)) from error
        for name, error in unreached.items():
            told = f"the MCP server {name} cannot be reached, its tools are not offered: {error}"
            await context.tell(self._assignment.log("warning", told))

    def _context_of(self, ctx: RunContext[Any]) -> ToolContext:
        context = self._assignment.context
        if self._state is None:
            self._state = NetworkState()
        return ToolContext(
            agent=self._assignment.agent,
            state=self._state,
            run_id=context.run_id,
            call_id=ctx.tool_call_id or "",
            tool_name=ctx.tool_name or "",
            usage=ctx.usage,
            context=context,
            memory=context.memory,
        )
