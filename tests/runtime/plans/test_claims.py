"""Executors at work: one run of each at a time, and no two with the same parts of a context."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

import pytest
from runtime.plans.workers import Workers, plan, step, task, told

from holdfast.errors import RunTaken
from holdfast.runtime import (
    Agent,
    AgentStepExecutor,
    AgentStepNode,
    Context,
    FunctionNode,
    MultiModeAgent,
    ParallelTaskExecutor,
    StepExecutor,
    TaskExecutor,
    TaskPlanner,
    TeamExecutor,
    Workflow,
    WorkflowRunner,
)
from holdfast.runtime.events import LogUpdate
from holdfast.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


@pytest.fixture
def workers() -> Workers:
    workers = Workers()
    workers.wait("a1")
    return workers


def one_step(context: Context) -> StepExecutor:
    alone = task("a", step("a1"))
    return StepExecutor(task=alone, step=alone.steps[0], context=context)


def one_task(context: Context) -> TaskExecutor:
    return TaskExecutor(task=task("a"), context=context)


def one_plan(context: Context) -> ParallelTaskExecutor:
    return ParallelTaskExecutor(plan=plan(task("a"), task("b", depends_on=["a"])), context=context)


def one_node(context: Context) -> WorkflowRunner:
    return WorkflowRunner(Workflow([AgentStepNode("a1", "Work on a1.")]), context)


Kind: TypeAlias = Callable[[Context], Any]
KINDS: list[Kind] = [one_step, one_task, one_plan, one_node]


async def until_begun(workers: Workers) -> None:
    async with asyncio.timeout(60):
        while not workers.began:  # noqa: ASYNC110 - the model has no event for it
            await asyncio.sleep(0)


async def drained(events: AsyncGenerator[Any]) -> None:
    async for _ in events:
        pass


@pytest.mark.parametrize("kind", KINDS)
async def test_an_executor_at_work_refuses_a_second_run_and_runs_again_after_its_end(
    workers: Workers, kind: Kind
) -> None:
    executor = kind(workers.context())
    first = asyncio.create_task(executor.run())
    await until_begun(workers)

    with pytest.raises(RunTaken, match="a1"):
        await executor.run()
    with pytest.raises(RunTaken):
        await drained(executor.execute())
    with pytest.raises(RunTaken):
        await drained(executor.stream())
    assert workers.began == ["a1"]

    workers.let_go("a1")
    result = await first
    assert await executor.run() == result


async def test_a_planner_a_team_and_an_agent_of_modes_refuse_a_second_run() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> Any:
        began.set()
        await go_on.wait()
        return call("finish_step", result=1)

    def context() -> Context:
        return Context(model=ScriptedModel(answer))

    ada, bob = (Agent(name, instructions="", description=name) for name in ("ada", "bob"))
    modes = MultiModeAgent(name="ada", objective="Look.", output_schema={"type": "integer"})
    planner = TaskPlanner(objective="Look.", context=context())
    team = TeamExecutor(objective="Look.", agents=[ada, bob], context=context())
    runs: list[Callable[[], Any]] = [lambda: modes.run(context()), planner.run, team.run]

    for run in runs:
        began.clear()
        first = asyncio.create_task(run())
        await asyncio.wait_for(began.wait(), 60)
        with pytest.raises(RunTaken):
            await run()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
async def test_two_at_once_whose_ids_meet_are_refused_before_anything_runs(
    workers: Workers, kind: Kind, other: Kind
) -> None:
    context = workers.context()
    first = asyncio.create_task(kind(context).run())
    await until_begun(workers)

    with pytest.raises(RunTaken) as caught:
        await other(context).run()

    assert "a1" in caught.value.ids
    assert caught.value.run_id == context.run_id
    assert workers.began == ["a1"]
    workers.let_go("a1")
    await first


async def test_other_ids_or_a_copy_of_the_context_are_the_way_out(workers: Workers) -> None:
    context = workers.context()
    first = asyncio.create_task(one_plan(context).run())
    await until_begun(workers)

    await TaskExecutor(task=task("c"), context=context).run()
    within = asyncio.create_task(one_plan(context.copy()).run())
    workers.let_go("a1")

    assert await first == await within == "done b1"


async def test_one_after_the_other_is_allowed_with_a_warning() -> None:
    workers = Workers()
    context = workers.context()
    await one_plan(context).run()

    events = await told(one_plan(context))

    warned = [event.content for event in events if isinstance(event, LogUpdate)]
    assert "step:a1 was in memory before the plan began." in warned


async def test_a_node_of_a_workflow_may_run_a_step_under_its_own_id() -> None:
    async def process(inputs: dict[str, Any], context: Context) -> dict[str, Any]:
        return await AgentStepExecutor(AgentStepNode("n", "Work on n.")).process(inputs, context)

    runner = WorkflowRunner(Workflow([FunctionNode("n", process)]), Workers().context())

    assert (await runner.run())["n"]["result"] == "done n"


async def test_a_plan_that_a_model_made_is_refused_where_its_ids_meet(workers: Workers) -> None:
    context = workers.context()
    first = asyncio.create_task(one_plan(context).run())
    await until_begun(workers)
    steps = [{"id": "a1", "instructions": "Look."}]
    planner = ScriptedModel([call("add_task", id="a", title="A", steps=steps), call("finish_plan")])
    modes = MultiModeAgent(name="ada", objective="Look.", mode="plan", model=planner)

    with pytest.raises(RunTaken) as caught:
        await modes.run(context)

    assert caught.value.ids == ("a", "a1")
    workers.let_go("a1")
    await first
