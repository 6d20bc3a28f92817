"""What do steps, turns, plans and checkpoints cost above the agents they run?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter_ns
from typing import Any

import conversation
import planned
from measure import Bench, Timing, main, paired
from pydantic_ai import Agent, StructuredDict, ToolOutput, UsageLimits

from holdfast.runtime import Context, Step, StepExecutor, Task
from holdfast.testing import ScriptedModel, call

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"ships": {"type": "integer"}}}
WRAPPED: dict[str, Any] = {"type": "object", "properties": {"result": SCHEMA}}
NO_LIMITS = UsageLimits(request_limit=None)


def at_once(_: object) -> Any:
    """Answer a request with the result of the step."""
    return call("finish_step", result={"ships": 3})


async def each(count: int, work: Callable[[], Awaitable[Any]]) -> Timing:
    """Return what each of *count* runs of *work* took, one after the other."""
    begun = perf_counter_ns()
    for _ in range(count):
        await work()
    return Timing(each=(perf_counter_ns() - begun) / count)


async def one_step(model: ScriptedModel) -> None:
    """Execute a step of one request."""
    step = Step(id="count", instructions="Count the ships.", output_schema=SCHEMA)
    task = Task(id="harbour", title="The harbour", steps=[step])
    context = Context(model=model)
    await StepExecutor(task=task, step=step, context=context).run()
    assert step.completed


def bare(model: ScriptedModel) -> Agent[None, Any]:
    """Return an agent of pydantic-ai that gives the same."""
    output = ToolOutput(StructuredDict(WRAPPED), name="finish_step")
    return Agent(model, output_type=output, instructions="Count.")


def steps(bench: Bench) -> None:
    """Compare a step with the run of an agent that gives the same."""
    count = bench.size(100, 10)
    model = ScriptedModel(at_once)
    agent = bare(model)

    async def of_agent() -> None:
        await agent.run("Count the ships.", usage_limits=NO_LIMITS)

    def ours() -> Timing:
        model.asked.clear()
        return asyncio.run(each(count, lambda: one_step(model)))

    def theirs() -> Timing:
        model.asked.clear()
        return asyncio.run(each(count, of_agent))

    bench.cost("one step", "a bare run", 1.6, paired(ours, theirs, bench.rounds))


def run(bench: Bench) -> None:
    """Measure it all."""
    steps(bench)
    conversation.in_a_state(bench)
    conversation.in_a_thread(bench)
    planned.run(bench)


if __name__ == "__main__":
    main("runtime", "What do steps, plans and checkpoints cost?", run)
