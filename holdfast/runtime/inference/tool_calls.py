"""The calls of tools in one call of an agent: what was asked, what came of each, who is told."""

import traceback
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelResponse, ToolReturnPart
from pydantic_ai.settings import ModelSettings, ToolChoice

from holdfast.ground.errors import InvalidInput
from holdfast.memories.state.message import ToolCall
from holdfast.runtime.agent import AgentSpec
from holdfast.runtime.context import ToolContext
from holdfast.runtime.inference.messages import ToolOutcome, calls, content_of, tool_call
from holdfast.runtime.inference.run_types import Run

working: ContextVar[tuple[str, str, str] | None] = ContextVar("working", default=None)
"""The run whose tool is at work, the tool's name, and its call's id."""


class ToolContract(Struct, frozen=True):
    """What a tool's definition said before it was made to answer always."""

    timeout: float | None
    kind: str


class ToolCalls:
    """What the tools of *agent* were asked in one of its calls in *run*, and what they answered."""

    def __init__(self, agent: AgentSpec, run: Run) -> None:
        self._agent, self._run = agent, run
        self._asked: dict[str, ToolCall] = {}
        self._offered: Collection[str] = ()
        self._step = 0
        self.answers: dict[tuple[int, str], ToolOutcome] = {}
        self.terms: dict[str, ToolContract] = {}

    @property
    def most_errors(self) -> int:
        """How many errors end the call."""
        return self._run.max_tool_errors

    @property
    def errors(self) -> int:
        """How many calls gave no data so far."""
        return sum("error" in each.content for each in self.answers.values())

    def offer(self, names: Mapping[str, object]) -> None:
        """Take note of the *names* a model is offered; InvalidInput if not the one chosen."""
        self._offered = names.keys()
        choice = self._agent.tool_choice
        if choice not in ("auto", "any") and choice not in names:
            there = ", ".join(names) or "none"
            raise InvalidInput(
                "tool_choice", f"there is no such tool; there are: {there}", given=choice
            )

    def settings(self, ctx: RunContext[Any]) -> ModelSettings:
        """Return the settings of a request: a choice is forced on the first one only."""
        settings = ModelSettings(**(self._agent.model_settings or {}))
        choice = self._agent.tool_choice
        if ctx.run_step > 1 or choice == "auto" or not self._offered:
            return settings
        forced: ToolChoice = "required" if choice == "any" else [choice]
        return settings | ModelSettings(tool_choice=forced)

    def ask(self, response: ModelResponse, step: int) -> None:
        """Take note of what *response*, the *step*-th, asks for."""
        self._step = step
        self._asked = {each.tool_call_id: tool_call(each) for each in calls(response)}

    def context(self, ctx: RunContext[Any]) -> ToolContext:
        """Return what the tool of one call is told of it."""
        call_id, name = ctx.tool_call_id or "", ctx.tool_name or ""
        return ToolContext(
            agent=self._agent,
            network=self._run.handle,
            state=self._run.state.on_behalf(
                agent=self._agent.name, run_id=self._run.id, tool=name, call_id=call_id
            ),
            run_id=self._run.id,
            call_id=call_id,
            tool_name=name,
            usage=ctx.usage,
        )

    def at_work(self, name: str, call_id: str) -> tuple[str, str, str]:
        """Return what is to be known while the tool *name* does its work."""
        return self._run.id, name, call_id

    async def called(self, call_id: str) -> datetime:
        """Tell that the tool of a call is about to work; return when."""
        call = self._asked[call_id]
        data = {"name": call.name, "input": call.input}
        await self._run.tell("tool.called", data, agent=self._agent.name, call_id=call_id)
        return self._run.clock.now()

    def since(self, began: datetime) -> int:
        """Return the milliseconds from *began* to now."""
        return (self._run.clock.now() - began) // timedelta(milliseconds=1)

    async def answered(
        self, call_id: str, answer: ToolOutcome, cause: BaseException | None = None
    ) -> None:
        """Keep and tell the *answer* of a call; *cause* is what its tool raised."""
        self.answers[self._step, call_id] = answer
        data: dict[str, Any] = {
            "name": self._asked[call_id].name,
            "content": answer.content,
            "duration_ms": answer.duration_ms,
        }
        if cause is not None:
            data["traceback"] = "".join(traceback.format_exception(cause))
        await self._run.tell("tool.returned", data, agent=self._agent.name, call_id=call_id)

    async def came_back(self, part: ToolReturnPart) -> None:
        """Keep and tell the answer of a call whose tool was not asked, for there is none, say."""
        call_id = part.tool_call_id
        if (self._step, call_id) not in self.answers:
            began = await self.called(call_id)
            await self.answered(call_id, ToolOutcome(content_of(part), self.since(began)))
