"""Agents and models of steps and tasks: the nearest wins."""

from typing import Any

import pytest
from runtime.plans.workers import Workers, plan, step, task

from holdfast.errors import (
    AgentNameTaken,
    CheckpointMismatch,
    InvalidPlan,
    NoModel,
    ToolNameTaken,
)
from holdfast.runtime import (
    Agent,
    Context,
    MemoryCheckpoints,
    MultiModeAgent,
    ParallelTaskExecutor,
    PlanProblem,
    Step,
    StepExecutor,
    Task,
    TaskExecutor,
    TaskPlan,
    TaskPlanner,
)
from holdfast.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

LEVELS = ("step", "step's agent", "task", "task's agent", "executor", "context")


def scripted(name: str) -> ScriptedModel:
    """Return a model that answers with its name."""
    return ScriptedModel(lambda _: f"by {name}", name=name)


def search(query: str) -> str:
    """Search."""
    return query


@pytest.mark.parametrize("nearest", range(len(LEVELS)))
@pytest.mark.parametrize("kind", ["step", "task", "plan"])
async def test_the_nearest_model_wins(nearest: int, kind: str) -> None:
    models: dict[str, Any] = {
        name: scripted(name) if number >= nearest else None for number, name in enumerate(LEVELS)
    }
    ada = Agent("ada", instructions="I am ada.", model=models["step's agent"])
    bob = Agent("bob", instructions="I am bob.", model=models["task's agent"])
    one = step("s", agent="ada", model=models["step"])
    whole = task("t", one, agent=bob, model=models["task"])
    given: dict[str, Any] = {
        "context": Context(model=models["context"]),
        "model": models["executor"],
        "agents": [ada],
    }
    run: Any = {
        "step": lambda: StepExecutor(task=whole, step=one, **given),
        "task": lambda: TaskExecutor(task=whole, **given),
        "plan": lambda: ParallelTaskExecutor(plan=plan(whole), **given),
    }[kind]()

    assert await run.run() == f"by {LEVELS[nearest]}"
    assert "I am ada." in models[LEVELS[nearest]].asked[0].instructions


async def test_the_nearest_agent_does_the_step() -> None:
    workers = Workers()
    ada, bob, eve = (Agent(name, instructions=f"I am {name}.") for name in ("ada", "bob", "eve"))
    made = plan(
        task("a", step("a1", agent=ada), step("a2"), agent="bob"),
        task("b", step("b1")),
    )

    await ParallelTaskExecutor(plan=made, context=workers.context(), agent=eve, agents=[bob]).run()

    for id, name in (("a1", "ada"), ("a2", "bob"), ("b1", "eve")):
        assert f"I am {name}." in workers.asked[id].instructions


@pytest.mark.parametrize("known", [[], ["bob"]])
def test_an_unknown_agent_is_a_problem(known: list[str]) -> None:
    made = plan(task("a", step("a1", agent="ada"), agent="eve"))

    assert made.problems() == []
    found = made.problems(agents=known)
    places = [(each.where, each.code) for each in found]
    assert places == [
        ("plan.tasks[0].agent", "agent"),
        ("plan.tasks[0].steps[0].agent", "agent"),
    ]
    agents = [Agent(each, instructions="") for each in known]
    with pytest.raises(InvalidPlan, match="there is no agent 'ada'"):
        ParallelTaskExecutor(plan=made, context=Workers().context(), agents=agents)
    with pytest.raises(InvalidPlan, match="there is no agent 'ada'"):
        TaskExecutor(task=made.tasks[0], context=Workers().context(), agents=agents)
    with pytest.raises(InvalidPlan, match="there is no agent 'ada'"):
        StepExecutor(
            task=made.tasks[0], step=made.steps[0], context=Workers().context(), agents=agents
        )


def test_a_step_may_name_the_tools_of_its_agent_and_of_the_executor() -> None:
    ada = Agent("ada", instructions="", tools=[search])

    def problems(agent: Any, tools: Any) -> list[str]:
        made = plan(task("a", step("a1", agent=agent, tools=["search"])))
        try:
            ParallelTaskExecutor(plan=made, context=Workers().context(), tools=tools, agents=[ada])
        except InvalidPlan as error:
            return [each.code for each in error.problems if isinstance(each, PlanProblem)]
        return []

    assert problems("ada", []) == problems(ada, []) == problems(None, [search]) == []
    assert problems(None, []) == ["unknown_tool"]


def test_what_prevents_a_step_is_refused_when_the_executor_is_made() -> None:
    ada = Agent("ada", instructions="", tools=[search])
    two = plan(task("a", step("a1", model="test"), step("a2")))

    with pytest.raises(NoModel, match="a2"):
        ParallelTaskExecutor(plan=two, context=Context())
    with pytest.raises(ToolNameTaken):
        ParallelTaskExecutor(
            plan=plan(task("a", step("a1", agent=ada))),
            context=Workers().context(),
            tools=[search],
        )
    with pytest.raises(AgentNameTaken):
        TaskExecutor(
            task=task("a"),
            context=Workers().context(),
            agents=[ada, Agent("ada", instructions="Other.")],
        )


def test_json_carries_names() -> None:
    ada = Agent("ada", instructions="")
    made = plan(task("a", step("a1", agent=ada, model=scripted("big")), agent="bob", model="m"))

    read = TaskPlan.from_json(made.to_json())

    (one,) = read.tasks
    assert (one.agent, one.model) == ("bob", "m")
    assert one.steps[0].agent == "ada"
    assert isinstance(one.steps[0].model, str)
    assert one.steps[0].model.endswith("big")
    assert Step.from_json(read.steps[0].to_json()) == read.steps[0]
    with pytest.raises(InvalidPlan, match="agent"):
        Task.from_json('{"id": "a", "title": "A", "steps": [], "agent": {"name": "ada"}}')


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"agent": "bob"}, ("plan.tasks[0]",)),
        ({"model": "other"}, ("plan.tasks[0]",)),
    ],
)
async def test_the_hash_of_a_plan_covers_agents_and_models(
    change: dict[str, Any], parts: tuple[str, ...]
) -> None:
    workers, kept = Workers(), MemoryCheckpoints()

    def run(**fields: Any) -> ParallelTaskExecutor:
        return ParallelTaskExecutor(
            plan=plan(task("a", step("a1", **{"agent": "ada"} | fields))),
            context=workers.context(run_id="run_1"),
            agents=[Agent(each, instructions="") for each in ("ada", "bob")],
            checkpoint=kept,
        )

    await run().run()

    with pytest.raises(CheckpointMismatch) as caught:
        await run(**change).run()
    assert caught.value.parts == parts


async def test_the_hash_of_a_plan_covers_what_an_agent_is() -> None:
    workers, kept = Workers(), MemoryCheckpoints()

    def run(words: str) -> ParallelTaskExecutor:
        return ParallelTaskExecutor(
            plan=plan(task("a", step("a1", agent="ada"))),
            context=workers.context(run_id="run_1"),
            agents=[Agent("ada", instructions=words)],
            checkpoint=kept,
        )

    await run("Be brief.").run()
    await run("Be brief.").run()

    with pytest.raises(CheckpointMismatch) as caught:
        await run("Be long.").run()
    assert caught.value.parts == ("agents",)


async def test_a_model_that_plans_names_no_agents_and_models() -> None:
    steps = [{"id": "s", "instructions": "Look.", "agent": "ada", "model": "big"}]
    planner = TaskPlanner(
        objective="Look.",
        context=Context(),
        max_iterations=1,
        model=ScriptedModel([call("add_task", id="a", title="A", agent="ada", steps=steps)]),
    )

    with pytest.raises(Exception, match="not yours to set") as caught:
        await planner.run()

    assert str(caught.value).count("not yours to set") == 3


async def test_an_agent_of_modes_gives_its_agents_to_the_plan() -> None:
    workers = Workers()
    modes = MultiModeAgent(
        name="counter",
        objective="Count.",
        mode="plan",
        plan=plan(task("a", step("a1", agent="ada"))),
        agents=[Agent("ada", instructions="I am ada.")],
    )

    assert await modes.run(workers.context()) == "done a1"
    assert "I am ada." in workers.asked["a1"].instructions
