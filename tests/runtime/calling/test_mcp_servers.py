"""Tools of MCP servers, real ones: a process on its standard streams, and one over HTTP."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.mcp import MCPToolset
from runtime.calling.asked import Heard, agent, among, error_of, model_of

from holdfast.ground.errors import InvalidInput, NotRunnable, ToolNameTaken
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import Agent, Context, McpServer
from holdfast.runtime.inference.call import AgentCall
from holdfast.testing.scripted import ScriptedModel, call

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("tooled_server.py")
ALL = ["tooled-add", "tooled-fail", "tooled-environment", "tooled-die"]


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def gone(pid: int) -> bool:
    """Tell whether the process *pid* is over."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def started(tmp_path: Path) -> Path:
    return tmp_path / "started"


@pytest.fixture
async def stdio(started: Path) -> AsyncIterator[McpServer]:
    env = {"STARTED": str(started), "GREETING": "hello"}
    server = McpServer("tooled", command=sys.executable, args=[str(SCRIPT)], env=env)
    yield server
    await server.aclose()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, str(SCRIPT), "http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
        process.terminate()


@pytest.fixture
async def server(url: str) -> AsyncIterator[McpServer]:
    """Give the server over HTTP, which the tests of a module share."""
    server = McpServer("tooled", url=url)
    yield server
    await server.aclose()


@pytest.fixture(params=["stdio", "streamable-http"])
def any_server(request: pytest.FixtureRequest) -> McpServer:
    return request.getfixturevalue("stdio" if request.param == "stdio" else "server")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def unreachable(**options: Any) -> McpServer:
    return McpServer("far", url=f"http://127.0.0.1:{free_port()}/mcp", timeout=5, **options)


async def test_an_agent_is_offered_the_servers_tools_and_may_call_them(
    any_server: McpServer,
) -> None:
    ada = agent([call("tooled-add", number=2, to=3), "Done."], toolsets=[any_server])

    result = await ada.run("Go.")

    assert model_of(ada).asked[0].offered == ALL
    assert result.tool_calls[0].content == {"data": 5}
    assert result.tool_calls[0].tool.name == "tooled-add"


async def test_an_error_of_the_server_is_an_error_result(any_server: McpServer) -> None:
    ada = agent([call("tooled-fail", why="no luck"), "Done."], toolsets=[any_server])

    result = await ada.run("Go.")

    assert error_of(result)["kind"] == "remote"
    assert "no luck" in error_of(result)["message"]
    assert result.text == "Done."


async def test_arguments_the_servers_schema_forbids_are_not_sent(server: McpServer) -> None:
    ada = agent([call("tooled-add", number="two"), "Done."], toolsets=[server])

    result = await ada.run("Go.")

    assert error_of(result)["kind"] == "bad_arguments"
    assert "'two' is not of type 'integer'" in error_of(result)["message"]


async def test_a_tool_whose_schema_is_of_no_use_is_left_out_and_named(server: McpServer) -> None:
    run = among("Go.", state=NetworkState())
    ada = agent(["Done."], toolsets=[server])

    await AgentCall(ada, run).made()

    assert run.mcp["tooled"]["status"] == "connected"
    assert list(run.mcp["tooled"]["left_out"]) == ["strange"]
    assert "example.org" in run.mcp["tooled"]["left_out"]["strange"]


@pytest.mark.parametrize(
    ("include", "exclude", "shown"),
    [
        (["add"], None, ["tooled-add"]),
        (["a*", "fail"], None, ["tooled-add", "tooled-fail"]),
        (None, ["d*"], ["tooled-add", "tooled-fail", "tooled-environment"]),
        (["add", "fail"], ["f*"], ["tooled-add"]),
        ([], None, []),
    ],
)
async def test_of_its_tools_those_are_shown_that_were_asked_for(
    url: str, include: list[str] | None, exclude: list[str] | None, shown: list[str]
) -> None:
    server = McpServer("tooled", url=url, include=include, exclude=exclude)

    async with agent(["Done."], toolsets=[server]) as ada:
        await ada.run("Go.")

    assert model_of(ada).asked[0].offered == shown


async def test_a_process_gets_the_environment_it_is_given(stdio: McpServer) -> None:
    ada = agent([call("tooled-environment", name="GREETING"), "Done."], toolsets=[stdio])

    assert (await ada.run("Go.")).tool_calls[0].content == {"data": "hello"}


async def test_runs_share_one_connection_whose_tools_are_listed_once(
    stdio: McpServer, started: Path
) -> None:
    async def twice(asked: Any) -> Any:
        return "Done." if len(asked.messages) > 1 else call("tooled-add", number=1)

    ada = Agent("ada", instructions="", model=ScriptedModel(twice), toolsets=[stdio])

    await asyncio.gather(*(ada.run("Go.") for _ in range(3)))
    await ada.run("Again.")

    pid, *listings = lines(started)
    assert pid.isdigit()
    assert listings == ["listed"]


async def test_closing_the_agent_ends_the_process(stdio: McpServer, started: Path) -> None:
    async with agent(["Done."], toolsets=[stdio]) as ada:
        await ada.run("Go.")
        pid = int(lines(started)[0])
        assert not gone(pid)

    assert gone(pid)


async def test_a_run_after_closing_connects_again(stdio: McpServer, started: Path) -> None:
    ada = agent(["Done.", call("tooled-add", number=1), "Done."], toolsets=[stdio])

    await ada.run("Go.")
    await ada.aclose()
    result = await ada.run("Go.")

    assert result.tool_calls[0].content == {"data": 2}
    assert len([each for each in lines(started) if each.isdigit()]) == 2


def test_plain_code_leaves_no_process_behind(started: Path) -> None:
    env = {"STARTED": str(started)}
    server = McpServer("tooled", command=sys.executable, args=[str(SCRIPT)], env=env)
    ada = agent([call("tooled-add", number=1), "Done."] * 2, toolsets=[server])

    results = [ada.run_sync("Go."), ada.run_sync("Go.")]

    assert [each.tool_calls[0].content for each in results] == [{"data": 2}] * 2
    assert all(gone(int(each)) for each in lines(started) if each.isdigit())


async def test_a_server_that_dies_is_an_error_result_and_comes_back_with_the_next_run(
    stdio: McpServer,
) -> None:
    turns = [call("tooled-die"), "One.", call("tooled-add", number=1), "Two."]
    ada = agent(turns, toolsets=[stdio])

    first, second = await ada.run("Go."), await ada.run("Go.")

    assert error_of(first)["kind"] == "remote"
    assert second.tool_calls[0].content == {"data": 2}


async def test_a_server_that_cannot_be_reached_costs_its_tools_and_that_is_told() -> None:
    heard = Heard()
    ada = agent(["Done."], toolsets=[unreachable()])

    result = await ada.run("Go.", on_event=heard)

    told = heard.of("mcp.unavailable")[0]
    assert result.text == "Done."
    assert model_of(ada).asked[0].offered == []
    assert told.data["server"] == "far"
    assert told.data["error"]
    assert heard.types[0] == "run.started"


async def test_a_run_says_which_server_it_could_not_reach() -> None:
    run = among("Go.", state=NetworkState())

    await AgentCall(agent(["Done."], toolsets=[unreachable()]), run).made()

    assert run.mcp["far"]["status"] == "unavailable"
    assert run.mcp["far"]["error"]


async def test_a_server_that_is_required_keeps_the_run_from_beginning() -> None:
    state, heard = NetworkState(), Heard()
    ada = agent([], toolsets=[unreachable(required=True)])

    with pytest.raises(NotRunnable, match="far") as raised:
        await ada.run("Go.", state=state, on_event=heard)

    assert raised.value.agent == "ada"
    assert (state.results, heard.events) == ([], [])


async def test_a_command_that_is_none_is_unavailable_too() -> None:
    server = McpServer("none", command="/no/such/command")

    assert (await agent(["Done."], toolsets=[server]).run("Go.")).text == "Done."


async def test_a_toolset_of_pydantic_ais_is_kept_connected_as_well(url: str) -> None:
    toolset = MCPToolset[Any](url, id="other")
    turns = [call("add", number=1), call("fail", why="no luck"), "Done."]

    async with agent(turns, toolsets=[toolset]) as ada:
        result = await ada.run("Go.")
        assert toolset.is_running

    assert result.tool_calls[0].content == {"data": 2}
    assert error_of(result.tool_calls[1])["kind"] == "remote"
    assert not toolset.is_running


async def test_a_toolset_that_cannot_be_reached_costs_its_tools() -> None:
    toolset = MCPToolset[Any](f"http://127.0.0.1:{free_port()}/mcp", id="other")

    assert (await agent(["Done."], toolsets=[toolset]).run("Go.")).text == "Done."


async def test_names_that_clash_are_loud(server: McpServer, url: str) -> None:
    async with agent([], toolsets=[server, McpServer("tooled", url=url)]) as ada:
        with pytest.raises(ToolNameTaken, match="tooled-add"):
            await ada.run("Go.")


async def test_as_a_pydantic_ai_agent_it_connects_by_itself(any_server: McpServer) -> None:
    model = ScriptedModel([call("tooled-add", number=1), "Done."])
    ada = Agent("ada", instructions="", model=model, toolsets=[any_server])

    ended = await ada.to_pydantic_ai(Context()).run("Go.")

    assert ended.output == "Done."
    assert "2" in model.asked[1].text


async def test_as_a_pydantic_ai_agent_it_does_not_begin_without_what_is_required() -> None:
    ada = agent([], toolsets=[unreachable(required=True)])

    with pytest.raises(NotRunnable, match="far"):
        await ada.to_pydantic_ai(Context()).run("Go.")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"command": "x", "url": "http://127.0.0.1/mcp"},
        {"command": "x", "transport": "sse"},
        {"url": "http://127.0.0.1/mcp", "transport": "stdio"},
        {"url": "http://127.0.0.1/mcp", "transport": "telegraph"},
    ],
)
def test_how_it_is_reached_must_be_clear(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        McpServer("far", **given)


@pytest.mark.parametrize("name", ["", "  ", None])
def test_it_must_have_a_name(name: Any) -> None:
    with pytest.raises(InvalidInput, match="name"):
        McpServer(name, url="http://127.0.0.1/mcp")
