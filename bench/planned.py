"""Plans as they are measured: against bare runs, for memory, and with checkpoints."""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from time import perf_counter_ns
from typing import Any

from measure import Bench, Timing, paired
from pydantic_ai import Agent, StructuredDict, ToolOutput, UsageLimits

from holdfast.runtime import (
    Context,
    MemoryCheckpoints,
    ParallelTaskExecutor,
    Step,
    Task,
    TaskExecutor,
    TaskPlan,
)
from holdfast.runtime.events import TaskUpdate
from holdfast.testing import ScriptedModel, call

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"ships": {"type": "integer"}}}
WRAPPED: dict[str, Any] = {"type": "object", "properties": {"result": SCHEMA}}
DELAY, SLOW = 0.02, 0.2
CAP = 50


def model(delay: float = 0.0) -> ScriptedModel:
    """Return a model that gives a result after *delay*, and keeps nothing of what it was asked."""

    async def answer(_: object) -> Any:
        made.asked.clear()
        if delay:
            await asyncio.sleep(delay)
        return call("finish_step", result={"ships": 3})

    made = ScriptedModel(answer)
    return made


def step(id: str, *needs: str, **fields: Any) -> Step:
    """Return a step of one request."""
    return Step(
        id=id,
        instructions="Count the ships.",
        depends_on=list(needs),
        output_schema=SCHEMA,
        **fields,
    )


def timed(work: Callable[[], Awaitable[Any]], count: int) -> Timing:
    """Return what each of *count* things took that *work* does together."""

    async def run() -> int:
        begun = perf_counter_ns()
        await work()
        return perf_counter_ns() - begun

    return Timing(each=asyncio.run(run()) / count)


def side_by_side(bench: Bench) -> None:
    """Compare tasks that need nothing of one another with bare runs behind a semaphore.

    A plan holds at most 100 tasks, so that 200 are two plans of one run.
    """
    plans, tasks = 2, bench.size(100, 20)
    slow = model(DELAY)

    async def planned() -> None:
        context = Context(model=slow, max_concurrency=CAP)
        made = [
            TaskPlan(
                title="Harbours",
                tasks=[
                    Task(id=f"t{half}_{n}", title="A harbour", steps=[step(f"s{half}_{n}")])
                    for n in range(tasks)
                ],
            )
            for half in range(plans)
        ]
        runs = [ParallelTaskExecutor(plan=each, context=context).run() for each in made]
        await asyncio.gather(*runs)

    async def bare() -> None:
        output = ToolOutput(StructuredDict(WRAPPED), name="finish_step")
        agent = Agent(slow, output_type=output, instructions="Count.")
        cap = asyncio.Semaphore(CAP)

        async def one() -> None:
            async with cap:
                await agent.run("Count the ships.", usage_limits=UsageLimits(request_limit=None))

        await asyncio.gather(*(one() for _ in range(plans * tasks)))

    count = plans * tasks
    rounds = paired(lambda: timed(planned, count), lambda: timed(bare, count), bench.rounds)
    bench.cost(f"{count} tasks, cap {CAP}, 20 ms a request", "bare runs", 1.5, rounds)


def beside_a_slow_one(bench: Bench) -> None:
    """See that nobody waits for what he does not need."""

    async def late() -> float:
        """Return 1 when b was not begun before c had ended, else 0."""

        async def answer(asked: Any) -> Any:
            if "slowly" in asked.text:
                await asyncio.sleep(SLOW)
            return call("finish_step", result={"ships": 3})

        steps = [step("a"), step("b", "a"), step("c"), step("end")]
        steps[2].instructions = "Count slowly."
        run = TaskExecutor(
            task=Task(id="t", title="A task", steps=steps),
            context=Context(model=ScriptedModel(answer)),
        )
        told = [
            (event.event, event.step_id)
            async for event in run.execute()
            if isinstance(event, TaskUpdate)
        ]
        return float(told.index(("step_started", "b")) > told.index(("step_completed", "c")))

    found = [asyncio.run(late()) for _ in range(bench.rounds)]
    bench.amount("b, which needs a, begun after slow c ended", "rounds", 0, "times", found)


def fanned_out(bench: Bench) -> None:
    """Weigh what a finished item of a fan-out leaves, beside its result."""
    items = bench.size(1_000, 200)

    async def weighed() -> float:
        context = Context(model=model())
        context.memory.set("input:list", list(range(items)))
        each = step("each", "list", mode="process", max_items=items)
        run = TaskExecutor(
            task=Task(id="t", title="A task", steps=[each]),
            context=context,
            inputs={"list": list(range(items))},
        )
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await run.run()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        results = sum(entry.value_bytes for entry in context.memory.snapshot())
        return (held - results) / items

    def round_of() -> float:
        tracemalloc.start()
        try:
            return asyncio.run(weighed())
        finally:
            tracemalloc.stop()

    round_of()
    found = [round_of() for _ in range(min(bench.rounds, 3))]
    bench.amount("memory held beside its result", "each finished item", 4_096, "bytes", found)


def with_checkpoints(bench: Bench) -> None:
    """Compare a chain that is kept after each step with one that is not."""
    count = bench.size(200, 40)
    quick = model()

    async def chain(checkpoint: MemoryCheckpoints | None) -> None:
        steps = [step(f"s{n}", *([f"s{n - 1}"] if n else [])) for n in range(count)]
        plan = TaskPlan(title="Harbour", tasks=[Task(id="t", title="A task", steps=steps)])
        run = ParallelTaskExecutor(plan=plan, context=Context(model=quick), checkpoint=checkpoint)
        await run.run()

    rounds = paired(
        lambda: timed(lambda: chain(MemoryCheckpoints()), count),
        lambda: timed(lambda: chain(None), count),
        bench.rounds,
    )
    bench.cost(f"{count} steps, each kept", "none kept", 1.5, rounds)


def many_items_kept(bench: Bench) -> None:
    """Compare the items of a long list with those of a short one, each kept."""
    many, few = bench.size(1_000, 200), bench.size(100, 20)
    quick = model()

    async def kept(items: int) -> None:
        each = step("each", "list", mode="process", max_items=items)
        plan = TaskPlan(title="Harbour", tasks=[Task(id="t", title="A task", steps=[each])])
        inputs: dict[str, Any] = {"list": list(range(items))}
        context = Context(model=quick, max_concurrency=CAP)
        run = ParallelTaskExecutor(
            plan=plan, context=context, inputs=inputs, checkpoint=MemoryCheckpoints()
        )
        await run.run()

    rounds = paired(
        lambda: timed(lambda: kept(many), many),
        lambda: timed(lambda: kept(few), few),
        bench.rounds,
    )
    bench.cost(f"an item of {many} kept", f"an item of {few}", 1.5, rounds)


def run(bench: Bench) -> None:
    """Measure it all."""
    side_by_side(bench)
    beside_a_slow_one(bench)
    fanned_out(bench)
    with_checkpoints(bench)
    many_items_kept(bench)
