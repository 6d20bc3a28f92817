"""What is told while an agent is called."""

import asyncio
from typing import Any

import pytest
from pydantic_ai.models.function import FunctionModel
from runtime.calling.asked import Heard, agent, contents

from holdfast.ground.errors import RunFailed
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import Agent, RunEvent, ToolContext
from holdfast.testing.scripted import ScriptedModel, call, thought

pytestmark = pytest.mark.anyio


def keep(ctx: ToolContext, word: str) -> str:
    ctx.state.kv.set("word", word)
    return "kept"


TURNS: list[Any] = [[thought("Hm."), "One.", call("keep", word="it", call_id="call_1")], "x" * 100]


async def test_all_that_happens_is_told_in_order() -> None:
    heard = Heard()

    await agent(TURNS, tools=[keep]).run("Go.", on_event=heard)

    assert heard.types == [
        "run.started",
        "agent.started",
        "reasoning.delta",
        "text.delta",
        "tool.called",
        "value.changed",
        "tool.returned",
        "text.delta",
        "text.delta",
        "text.delta",
        "agent.finished",
        "run.completed",
    ]
    assert [each.seq for each in heard.events] == list(range(12))


async def test_deltas_of_a_step_are_its_text() -> None:
    heard = Heard()

    result = await agent(TURNS, tools=[keep]).run("Go.", on_event=heard)

    told = {1: "", 2: ""}
    for event in heard.of("text.delta"):
        told[event.data["step"]] += event.data["delta"]
    assert list(told.values()) == contents(result)


async def test_a_model_that_cannot_stream_gives_one_delta() -> None:
    scripted, heard = ScriptedModel(["x" * 100]), Heard()
    assert scripted.function is not None
    model = FunctionModel(scripted.function)

    await agent([], model=model).run("Go.", on_event=heard)

    assert [each.data["delta"] for each in heard.of("text.delta")] == ["x" * 100]


async def test_tools_are_told_of_with_what_they_got_and_gave() -> None:
    heard = Heard()

    await agent(TURNS, tools=[keep]).run("Go.", run_id="run_1", on_event=heard)

    called, returned = heard.of("tool.called")[0], heard.of("tool.returned")[0]
    assert (called.agent, called.call_id, called.run_id) == ("ada", "call_1", "run_1")
    assert called.data == {"name": "keep", "input": {"word": "it"}}
    assert returned.data["content"] == {"data": "kept"}
    assert isinstance(returned.data["duration_ms"], int)


async def test_a_changed_value_is_told_without_the_value() -> None:
    heard = Heard()

    await agent(TURNS, tools=[keep]).run("Go.", on_event=heard)

    changed = heard.of("value.changed")[0]
    assert changed.data == {"key": "word", "version": 1}
    assert (changed.agent, changed.call_id) == ("ada", "call_1")


async def test_the_traceback_of_a_tool_is_told_and_not_kept() -> None:
    def broken() -> None:
        raise KeyError("nothing")

    heard = Heard()

    result = await agent([call("broken"), "Done."], tools=[broken]).run("Go.", on_event=heard)

    assert "in broken" in heard.of("tool.returned")[0].data["traceback"]
    assert "in broken" not in str(result.export())


async def test_calls_that_never_reach_a_tool_are_told_too() -> None:
    heard = Heard()

    await agent([call("jump"), "Done."]).run("Go.", on_event=heard)

    assert heard.of("tool.called")[0].data["name"] == "jump"
    assert heard.of("tool.returned")[0].data["content"]["error"]["kind"] == "unknown_tool"


async def test_the_last_event_tells_how_it_ended() -> None:
    heard = Heard()

    await agent([ValueError("no")]).run("Go.", on_event=heard, raises=False)

    last = heard.events[-1]
    assert (last.type, last.data["stop_reason"]) == ("run.failed", "model_error")
    assert last.data["error"] == {"name": "ValueError", "message": "no"}
    assert sum(each.startswith("run.") for each in heard.types) == 2


async def test_an_event_goes_as_a_dict() -> None:
    heard = Heard()

    await agent(["Done."]).run("Go.", run_id="run_1", thread_id="thread_1", on_event=heard)

    told = heard.events[0].to_dict()
    assert told.pop("at").endswith("Z")
    assert told == {
        "type": "run.started",
        "seq": 0,
        "run_id": "run_1",
        "thread_id": "thread_1",
        "network": None,
        "agent": None,
        "call_id": None,
        "data": {"input": "Go.", "thread_id": "thread_1"},
    }


async def test_a_stream_gives_the_same_events() -> None:
    heard = Heard()
    ada = agent(TURNS, tools=[keep])

    streamed = [each async for each in ada.stream("Go.", on_event=heard)]

    assert streamed == heard.events


async def test_a_stream_raises_after_its_last_event() -> None:
    seen: list[RunEvent] = []

    async def read() -> None:
        async for event in agent([ValueError("no")]).stream("Go."):
            seen.append(event)  # noqa: PERF401 - it raises at the end

    with pytest.raises(RunFailed):
        await read()

    assert seen[-1].type == "run.failed"


async def test_a_stream_that_is_told_not_to_raise_just_ends() -> None:
    ada = agent([ValueError("no")])

    types = [each.type async for each in ada.stream("Go.", raises=False)]

    assert types[-1] == "run.failed"


async def test_leaving_a_stream_early_cancels_the_run_and_keeps_what_is_finished() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    state = NetworkState()
    events = agent([["One.", call("wait")]], tools=[wait]).stream("Go.", state=state)
    async for event in events:
        if event.type == "tool.called":
            break
    await events.aclose()

    assert [(each.text, each.stop_reason) for each in state.results] == [("One.", "cancelled")]


async def test_a_slow_reader_is_waited_for() -> None:
    turns = ["x" * 40 * 2000]
    seen: list[int] = []

    async for event in agent(turns).stream("Go."):
        seen.append(event.seq)
        await asyncio.sleep(0)

    assert seen == list(range(len(seen)))
    assert len(seen) > 2000


async def test_an_onlooker_may_be_awaitable() -> None:
    seen: list[str] = []

    async def look(event: RunEvent) -> None:
        await asyncio.sleep(0)
        seen.append(event.type)

    await agent(["Done."]).run("Go.", on_event=look)

    assert seen[-1] == "run.completed"


async def test_an_onlooker_that_raises_breaks_nothing() -> None:
    def look(event: RunEvent) -> None:
        raise OSError(event.type)

    result = await agent(["Done."]).run("Go.", on_event=look)

    assert isinstance(result, InferenceResult)
    assert result.stop_reason == "done"


async def test_nothing_is_streamed_where_nobody_looks() -> None:
    class Plain(ScriptedModel):
        def request_stream(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("nobody looks")

    result = await Agent("ada", instructions="", model=Plain(["Done."])).run("Go.")

    assert result.text == "Done."
