"""The pydantic-ai agent below an agent of ours, made once for all its calls."""

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_ai import Agent as ModelAgent
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestContext

from holdfast.runtime.agent import AgentSpec
from holdfast.runtime.concurrency import NOTING
from holdfast.runtime.context import ToolContext
from holdfast.runtime.inference.answering import ToolErrorToolset
from holdfast.runtime.inference.request import Sent
from holdfast.runtime.inference.tool_calls import ToolCalls
from holdfast.runtime.mcp import kept
from holdfast.runtime.tools import equipped

_built: WeakKeyDictionary[AgentSpec, ModelAgent[Any, Any]] = WeakKeyDictionary()


class CallDeps:
    """The `deps` of a call's loop: its *tools*, and what a hook wants sent before the loop.

    `base` is how many messages went before the loop.
    """

    def __init__(self, tools: ToolCalls) -> None:
        self.tools = tools
        self.rewritten: Sent | None = None
        self.base = 0


def built(agent: AgentSpec) -> ModelAgent[Any, Any]:
    """Return the pydantic-ai agent whose runs are calls of *agent*; their `deps` are `CallDeps`."""
    found = _built.get(agent)
    if found is None:
        toolsets = [kept(each) for each in agent.toolsets]
        tools = equipped(agent.tools, toolsets, context_of=_context_of)
        found = ModelAgent[Any, Any](
            name=agent.name,
            # A reply without a word, or with reasoning alone, is an answer too.
            output_type=[str, type(None)],
            toolsets=[ToolErrorToolset(tools)],
            capabilities=[
                NOTING,
                *([RequestRewrite()] if agent.hooks and agent.hooks.on_start else []),
            ],
        )
        _built[agent] = found
    return found


def _context_of(ctx: RunContext[Any]) -> ToolContext:
    deps: CallDeps = ctx.deps
    return deps.tools.context(ctx)


class RequestRewrite(AbstractCapability[Any]):
    """Sends what a hook wants sent with one request, in place of what went before the loop."""

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request as the hook wants it."""
        deps: CallDeps = ctx.deps
        if deps.rewritten is None:
            return request_context
        system, messages = deps.rewritten.system, deps.rewritten.messages
        return replace(
            request_context,
            messages=[*messages, *request_context.messages[deps.base :]],
            model_request_parameters=replace(
                request_context.model_request_parameters,
                instruction_parts=[InstructionPart(system)] if system else None,
            ),
        )
