"""The pydantic-ai agent that an agent of ours is, for whoever goes on there."""

from typing import Any

from pydantic_ai import Agent as ModelAgent
from pydantic_ai import RunContext

from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AgentSpec
from holdfast.runtime.concurrency import awaited
from holdfast.runtime.context import Context, ToolContext
from holdfast.runtime.mcp import kept
from holdfast.runtime.tools import ContextOf, equipped


def context_of(agent: AgentSpec, context: Context) -> ContextOf:
    """Return what tells each tool of *agent*, in *context*, of its call, and of a fresh state."""
    state = NetworkState(clock=context.clock)

    def told(ctx: RunContext[Any]) -> ToolContext:
        call_id, name = ctx.tool_call_id or "", ctx.tool_name or ""
        return ToolContext(
            agent=agent,
            state=state.on_behalf(
                agent=agent.name, run_id=context.run_id, tool=name, call_id=call_id
            ),
            run_id=context.run_id,
            call_id=call_id,
            tool_name=name,
            usage=ctx.usage,
            context=context,
            memory=context.memory,
        )

    return told


def bare_agent(agent: AgentSpec, context: Context) -> ModelAgent[Any, str]:
    """Return *agent* as a pydantic-ai agent whose tools know *context*."""

    async def instructions() -> str:
        text = agent.instructions
        return text if isinstance(text, str) else await awaited(text(context))

    toolsets = [kept(each) for each in agent.toolsets]
    return ModelAgent[Any, str](
        agent.model or context.model,
        name=agent.name,
        instructions=instructions,
        toolsets=[equipped(agent.tools, toolsets, context_of=context_of(agent, context))],
        model_settings=agent.model_settings,
    )
