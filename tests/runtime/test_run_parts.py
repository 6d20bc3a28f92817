"""The parts of runs: whatever is executed shows its tasks, steps, nodes and agents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from teams import a_team, an_agent, create, work

import holdfast
from holdfast import Holdfast
from holdfast.ground.errors import PlanFailed
from holdfast.memories.run.records.parts import RunPart
from holdfast.runtime import (
    Agent,
    AgentStepNode,
    Context,
    Edge,
    FunctionNode,
    Network,
    ParallelTaskExecutor,
    Step,
    Task,
    TaskBoard,
    TaskPlan,
    Workflow,
    WorkflowRunner,
)
from holdfast.testing import ScriptedModel
from holdfast.testing.scripted import Asked


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "h.db") as opened:
        yield opened


def context(hf: Holdfast, *turns: Any) -> Context:
    """Return a run of *hf* with a model of *turns*."""
    return Context(hf=hf, run_id="run_1", model=ScriptedModel(list(turns)))


def by_id(hf: Holdfast, run: str = "run_1") -> dict[str, RunPart]:
    """Return the parts of *run* by kind and id."""
    return {f"{part.kind} {part.id}": part for part in hf.runs.parts(run)}


def states(hf: Holdfast, run: str = "run_1") -> dict[str, str]:
    """Return the state of each part of *run*."""
    return {name: part.state for name, part in by_id(hf, run).items()}


@pytest.mark.anyio
async def test_a_plan_has_its_tasks_steps_and_items_as_parts(hf: Holdfast) -> None:
    look = Task(id="look", title="Look", steps=[Step(id="find", instructions="Find.")])
    each = Step(id="each", instructions="Count.", depends_on=["ships"], mode="process")
    count = Task(id="count", title="Count", steps=[each], depends_on=["look"])
    run = context(hf, *["Three."] * 3)
    plan = TaskPlan(title="Harbour", tasks=[look, count])
    await ParallelTaskExecutor(plan=plan, context=run, inputs={"ships": ["a", "b"]}).run()

    parts = by_id(hf)
    assert list(parts) == [
        *("task look", "task count", "step find", "step each", "item each.0", "item each.1"),
    ]
    assert set(states(hf).values()) == {"completed"}
    assert (parts["task count"].depends_on, parts["task count"].title) == (("look",), "Count")
    assert (parts["step each"].within, parts["step each"].depends_on) == ("count", ("ships",))
    assert (parts["item each.1"].within, parts["item each.1"].attempts) == ("each", 1)
    assert (parts["step find"].usage or {})["requests"] == 1
    assert hf.runs.retrieve("run_1").parts == {"completed": 6}


@pytest.mark.anyio
async def test_what_a_failed_plan_never_began_is_blocked(hf: Holdfast) -> None:
    def fails(_: object) -> Any:
        raise OSError("no route")

    tasks = [
        Task(id=id, title=id, steps=[Step(id=f"{id}_step", instructions="Do.")], depends_on=needs)
        for id, needs in (("a", []), ("b", ["a"]), ("c", ["b"]))
    ]
    executor = ParallelTaskExecutor(
        plan=TaskPlan(title="Harbour", tasks=tasks), context=context(hf, fails)
    )
    with pytest.raises(PlanFailed):
        await executor.run()

    assert states(hf) == {
        "task a": "failed",
        "task b": "blocked",
        "task c": "blocked",
        "step a_step": "failed",
        "step b_step": "blocked",
        "step c_step": "blocked",
    }
    assert "no route" in (by_id(hf)["step a_step"].cause or "")


@pytest.mark.anyio
async def test_a_workflow_has_its_nodes_as_parts(hf: Holdfast) -> None:
    nodes = [
        FunctionNode("double", lambda inputs, _: {"n": inputs["n"] * 2}),
        AgentStepNode("say", instructions="Say it."),
    ]
    flow = Workflow(nodes, [Edge("double", "n", "say", "n")])
    await WorkflowRunner(flow, context(hf, "Four.")).run({"double": {"n": 2}})

    parts = by_id(hf)
    assert states(hf) == {"node double": "completed", "node say": "completed"}
    assert (parts["node say"].depends_on, parts["node say"].within) == (("double",), None)


@pytest.mark.anyio
async def test_a_network_has_the_calls_of_its_agents_as_parts(hf: Holdfast) -> None:
    model = ScriptedModel(["One.", "Two."])
    agents = [Agent(name, instructions="", model=model) for name in ("ada", "bob")]
    desk = Network("desk", agents, router=lambda ctx: None if ctx.call_count else ["ada", "bob"])
    run = await desk.run("Go.", hf=hf, run_id="run_1")

    calls = [(part.id, part.agent, part.kind, part.state) for part in hf.runs.parts(run.id)]
    assert calls == [("ada.0", "ada", "agent", "completed"), ("bob.1", "bob", "agent", "completed")]


@pytest.mark.anyio
async def test_a_team_has_its_agents_and_board_tasks_as_parts(hf: Holdfast) -> None:
    board = TaskBoard()
    first = board.create("Count")

    def lead(asked: Asked) -> object:
        return create("Tell", depends_on=[first.id]) if len(board.list()) == 1 else work(asked)

    await a_team(
        an_agent("ada", lead),
        board=board,
        strategy="autonomous",
        context=Context(hf=hf, run_id="run_1"),
    ).run()

    count, tell = (part for part in hf.runs.parts("run_1") if part.kind == "board_task")
    turns = [part for part in hf.runs.parts("run_1") if part.kind == "agent"]
    assert (count.id, count.state, count.agent) == (first.id, "completed", "ada")
    assert (tell.title, tell.state, tell.depends_on) == ("Tell", "completed", (first.id,))
    assert [turn.id for turn in turns] == [f"ada.{n}" for n in range(1, len(turns) + 1)]
    assert {(turn.agent, turn.state) for turn in turns} == {("ada", "completed")}
