"""Lists of names of which one text is the list of that name."""

from typing import Any

import pytest
from runtime.plans.workers import Workers, plan, step, task

from holdfast.runtime import (
    Agent,
    AgentStepNode,
    Context,
    ParallelTaskExecutor,
    TaskBoard,
    TaskExecutor,
    TaskPlanner,
    WorkflowRunner,
)
from holdfast.runtime import Workflow as Graph
from holdfast.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


def search(query: str) -> str:
    """Search."""
    return query


async def test_one_upstream_key_is_a_list_of_one() -> None:
    workers = Workers()
    context = workers.context()
    context.memory.set("shared:note", 1)

    await TaskExecutor(task=task("t"), context=context, upstream_memory_keys="shared:note").run()

    assert "- shared:note" in workers.asked["t1"].text


async def test_a_plan_of_single_names_runs() -> None:
    workers = Workers()
    first = step("a1")
    first.tools = "search"
    second = step("a2")
    second.depends_on = "a1"

    run = ParallelTaskExecutor(
        plan=plan(task("a", first, second), task("b", depends_on="a")),
        context=workers.context(),
        tools=[search],
    )

    assert await run.run() == "done b1"
    assert "search" in workers.asked["a1"].offered
    assert workers.began == ["a1", "a2", "b1"]


async def test_a_planner_takes_one_name_of_an_input_and_single_names_of_a_model() -> None:
    turns: list[Any] = [
        call(
            "add_task",
            id="a",
            title="A",
            steps=[{"id": "a1", "instructions": "Look.", "depends_on": "topic"}],
        ),
        call(
            "add_task",
            id="b",
            title="B",
            depends_on="a",
            steps=[{"id": "b1", "instructions": "Look."}],
        ),
        call("finish_plan"),
    ]
    planner = TaskPlanner(
        objective="Look.", context=Context(), model=ScriptedModel(turns), inputs="topic"
    )

    made = await planner.run()

    assert [each.depends_on for each in made.tasks] == [[], ["a"]]


async def test_a_node_may_name_one_tool() -> None:
    node = AgentStepNode("n", "Look.", tools="search")
    model = ScriptedModel(["Done."])

    await WorkflowRunner(Graph([node]), Context(model=model), tools=[search]).run()

    assert "search" in model.asked[0].offered


async def test_one_key_is_a_list_of_one_for_a_filter_of_entries() -> None:
    memory = Context().memory
    memory.set("shared:a", 1)
    memory.set("shared:b", 2)

    assert [entry.key for entry in memory.list(keys="shared:a")] == ["shared:a"]
    assert memory.clear(keys="shared:a") == 1


async def test_one_key_is_inherited_by_a_copy() -> None:
    context = Context()
    context.memory.set("shared:note", 1)

    assert context.copy(inherit="shared:note").memory.get_value("shared:note") == 1


async def test_an_agent_and_a_task_of_a_board_may_have_one_skill() -> None:
    board = TaskBoard()
    first = board.create("First", required_skills="sql")
    board.create("Second", depends_on=first.id)

    assert [each.title for each in board.available("sql")] == ["First"]
    assert board.claim(first.id, "ada", skills="sql").claimed_by == "ada"
    assert Agent("ada", instructions="", skills="sql").skills == ("sql",)
