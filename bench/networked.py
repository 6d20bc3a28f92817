"""What a run of a network costs beyond the run of the agent that is in it."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter_ns

from measure import Bench, Timing, paired
from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast.runtime import Agent, Network, RouterContext

RUNS = 300
"""Runs of each kind in one round."""


async def _answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("look", {"place": "safe"}, "call_1")])
    return ModelResponse([TextPart("The key is in the safe.")])


async def look(place: str) -> str:
    """Look for the key at *place*."""
    return f"It is in the {place}."


def _once(ctx: RouterContext) -> str | None:
    return None if ctx.call_count else "finder"


async def _timed(act: Callable[[], Awaitable[object]], count: int) -> Timing:
    begun = perf_counter_ns()
    for _ in range(count):
        await act()
    return Timing(each=(perf_counter_ns() - begun) / count)


def running(bench: Bench) -> None:
    """Run a network of one agent whose model calls one tool, against that agent alone."""
    count, model = bench.size(RUNS, 20), FunctionModel(_answer)
    bare = ModelAgent(model, instructions="You find keys.", tools=[look])
    finder = Agent("finder", instructions="You find keys.", model=model, tools=[look])
    network = Network("desk", [finder], router=_once)
    with asyncio.Runner() as runner:
        rounds = paired(
            lambda: runner.run(_timed(lambda: network.run("Where is the key?"), count)),
            lambda: runner.run(_timed(lambda: bare.run("Where is the key?"), count)),
            bench.rounds,
        )
    bench.cost("network.run, one agent, one tool", "bare pydantic-ai", 1.5, rounds)
