"""Workflows: what is refused, what runs when, what an agent in one is told."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from holdfast import keys
from holdfast.ground.errors import (
    InvalidInput,
    InvalidPlan,
    NoModel,
    RunCancelled,
    StepFailed,
    TaskFailed,
)
from holdfast.runtime import (
    AgentStepExecutor,
    AgentStepNode,
    Context,
    Edge,
    FunctionNode,
    TaskUpdate,
    Workflow,
    WorkflowRunner,
)
from holdfast.runtime.workflow import Node
from holdfast.testing.scripted import ScriptedModel, Turn, call

pytestmark = pytest.mark.anyio


def double(inputs: dict[str, Any], context: Context) -> dict[str, Any]:
    del context
    return {"n": inputs["n"] * 2}


def chain(*ids: str) -> Workflow:
    """Return functions that each double what the one before gave."""
    edges = [Edge(a, "n", b, "n") for a, b in pairwise(ids)]
    return Workflow([FunctionNode(id, double) for id in ids], edges)


def context(*turns: Turn) -> Context:
    return Context(model=ScriptedModel(turns))


def model_of(context: Context) -> ScriptedModel:
    assert isinstance(context.model, ScriptedModel)
    return context.model


async def moments(runner: WorkflowRunner, **inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is told of the nodes, in its order."""
    return [
        (event.event, event.step_id or "")
        async for event in runner.execute(inputs)
        if isinstance(event, TaskUpdate)
    ]


async def test_what_a_node_gives_reaches_the_next() -> None:
    runner = WorkflowRunner(chain("a", "b"), context())

    outputs = await runner.run({"a": {"n": 1}})

    assert outputs == runner.outputs == {"a": {"n": 2}, "b": {"n": 4}}
    assert runner.states == {"a": "completed", "b": "completed"}


async def test_each_node_is_told_of_from_start_to_end() -> None:
    runner = WorkflowRunner(chain("a", "b"), context())

    assert await moments(runner, a={"n": 1}) == [
        ("step_started", "a"),
        ("step_completed", "a"),
        ("step_started", "b"),
        ("step_completed", "b"),
    ]


async def test_a_node_starts_as_soon_as_what_it_needs_is_there() -> None:
    reached = asyncio.Event()

    async def slow(inputs: dict[str, Any], context: Context) -> dict[str, Any]:
        del inputs, context
        await asyncio.wait_for(reached.wait(), 30)
        return {}

    def reach(inputs: dict[str, Any], context: Context) -> dict[str, Any]:
        reached.set()
        return double(inputs, context)

    nodes = [FunctionNode("slow", slow), FunctionNode("a", double), FunctionNode("b", reach)]
    runner = WorkflowRunner(Workflow(nodes, [Edge("a", "n", "b", "n")]), context())

    outputs = await runner.run({"a": {"n": 1}})

    assert outputs["b"] == {"n": 4}


async def test_what_needs_a_failed_node_is_blocked_and_what_does_not_runs() -> None:
    def fail(*_: object) -> dict[str, Any]:
        raise ValueError("no wind")

    workflow = Workflow(
        [FunctionNode("bad", fail), *chain("b", "c").nodes, FunctionNode("free", double)],
        [Edge("bad", "n", "b", "n"), *chain("b", "c").edges],
    )
    runner = WorkflowRunner(workflow, context())

    with pytest.raises(TaskFailed, match="no wind") as caught:
        await runner.run({"free": {"n": 1}})

    assert runner.states == {"bad": "failed", "b": "blocked", "c": "blocked", "free": "completed"}
    assert (caught.value.failed, caught.value.blocked) == (("bad",), ("b", "c"))


async def test_a_node_that_gives_no_outputs_has_failed() -> None:
    def wrong(*_: object) -> Any:
        return 4

    runner = WorkflowRunner(Workflow([FunctionNode("a", wrong)]), context())

    with pytest.raises(TaskFailed, match="must be a dict"):
        await runner.run()


async def test_an_output_that_did_not_come_fails_the_node_that_needs_it() -> None:
    nodes = [FunctionNode("a", double), FunctionNode("b", double)]
    runner = WorkflowRunner(Workflow(nodes, [Edge("a", "m", "b", "n")]), context())

    with pytest.raises(TaskFailed, match="a gave no m, but n"):
        await runner.run({"a": {"n": 1}})

    assert runner.states["b"] == "failed"


@pytest.mark.parametrize(
    ("nodes", "edges", "code"),
    [
        ((), (), "no_nodes"),
        (("a", "a"), (), "duplicate"),
        (("a b",), (), "id"),
        (("a",), (("a", "z"),), "unknown_node"),
        (("a",), (("a", "a"),), "self"),
        (("a", "b"), (("a", "b"), ("b", "a")), "cycle"),
        (("a", "b", "c"), (("a", "c"), ("b", "c")), "two_edges"),
    ],
)
def test_a_workflow_that_cannot_be_run_is_refused(
    nodes: Sequence[str], edges: Sequence[tuple[str, str]], code: str
) -> None:
    workflow = Workflow(
        [FunctionNode(id, double) for id in nodes], [Edge(a, "n", b, "n") for a, b in edges]
    )

    with pytest.raises(InvalidPlan):
        WorkflowRunner(workflow, context())

    assert code in [each.code for each in workflow.problems()]


def test_an_agent_node_is_checked_like_a_step() -> None:
    workflow = Workflow([AgentStepNode("a", " ", output_schema={"type": "nothing"})])

    assert [(each.where, each.code) for each in workflow.problems()] == [
        ("workflow.nodes[0]", "blank"),
        ("workflow.nodes[0].output_schema", "schema"),
    ]


def test_an_agent_node_without_a_model_is_refused() -> None:
    with pytest.raises(NoModel):
        WorkflowRunner(Workflow([AgentStepNode("a", "Go.")]), Context())


@pytest.mark.parametrize("inputs", [{"z": {"n": 1}}, {"b": {"n": 1}}])
async def test_inputs_that_no_node_waits_for_are_refused(inputs: dict[str, Any]) -> None:
    runner = WorkflowRunner(chain("a", "b"), context())

    with pytest.raises(InvalidInput, match="inputs"):
        await runner.run(inputs)


async def test_an_agent_is_told_where_its_inputs_are_and_not_what_they_are() -> None:
    run = context("Two ships.")

    def read(*_: object) -> dict[str, Any]:
        return {"log": "a secret log"}

    nodes: list[Node] = [
        FunctionNode("a", read),
        AgentStepNode("count", "Count the ships."),
    ]
    runner = WorkflowRunner(Workflow(nodes, [Edge("a", "log", "count", "log")]), run)

    outputs = await runner.run()

    (asked,) = model_of(run).asked
    assert "input:count.log" in asked.text
    assert "a secret log" not in asked.text
    assert outputs["count"] == {"output": "Two ships.", "result": "Two ships."}
    entry = run.memory.get(keys.input("count.log"))
    assert entry is not None
    assert (entry.value, entry.kind, entry.source, entry.title) == (
        "a secret log",
        "input",
        "count",
        "count.log",
    )
    assert run.memory.get_value(keys.step("count")) == "Two ships."


async def test_an_input_that_is_none_is_not_told() -> None:
    run = context("None.")
    runner = WorkflowRunner(Workflow([AgentStepNode("a", "Go.")]), run)

    await runner.run({"a": {"x": None}})

    assert "input:a.x" not in model_of(run).asked[0].text
    assert not run.memory.has(keys.input("a.x"))


async def test_an_agent_node_is_told_of_once() -> None:
    runner = WorkflowRunner(Workflow([AgentStepNode("a", "Go.")]), context("Gone."))

    assert await moments(runner) == [("step_started", "a"), ("step_completed", "a")]


async def test_an_agent_node_that_fails_says_why_and_blocks() -> None:
    nodes: list[Node] = [AgentStepNode("a", "Go."), FunctionNode("b", double)]
    workflow = Workflow(nodes, [Edge("a", "result", "b", "n")])
    runner = WorkflowRunner(workflow, context(ValueError("no line")))

    told = await moments(runner)

    assert told.count(("step_failed", "a")) == 1
    assert told[-1] == ("step_blocked", "b")
    assert runner.errors["a"].reason == "model_error"


def tide() -> str:
    """Tell the tide."""
    return "high"


def wind() -> str:
    """Tell the wind."""
    return "low"


@pytest.mark.parametrize(
    ("wanted", "offered"), [(None, {"tide", "wind"}), (["tide"], {"tide"}), ([], set[str]())]
)
async def test_an_agent_node_is_offered_its_tools_alone(
    wanted: list[str] | None, offered: set[str]
) -> None:
    run = context("Done.")
    executor = AgentStepExecutor(AgentStepNode("a", "Go.", tools=wanted), tools=[tide, wind])

    await executor.process({}, run)

    assert set(model_of(run).asked[0].offered) & {"tide", "wind"} == offered


async def test_an_agent_node_may_bring_its_tools() -> None:
    run = context([call("tide")], "High.")

    await AgentStepExecutor(AgentStepNode("a", "Go.", tools=[tide])).process({}, run)

    assert "high" in model_of(run).asked[1].text


async def test_a_tool_that_nobody_has_is_refused() -> None:
    node = AgentStepNode("a", "Go.", tools=["tide"])

    with pytest.raises(InvalidInput, match="there is no tide"):
        WorkflowRunner(Workflow([node]), context(), tools=[wind])


async def test_an_agent_node_on_its_own_raises_what_it_failed_with() -> None:
    executor = AgentStepExecutor(AgentStepNode("a", "Go."))

    with pytest.raises(StepFailed, match="no line"):
        await executor.process({}, context(ValueError("no line")))
    with pytest.raises(InvalidInput, match="context"):
        await executor.process({}, None)


@pytest.mark.parametrize("kind", ["function", "agent"])
async def test_cancelling_stops_what_runs_and_starts_nothing(kind: str) -> None:
    run = Context()

    async def stop(*_: object) -> dict[str, Any]:
        run.cancel("enough")
        await asyncio.Event().wait()
        return {}

    agent = AgentStepNode("a", "Go.", model=ScriptedModel(stop))
    node: Node = FunctionNode("a", stop) if kind == "function" else agent
    workflow = Workflow([node, FunctionNode("b", double)], [Edge("a", "n", "b", "n")])
    runner = WorkflowRunner(workflow, run)

    with pytest.raises(RunCancelled):
        await runner.run()

    assert runner.states == {"a": "cancelled", "b": "cancelled"}


async def test_what_was_cancelled_is_told_once_each() -> None:
    run = context()

    async def stop(*_: object) -> dict[str, Any]:
        run.cancel("enough")
        await asyncio.Event().wait()
        return {}

    workflow = Workflow(
        [FunctionNode("a", stop), FunctionNode("b", double)], [Edge("a", "n", "b", "n")]
    )

    told = await moments(WorkflowRunner(workflow, run))

    assert told == [("step_started", "a"), ("step_cancelled", "a"), ("step_cancelled", "b")]


@pytest.mark.parametrize(
    ("outputs", "place"),
    [
        ({"n": {"rows": [1, {2}]}}, "outputs.a.n"),
        ({"n": float("nan")}, "outputs.a.n"),
        ({"n": 1, "m": object()}, "outputs.a.m"),
    ],
)
async def test_a_function_whose_output_is_no_json_fails_with_the_place(
    outputs: dict[str, Any], place: str
) -> None:
    def give(inputs: dict[str, Any], context: Context) -> dict[str, Any]:
        del inputs, context
        return outputs

    nodes = [FunctionNode("a", give), FunctionNode("b", double)]
    runner = WorkflowRunner(Workflow(nodes, [Edge("a", "n", "b", "n")]), context())

    with pytest.raises(TaskFailed) as caught:
        await runner.run()

    assert place in str(caught.value)
    assert runner.states == {"a": "failed", "b": "blocked"}
