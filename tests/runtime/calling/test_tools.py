"""Tool calls of an agent, and tools of real MCP servers."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.json import decode
from pydantic import BaseModel
from pydantic_ai import RunContext
from pydantic_ai import Tool as ModelTool
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.mcp import MCPToolset
from runtime.calling.asked import Heard, agent, among, came_back, contents, error_of, model_of, of

from holdfast.ground.errors import InvalidInput, NotRunnable, RunFailed, ToolNameTaken
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import Agent, Context, McpServer, ToolContext
from holdfast.runtime.inference.call import AgentCall
from holdfast.testing.scripted import ScriptedModel, call
from holdfast.tools.base import JSON, Tool, is_error

pytestmark = pytest.mark.anyio


class Place(BaseModel):
    name: str
    since: date


@dataclass
class Spot:
    at: date


class Thing(Struct):
    at: date


def give(value: Any) -> Any:
    """Return a tool that returns *value*."""

    def tool() -> Any:
        return value

    return ModelTool(tool, name="tool")


MAY = date(2026, 5, 1)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ("text", "text"),
        ({"a": [1, 2.5, True, None]}, {"a": [1, 2.5, True, None]}),
        ((1, 2), [1, 2]),
        (Place(name="Oslo", since=MAY), {"name": "Oslo", "since": "2026-05-01"}),
        ([Spot(MAY)], [{"at": "2026-05-01"}]),
        ({"thing": Thing(MAY)}, {"thing": {"at": "2026-05-01"}}),
        (MAY, "2026-05-01"),
        (None, None),
    ],
)
async def test_what_is_returned_is_kept_in_its_json_form(value: Any, data: Any) -> None:
    ada = agent([call("tool"), "Done."], tools=[give(value)])

    result = await ada.run("Go.")

    assert [each.content for each in result.tool_calls] == [{"data": data}]
    assert came_back(model_of(ada).asked[1].messages)[0].content == data


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "object is not JSON"),
        ({1}, "set is not JSON"),
        (b"x", "bytes is not JSON"),
        ({"a": [float("nan")]}, "returned.a[0]: float nan is not JSON"),
        ({1: 2}, "int key 1 is not JSON"),
        (2**80, "int outside"),
    ],
)
async def test_what_has_no_json_form_is_an_error(value: Any, why: str) -> None:
    ada = agent([call("tool"), "Done."], tools=[give(value)])

    result = await ada.run("Go.")

    assert error_of(result)["kind"] == "not_json"
    assert why in error_of(result)["message"]
    assert result.stop_reason == "done"


async def test_a_list_that_holds_itself_is_an_error() -> None:
    value: list[Any] = []
    value.append(value)

    result = await agent([call("tool"), "Done."], tools=[give(value)]).run("Go.")

    assert error_of(result)["kind"] == "not_json"


REFUSAL: JSON = {
    "error": {"type": "memory_full", "message": "It is full.", "next": "Forget something."}
}
REFUSING = Tool(
    id="own.look",
    name="look",
    description="Look somewhere.",
    parameters={"type": "object"},
    work=lambda _: REFUSAL,
    refused=is_error,
)


def broken() -> str:
    raise KeyError("nothing here")


async def broken_late() -> str:
    await asyncio.sleep(0)
    raise KeyError("nothing here")


@pytest.mark.parametrize("tool", [broken, broken_late])
async def test_a_tool_that_raises_answers_with_its_error_and_no_traceback(tool: Any) -> None:
    ada = agent([call(tool.__name__), "Done."], tools=[tool])

    result = await ada.run("Go.")

    assert error_of(result) == {"name": "KeyError", "message": "'nothing here'", "kind": "raised"}
    back = came_back(model_of(ada).asked[1].messages)[0]
    assert (back.outcome, back.content) == ("failed", "KeyError: 'nothing here'")


async def test_a_retry_that_a_tool_asks_for_is_an_error_like_others() -> None:
    def again() -> str:
        raise ModelRetry("not now")

    result = await agent([call("again"), "Done."], tools=[again]).run("Go.")

    assert error_of(result) == {"name": "ModelRetry", "message": "not now", "kind": "raised"}


async def test_an_unknown_tool_is_answered_with_those_there_are() -> None:
    result = await agent([call("jump"), "Done."], tools=[broken, broken_late]).run("Go.")

    error = error_of(result)
    assert error["kind"] == "unknown_tool"
    assert "'broken', 'broken_late'" in error["message"]
    assert result.tool_calls[0].tool.name == "jump"


CALLED: list[object] = []


def add(number: int, to: int) -> int:
    CALLED.append(number)
    return number + to


@pytest.mark.parametrize(
    ("arguments", "why", "kept"),
    [
        ({"number": 1}, "to: Field required", {"number": 1}),
        ({"number": "x", "to": 1}, "number: Input should be a valid integer", None),
        ({"number": None, "to": 1}, "number: Input should be a valid integer", None),
        ("null", "Input should be an object", None),
        ('{"number": 1,', "Invalid JSON", '{"number": 1,'),
        (None, "number: Field required", None),
    ],
)
async def test_arguments_the_signature_forbids_never_reach_the_tool(
    arguments: Any, why: str, kept: Any
) -> None:
    CALLED.clear()
    part = call("add")
    part.args = arguments

    result = await agent([part, "Done."], tools=[add]).run("Go.")

    assert CALLED == []
    assert error_of(result)["kind"] == "bad_arguments"
    assert why in error_of(result)["message"]
    if kept is not None:
        assert result.tool_calls[0].tool.input == kept


@pytest.mark.parametrize("plain", [True, False])
async def test_a_tool_past_its_timeout_is_left_behind(plain: bool) -> None:
    go_on = threading.Event()

    def slow() -> None:
        go_on.wait(30)

    async def slow_too() -> None:
        await asyncio.Event().wait()

    tool = ModelTool(slow if plain else slow_too, name="slow", timeout=0.01)

    result = await agent([call("slow"), "Done."], tools=[tool]).run("Go.")

    assert error_of(result)["kind"] == "timeout"
    assert "0.01 s" in error_of(result)["message"]
    go_on.set()


async def test_a_tool_that_needs_an_approval_waits_for_it() -> None:
    tool = ModelTool(add, requires_approval=True)

    result = await agent([call("add", number=1, to=2), "Done."], tools=[tool]).run("Go.")

    assert (result.stop_reason, result.tool_calls) == ("waiting", [])


async def test_what_a_tool_of_ours_refuses_is_an_error_with_its_words() -> None:
    ada = agent([call("look"), "Done."], tools=[REFUSING])

    result = await ada.run("Go.")

    assert error_of(result) == {
        "name": "memory_full",
        "message": "It is full. Forget something.",
        "kind": "raised",
    }
    back = came_back(model_of(ada).asked[1].messages)[0]
    assert back.outcome == "failed"
    assert decode(str(back.content)) == REFUSAL


async def test_tools_of_one_reply_work_one_after_another_in_the_order_called() -> None:
    order: list[str] = []

    async def first() -> None:
        order.append("first begins")
        await asyncio.sleep(0)
        order.append("first ends")

    def second() -> None:
        order.append("second")

    await agent([[call("first"), call("second")], "Done."], tools=[second, first]).run("Go.")

    assert order == ["first begins", "first ends", "second"]


async def test_a_failing_tool_leaves_standing_what_earlier_ones_did() -> None:
    def keep(ctx: ToolContext) -> str:
        ctx.state.kv.set("kept", True)
        return "kept"

    state = NetworkState()
    ada = agent([[call("keep"), call("broken"), call("keep")], "Done."], tools=[keep, broken])

    result = await ada.run("Go.", state=state)

    assert [list(each.content) for each in result.tool_calls] == [["data"], ["error"], ["data"]]
    assert state.kv.get("kept") is True


async def test_what_a_tool_writes_says_which_call_wrote_it() -> None:
    def keep(ctx: ToolContext) -> None:
        ctx.state.kv.set("owner", "Ada")

    state = NetworkState()

    await agent([call("keep", call_id="call_7"), "Done."], tools=[keep]).run(
        "Go.", state=state, run_id="run_1"
    )

    info = state.get("owner")
    assert info is not None
    assert (info.agent, info.run_id, info.tool, info.call_id) == ("ada", "run_1", "keep", "call_7")


async def test_a_tool_knows_its_call() -> None:
    seen: list[ToolContext] = []

    def look(ctx: RunContext[ToolContext]) -> None:
        seen.append(ctx.deps)

    ada = agent([call("look", call_id="call_7"), "Done."], tools=[look])

    await ada.run("Go.", run_id="run_1")

    told = seen[0]
    assert (told.agent, told.network, told.run_id) == (ada, None, "run_1")
    assert (told.call_id, told.tool_name, told.usage.requests) == ("call_7", "look", 2)


async def test_so_many_errors_end_the_call_and_the_result_keeps_them_all() -> None:
    turns = [[call("broken"), call("broken")] for _ in range(10)]
    ada = agent(turns, tools=[broken])

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", max_iterations=None)

    result = of(raised.value)
    assert raised.value.stop_reason == result.stop_reason == "tool_error"
    assert len(result.tool_calls) == 20
    assert len(model_of(ada).asked) == 10


async def test_one_tool_may_fail_as_often_as_all_may_together() -> None:
    turns = [call("jump") for _ in range(19)]

    result = await agent([*turns, "Done."]).run("Go.", max_iterations=None)

    assert (result.stop_reason, len(result.tool_calls)) == ("done", 19)


async def test_each_call_has_its_step_and_its_agent() -> None:
    ada = agent(
        [["One.", call("add", number=1, to=2)], [call("add", number=3, to=4)], "Done."], tools=[add]
    )

    result = await ada.run("Go.")

    assert [(each.agent, each.step) for each in result.tool_calls] == [("ada", 1), ("ada", 2)]
    assert contents(result) == ["One.", "Done."]
    assert [(each.step, each.stop_reason) for each in result.output] == [(1, "tool"), (3, "stop")]
    assert all(each.duration_ms is not None for each in result.tool_calls)


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


def on_stdio(**env: str) -> McpServer:
    return McpServer("tooled", timeout=60, command=sys.executable, args=[str(SCRIPT)], env=env)


@pytest.fixture(scope="module")
async def stdio() -> AsyncIterator[McpServer]:
    """Give the server on its standard streams, whose process the tests of a module share."""
    server = on_stdio(GREETING="hello")
    yield server
    await server.aclose()


@pytest.fixture
async def own(started: Path) -> AsyncIterator[McpServer]:
    """Give the server on its standard streams, with processes of the test's own."""
    server = on_stdio(STARTED=str(started))
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
    server = McpServer("tooled", timeout=60, url=url)
    yield server
    await server.aclose()


@pytest.fixture(params=["stdio", "streamable-http"])
def any_server(request: pytest.FixtureRequest) -> McpServer:
    return request.getfixturevalue("stdio" if request.param == "stdio" else "server")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def unreachable(**options: Any) -> McpServer:
    return McpServer("far", url=f"http://127.0.0.1:{free_port()}/mcp", timeout=60, **options)


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
    server = McpServer("tooled", timeout=60, url=url, include=include, exclude=exclude)

    async with agent(["Done."], toolsets=[server]) as ada:
        await ada.run("Go.")

    assert model_of(ada).asked[0].offered == shown


async def test_a_process_gets_the_environment_it_is_given(stdio: McpServer) -> None:
    ada = agent([call("tooled-environment", name="GREETING"), "Done."], toolsets=[stdio])

    assert (await ada.run("Go.")).tool_calls[0].content == {"data": "hello"}


async def test_runs_share_one_connection_whose_tools_are_listed_once(
    own: McpServer, started: Path
) -> None:
    async def twice(asked: Any) -> Any:
        return "Done." if len(asked.messages) > 1 else call("tooled-add", number=1)

    ada = Agent("ada", instructions="", model=ScriptedModel(twice), toolsets=[own])

    await asyncio.gather(*(ada.run("Go.") for _ in range(3)))
    await ada.run("Again.")

    pid, *listings = lines(started)
    assert pid.isdigit()
    assert listings == ["listed"]


async def test_closing_the_agent_ends_the_process(own: McpServer, started: Path) -> None:
    async with agent(["Done."], toolsets=[own]) as ada:
        await ada.run("Go.")
        pid = int(lines(started)[0])
        assert not gone(pid)

    assert gone(pid)


async def test_a_run_after_closing_connects_again(own: McpServer, started: Path) -> None:
    ada = agent(["Done.", call("tooled-add", number=1), "Done."], toolsets=[own])

    await ada.run("Go.")
    await ada.aclose()
    result = await ada.run("Go.")

    assert result.tool_calls[0].content == {"data": 2}
    assert len([each for each in lines(started) if each.isdigit()]) == 2


def test_plain_code_leaves_no_process_behind(started: Path) -> None:
    server = on_stdio(STARTED=str(started))
    ada = agent([call("tooled-add", number=1), "Done."] * 2, toolsets=[server])

    results = [ada.run_sync("Go."), ada.run_sync("Go.")]

    assert [each.tool_calls[0].content for each in results] == [{"data": 2}] * 2
    assert all(gone(int(each)) for each in lines(started) if each.isdigit())


async def test_a_server_that_dies_is_an_error_result_and_comes_back_with_the_next_run(
    own: McpServer,
) -> None:
    turns = [call("tooled-die"), "One.", call("tooled-add", number=1), "Two."]
    ada = agent(turns, toolsets=[own])

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
    async with agent([], toolsets=[server, McpServer("tooled", timeout=60, url=url)]) as ada:
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
