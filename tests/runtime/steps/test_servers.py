"""The tools of MCP servers in steps."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from runtime.plans.workers import step, task
from stepping import NUMBER, Stepping

from holdfast.ground.errors import StepFailed
from holdfast.runtime import Agent, LogUpdate, McpServer, TaskExecutor
from holdfast.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).parents[1] / "calling" / "tooled_server.py"
MEMORY = ["memory_list", "memory_read", "memory_write"]


@pytest.fixture
async def server() -> AsyncIterator[McpServer]:
    server = McpServer("tooled", command=sys.executable, args=[str(SCRIPT)], include=["add"])
    yield server
    await server.aclose()


def nowhere(name: str = "far", *, required: bool = False) -> McpServer:
    return McpServer(name, command="/nonexistent/server", required=required, timeout=5)


async def test_an_agents_server_and_an_executors_are_offered(server: McpServer) -> None:
    other = McpServer("also", command=sys.executable, args=[str(SCRIPT)], include=["fail"])
    stepping = Stepping(
        [[call("tooled-add", number=2, to=3), call("also-fail", why="no luck")], "Three."],
        agent=Agent("pilot", instructions="", toolsets=[server]),
        toolsets=[other],
    )

    await stepping.executor.run()
    await other.aclose()

    assert stepping.model.asked[0].offered == [*MEMORY, "tooled-add", "also-fail"]
    assert stepping.given[0] == 5
    assert "no luck" in stepping.given[1]["error"]["message"]


async def test_a_servers_tool_can_be_kept_from_a_step(server: McpServer) -> None:
    stepping = Stepping(["Three."], step={"tools": []}, toolsets=[server])

    await stepping.executor.run()

    assert stepping.model.asked[0].offered == MEMORY


async def test_arguments_a_server_does_not_take_are_not_sent(server: McpServer) -> None:
    stepping = Stepping([call("tooled-add", number="two"), "Three."], toolsets=[server])

    await stepping.executor.run()

    assert stepping.given[0]["error"]["type"] == "invalid_input"


async def test_no_servers_tool_is_offered_to_conclude(server: McpServer) -> None:
    stepping = Stepping(
        [call("finish_step", result=3)],
        step={"output_schema": NUMBER, "max_iterations": 1},
        toolsets=[server],
    )

    await stepping.executor.run()

    assert stepping.model.asked[0].offered == ["finish_step"]


async def test_a_server_that_cannot_be_reached_costs_its_tools_and_is_told() -> None:
    stepping = Stepping(["Three."], toolsets=[nowhere()])

    (told,) = await stepping.told(LogUpdate)

    assert told.severity == "warning"
    assert told.content.startswith("the MCP server far cannot be reached")
    assert stepping.model.asked[0].offered == MEMORY
    assert stepping.executor.result == "Three."


async def test_in_one_run_it_is_tried_and_told_once() -> None:
    stepping = Stepping(["Three."], toolsets=[server := nowhere()])
    model = ScriptedModel(["One.", "Two."])
    executor = TaskExecutor(
        task=task("a", step("a1"), step("a2", "a1")),
        context=stepping.context,
        model=model,
        toolsets=[server],
    )

    told = [each async for each in executor.execute() if isinstance(each, LogUpdate)]

    assert [each.step_id for each in told] == ["a1"]
    assert executor.result == "Two."


async def test_a_step_fails_without_a_server_that_is_required() -> None:
    stepping = Stepping([], toolsets=[nowhere(required=True)])

    with pytest.raises(StepFailed, match="model_error: The MCP server far cannot be reached"):
        await stepping.executor.run()

    assert stepping.step.state == "failed"
    assert stepping.model.asked == []
