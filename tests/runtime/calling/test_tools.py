"""Each call of a tool ends in one answer, and the agent goes on."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from msgspec import Struct
from msgspec.json import decode
from pydantic import BaseModel
from pydantic_ai import RunContext
from pydantic_ai import Tool as ModelTool
from pydantic_ai.exceptions import ModelRetry
from runtime.calling.asked import agent, came_back, contents, error_of, model_of, of

from holdfast.ground.errors import RunFailed
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import ToolContext
from holdfast.testing.scripted import call
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


async def test_a_tool_that_needs_somebodys_consent_is_denied_it() -> None:
    tool = ModelTool(add, requires_approval=True)

    result = await agent([call("add", number=1, to=2), "Done."], tools=[tool]).run("Go.")

    assert error_of(result)["kind"] == "denied"


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
        await ada.run("Go.", max_iter=None)

    result = of(raised.value)
    assert raised.value.stop_reason == result.stop_reason == "tool_error"
    assert len(result.tool_calls) == 20
    assert len(model_of(ada).asked) == 10


async def test_one_tool_may_fail_as_often_as_all_may_together() -> None:
    turns = [call("jump") for _ in range(19)]

    result = await agent([*turns, "Done."]).run("Go.", max_iter=None)

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
