"""The tools of a step: ours, those of MCP servers, and the hooks of its agent."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import BinaryContent, ModelRetry
from pydantic_ai import Tool as ModelTool
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.toolsets import FunctionToolset
from runtime.plans.workers import step, task
from stepping import NUMBER, Stepping

from holdfast import InferenceResult, messages
from holdfast.ground.errors import StepFailed, ToolNameTaken
from holdfast.runtime import (
    Agent,
    AgentHooks,
    AgentStart,
    LogUpdate,
    McpServer,
    TaskExecutor,
    ToolCallUpdate,
    ToolContext,
    ToolResultUpdate,
)
from holdfast.testing import ScriptedModel, call
from holdfast.tools.base import Tool

pytestmark = pytest.mark.anyio


MEMORY = ["memory_list", "memory_read", "memory_write"]
FINISH = call("finish_step", result=3)


def sail(knots: int) -> str:
    """Sail."""
    return f"at {knots} knots"


def anchor() -> str:
    """Drop the anchor."""
    return "held"


def dock(harbour: str) -> str:
    """Dock."""
    raise ValueError(f"{harbour} is full")


def tool(name: str, answer: Any = "done", **parameters: Any) -> Tool:
    """Return a tool of ours that gives *answer*, or what it raises."""
    return Tool(
        id=f"ship.{name}",
        name=name,
        description=name,
        parameters={"type": "object", "properties": parameters, "required": list(parameters)},
        work=lambda _: answer,
    )


async def test_the_callers_tools_come_first_and_finish_step_last() -> None:
    stepping = Stepping([FINISH], step={"output_schema": NUMBER}, tools=[sail, tool("steer")])

    await stepping.executor.run()

    assert stepping.model.asked[0].offered == ["sail", "steer", *MEMORY, "finish_step"]


async def test_without_a_schema_there_is_no_finish_step() -> None:
    stepping = Stepping(["Three."])

    await stepping.executor.run()

    assert stepping.model.asked[0].offered == MEMORY


async def test_an_agent_brings_its_tools_and_toolsets() -> None:
    agent = Agent("pilot", instructions="", tools=[sail], toolsets=[FunctionToolset([anchor])])
    stepping = Stepping(["Three."], agent=agent, tools=[dock])

    await stepping.executor.run()

    assert stepping.model.asked[0].offered == ["sail", "dock", *MEMORY, "anchor"]


@pytest.mark.parametrize(
    ("allowed", "offered"),
    [(None, ["sail", "dock", *MEMORY, "anchor"]), (["anchor"], [*MEMORY, "anchor"]), ([], MEMORY)],
)
async def test_a_step_narrows_the_callers_tools_never_the_contracts(
    allowed: list[str] | None, offered: list[str]
) -> None:
    stepping = Stepping(
        ["Three."],
        step={"tools": allowed},
        tools=[sail, dock],
        toolsets=[FunctionToolset([anchor])],
    )

    await stepping.executor.run()

    assert stepping.model.asked[0].offered == offered


@pytest.mark.parametrize("taken", [*MEMORY, "read_result", "finish_step"])
async def test_a_tool_with_the_name_of_one_of_ours_is_refused(taken: str) -> None:
    with pytest.raises(ToolNameTaken) as raised:
        Stepping(["Three."], tools=[tool(taken)])

    assert raised.value.name == taken


async def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolNameTaken):
        Stepping(["Three."], tools=[sail], agent=Agent("pilot", instructions="", tools=[sail]))


async def test_a_toolset_with_the_name_of_one_of_ours_is_refused_when_it_is_seen() -> None:
    toolset = FunctionToolset[Any]([ModelTool(anchor, name="finish_step")])
    stepping = Stepping(["Three."], toolsets=[toolset])

    with pytest.raises(ToolNameTaken):
        await stepping.executor.run()


async def test_the_model_gets_what_a_tool_returns() -> None:
    stepping = Stepping([call("sail", knots=7), "Three."], tools=[sail])

    await stepping.executor.run()

    assert stepping.given == ["at 7 knots"]


async def test_missing_arguments_are_an_empty_object() -> None:
    stepping = Stepping(
        [ToolCallPart("anchor", None), ToolCallPart("anchor", ""), "Three."], tools=[anchor]
    )

    await stepping.executor.run()

    assert stepping.given == ["held", "held"]


@pytest.mark.parametrize(
    ("made", "arguments", "says"),
    [
        (sail, {"knots": "many"}, "knots"),
        (sail, "{not json", "Invalid JSON"),
        (tool("steer", course=NUMBER), {"course": "west"}, "integer"),
        (tool("steer", course=NUMBER), "{not json", "not JSON"),
        (tool("steer", course=NUMBER), {}, "course"),
    ],
)
async def test_arguments_the_schema_does_not_allow_never_reach_the_tool(
    made: Any, arguments: Any, says: str
) -> None:
    name = made.name if isinstance(made, Tool) else made.__name__
    stepping = Stepping([ToolCallPart(name, arguments), "Three."], tools=[made])

    await stepping.executor.run()

    error = stepping.given[0]["error"]
    assert error["type"] == "bad_arguments"
    assert says in error["message"]


async def test_a_tool_that_raises_answers_with_its_error_and_no_traceback() -> None:
    stepping = Stepping([call("dock", harbour="Delft"), "Three."], tools=[dock])

    await stepping.executor.run()

    assert stepping.given == [{"error": {"type": "ValueError", "message": "Delft is full"}}]


async def test_an_error_in_half_characters_reaches_the_model_whole() -> None:
    def hail() -> None:
        """Hail."""
        raise ValueError("a\ud800")

    stepping = Stepping([call("hail"), "Three."], tools=[hail])

    assert await stepping.executor.run() == "Three."
    assert stepping.given == [{"error": {"type": "ValueError", "message": "a\ufffd"}}]


async def test_a_tool_that_asks_for_another_try_answers_so() -> None:
    def hail() -> None:
        """Hail."""
        raise ModelRetry("louder")

    stepping = Stepping([call("hail"), "Three."], tools=[hail])

    await stepping.executor.run()

    assert stepping.given == [{"error": {"type": "ModelRetry", "message": "louder"}}]


async def test_an_unknown_tool_is_answered_with_the_names_there_are() -> None:
    stepping = Stepping([call("fly"), "Three."], tools=[sail])

    await stepping.executor.run()

    assert "'fly'" in stepping.given[0]
    assert all(name in stepping.given[0] for name in ["sail", *MEMORY])


async def test_a_tool_that_returns_nothing_says_so() -> None:
    stepping = Stepping([call("steer"), "Three."], tools=[tool("steer", None)])

    await stepping.executor.run()

    assert stepping.given == ["The tool returned nothing."]


async def test_what_is_no_json_is_an_error() -> None:
    stepping = Stepping([call("steer"), "Three."], tools=[tool("steer", object())])

    await stepping.executor.run()

    assert stepping.given[0]["error"]["type"] == "not_json"


async def test_files_stay_what_they_are_and_count_nothing() -> None:
    chart = BinaryContent(b"x" * 100_000, media_type="image/png")

    def look() -> list[Any]:
        """Look."""
        return ["a chart", chart]

    stepping = Stepping([call("look"), "Three."], tools=[look])

    told = await stepping.told(ToolResultUpdate)

    assert stepping.given[0] == ["a chart", chart]
    assert (told[0].characters, told[0].paged) == (7, False)


async def test_a_read_sees_the_write_before_it_in_the_same_turn() -> None:
    turn = [
        call("memory_write", key="fleet", value=[1, 2]),
        call("memory_read", keys=["shared:fleet"]),
    ]
    stepping = Stepping([turn, "Three."])

    await stepping.executor.run()

    assert stepping.given[1]["entries"]["shared:fleet"]["value"] == [1, 2]
    entry = stepping.context.memory.get("shared:fleet")
    assert entry is not None
    assert entry.source == "count"


async def test_other_tools_of_one_turn_overlap() -> None:
    here = asyncio.Barrier(2)

    async def meet() -> str:
        """Meet."""
        await here.wait()
        return "met"

    stepping = Stepping([[call("meet"), call("meet")], "Three."], tools=[meet])

    await stepping.executor.run()

    assert stepping.given == ["met", "met"]


async def test_a_tool_knows_the_run_it_is_in() -> None:
    def who(ctx: ToolContext) -> list[Any]:
        """Who?"""
        assert ctx.context is not None
        assert ctx.memory is ctx.context.memory
        ctx.state.kv.set("seen", True)
        return [ctx.run_id, ctx.agent.name, ctx.tool_name, ctx.network is None]

    stepping = Stepping([call("who"), "Three."], tools=[who])

    await stepping.executor.run()

    assert stepping.given == [["run_1", "count", "who", True]]


async def test_a_choice_of_tool_is_forced_on_the_first_request_only() -> None:
    agent = Agent("pilot", instructions="", tools=[sail], tool_choice="sail")
    stepping = Stepping([call("sail", knots=7), "Three."], agent=agent)

    await stepping.executor.run()

    chosen = [(asked.settings or {}).get("tool_choice") for asked in stepping.model.asked]
    assert chosen == [["sail"], None]


async def test_each_call_and_its_answer_is_told() -> None:
    turn = [call("sail", call_id="one", knots=7), call("dock", call_id="two", harbour="Delft")]
    stepping = Stepping([turn, "Three."], tools=[sail, dock])

    told = [
        each
        for each in await stepping.events()
        if isinstance(each, ToolCallUpdate | ToolResultUpdate)
    ]

    calls = [each for each in told if isinstance(each, ToolCallUpdate)]
    assert [(each.tool_call_id, each.name, each.args) for each in calls] == [
        ("one", "sail", {"knots": 7}),
        ("two", "dock", {"harbour": "Delft"}),
    ]
    assert calls[0].message == 'sail {"knots": 7}'
    answers = {each.tool_call_id: each for each in told if isinstance(each, ToolResultUpdate)}
    assert (answers["one"].ok, answers["one"].characters) == (True, len("at 7 knots"))
    assert answers["two"].ok is False


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (call("memory_read", kyes=["a"]), "kyes: is no argument; there are keys, path, offset."),
        (call("memory_list", limit=0), "limit: must be a whole number from 1 to 200 (given: 0)."),
        (call("memory_list", kind=["no"]), "kind: must be one of step_result, task_result, input"),
        (call("memory_write", key="a"), "value: must be present, null or any other JSON value."),
    ],
)
async def test_the_memory_says_itself_which_arguments_it_does_not_take(
    asked: ToolCallPart, said: str
) -> None:
    stepping = Stepping([asked, "Three."])

    await stepping.executor.run()

    error = stepping.given[0]["error"]
    assert error["message"].startswith(said)
    assert error["type"] == "invalid_input"
    assert error["next"]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (call("memory_read", keys="task:a", path=None), {"entries": {}, "missing": ["task:a"]}),
        (
            call("memory_list", kind=None, sources="ada", order=None),
            {"total": 0, "returned": 0, "truncated": False, "next_page": None, "entries": []},
        ),
    ],
)
async def test_the_memory_takes_a_bare_string_for_a_list_and_null_for_nothing(
    asked: ToolCallPart, answer: Any
) -> None:
    stepping = Stepping([asked, "Three."])

    await stepping.executor.run()

    assert stepping.given == [answer]


async def test_a_refusal_of_the_memory_is_told_as_one() -> None:
    stepping = Stepping([call("memory_list", limit=0), "Three."])

    (told,) = await stepping.told(ToolResultUpdate)

    assert (told.name, told.ok) == ("memory_list", False)


def look() -> str:
    """Look."""
    return "Ships."


def agent(**hooks: Any) -> Agent:
    return Agent("pilot", instructions="Be kind.", hooks=AgentHooks(**hooks))


async def test_on_start_sees_each_request_before_it_is_made() -> None:
    starts: list[AgentStart] = []

    def on_start(start: AgentStart) -> None:
        starts.append(start)

    stepping = Stepping([call("look"), "Three."], agent=agent(on_start=on_start), tools=[look])

    await stepping.executor.run()

    assert [each.step for each in starts] == [1, 2]
    assert starts[0].run is stepping.context
    assert starts[0].input == "Count the ships."
    assert starts[0].prompt == (
        messages.system(stepping.model.asked[0].instructions),
        messages.user("Count the ships."),
    )


async def test_on_start_may_change_what_opens_one_request() -> None:
    async def on_start(start: AgentStart) -> dict[str, Any] | None:
        if start.step == 2:
            return None
        return {"prompt": (start.prompt[0], messages.user("Count the boats."))}

    stepping = Stepping([call("look"), "Three."], agent=agent(on_start=on_start), tools=[look])

    await stepping.executor.run()

    texts = [asked.text for asked in stepping.model.asked]
    assert ["boats" in text for text in texts] == [True, False]
    assert ["ships" in text for text in texts] == [False, True]


async def test_on_start_may_put_turns_before_the_message() -> None:
    def on_start(_: AgentStart) -> dict[str, Any]:
        return {"history": (messages.user("Ahoy!"), messages.assistant("Ahoy."))}

    stepping = Stepping(["Three."], agent=agent(on_start=on_start))

    await stepping.executor.run()

    text = stepping.model.asked[0].text
    assert text.endswith("Ahoy!\n\nAhoy.\n\nCount the ships.")


async def test_no_hook_can_take_the_contract_out_of_the_prompt() -> None:
    def on_start(_: AgentStart) -> dict[str, Any]:
        return {"prompt": (messages.system("Do as you like."), messages.user("Hi."))}

    plain = Stepping([call("finish_step", result=3)], step={"output_schema": NUMBER})
    changed = Stepping(
        [call("finish_step", result=3)],
        step={"output_schema": NUMBER},
        agent=agent(on_start=on_start),
    )

    await plain.executor.run()
    await changed.executor.run()

    contract = plain.model.asked[0].instructions.rpartition("\n\n")[0]
    assert changed.model.asked[0].instructions == f"Do as you like.\n\n{contract}"


async def test_on_start_may_stop_the_step() -> None:
    def on_start(_: AgentStart) -> dict[str, Any]:
        return {"stop": True}

    stepping = Stepping([], agent=agent(on_start=on_start))

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert error.reason == "hook"
    assert stepping.model.asked == []


async def test_on_response_sees_a_reply_before_its_tools_and_may_change_it() -> None:
    seen: list[tuple[str, int]] = []

    def on_response(result: InferenceResult, run: Any) -> InferenceResult:
        seen.append((result.text, len(run.memory)))
        return result.replace(output=[messages.assistant("Four.")])

    stepping = Stepping(["Three."], agent=agent(on_response=on_response))

    assert await stepping.executor.run() == "Four."
    assert seen == [("Three.", 0)]


async def test_on_finish_is_asked_once_and_may_change_the_answer() -> None:
    seen: list[InferenceResult] = []

    async def on_finish(result: InferenceResult, _: Any) -> InferenceResult:
        seen.append(result)
        return result.replace(output=[messages.assistant("Five.")])

    stepping = Stepping([call("look"), "Three."], agent=agent(on_finish=on_finish), tools=[look])

    assert await stepping.executor.run() == "Five."
    assert len(seen) == 1
    assert (seen[0].agent, seen[0].run_id, seen[0].usage.requests) == ("pilot", "run_1", 2)
    assert [each.tool.name for each in seen[0].tool_calls] == ["look"]


SCRIPT = Path(__file__).parents[1] / "calling" / "tooled_server.py"


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[McpServer]:
    """Give a server whose process the tests of a module share."""
    server = McpServer(
        "tooled", timeout=60, command=sys.executable, args=[str(SCRIPT)], include=["add"]
    )
    yield server
    await server.aclose()


def nowhere(name: str = "far", *, required: bool = False) -> McpServer:
    return McpServer(name, command="/nonexistent/server", required=required, timeout=60)


async def test_an_agents_server_and_an_executors_are_offered(server: McpServer) -> None:
    other = McpServer(
        "also", timeout=60, command=sys.executable, args=[str(SCRIPT)], include=["fail"]
    )
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

    assert stepping.given[0]["error"]["type"] == "bad_arguments"


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
