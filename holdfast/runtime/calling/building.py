"""The pydantic-ai agent below an agent of ours, made once for all its calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pydantic_ai import Agent as ModelAgent
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestContext

from holdfast.runtime.calling.answering import Answering
from holdfast.runtime.left_running import NOTING
from holdfast.runtime.mcp_servers import kept
from holdfast.runtime.tooling import equipped

if TYPE_CHECKING:
    from holdfast.runtime.agent import AgentSpec
    from holdfast.runtime.calling.call import AgentCall
    from holdfast.runtime.tool_context import ToolContext

_built: WeakKeyDictionary[AgentSpec, ModelAgent[Any, Any]] = WeakKeyDictionary()


def built(agent: AgentSpec) -> ModelAgent[Any, Any]:
    """Return the pydantic-ai agent whose runs are calls of *agent*; their `deps` are the call."""
    found = _built.get(agent)
    if found is None:
        toolsets = [kept(each) for each in agent.toolsets]
        tools = equipped(agent.tools, toolsets, context_of=_context_of)
        found = ModelAgent[Any, Any](
            name=agent.name,
            # A reply without a word, or with reasoning alone, is an answer too.
            output_type=[str, type(None)],
            toolsets=[Answering(tools)],
            capabilities=[NOTING, *([Rewriting()] if agent.hooks and agent.hooks.on_start else [])],
        )
        _built[agent] = found
    return found


def _context_of(ctx: RunContext[Any]) -> ToolContext:
    call: AgentCall = ctx.deps
    return call.tools.context(ctx)


class Rewriting(AbstractCapability[Any]):
    """Sends what a hook wants sent with one request, in place of what went before the loop."""

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request as the hook wants it."""
        call: AgentCall = ctx.deps
        if call.rewritten is None:
            return request_context
        system, messages = call.rewritten.system, call.rewritten.messages
        return replace(
            request_context,
            messages=[*messages, *request_context.messages[call.base :]],
            model_request_parameters=replace(
                request_context.model_request_parameters,
                instruction_parts=[InstructionPart(system)] if system else None,
            ),
        )
