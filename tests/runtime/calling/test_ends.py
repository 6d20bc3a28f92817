"""How a call of one agent ends, and what is kept of it."""

import asyncio
from typing import Any

import pytest
from pydantic_ai import UsageLimits
from pydantic_ai.exceptions import ModelHTTPError, UsageLimitExceeded
from pydantic_ai.messages import ModelResponse
from pydantic_ai.toolsets import FunctionToolset
from runtime.calling.asked import Heard, agent, error_of, model_of, of

from holdfast.ground.errors import InvalidInput, NoModel, RunFailed, ToolNameTaken
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import Agent
from holdfast.testing.scripted import ScriptedModel, call, thought

pytestmark = pytest.mark.anyio


def look() -> str:
    return "seen"


async def test_a_reply_without_calls_ends_it() -> None:
    state = NetworkState()

    result = await agent(["Done."]).run("Go.", state=state)

    assert (result.stop_reason, result.text, result.error) == ("done", "Done.", None)
    assert [each.id for each in state.results] == [result.id]


@pytest.mark.parametrize("reply", [ModelResponse([]), "", thought("Hm.")])
async def test_a_reply_without_a_word_ends_it_too(reply: Any) -> None:
    result = await agent([reply]).run("Go.")

    assert (result.stop_reason, result.output, result.usage.requests) == ("done", [], 1)


async def test_one_request_is_made_and_its_tools_work() -> None:
    result = await agent([["One.", call("look")]], tools=[look]).run("Go.", max_iter=1)

    assert (result.stop_reason, result.text) == ("max_steps", "One.")
    assert [each.content for each in result.tool_calls] == [{"data": "seen"}]
    assert "seen" in result.raw


async def test_one_request_that_asks_for_nothing_is_done() -> None:
    assert (await agent(["Done."]).run("Go.", max_iter=1)).stop_reason == "done"


async def test_twenty_requests_are_made_unless_told_otherwise() -> None:
    ada = agent([call("look") for _ in range(30)], tools=[look])

    result = await ada.run("Go.")

    assert (result.stop_reason, len(model_of(ada).asked)) == ("max_steps", 20)


@pytest.mark.parametrize("most", [0, -1, 1.5, "3", True])
async def test_a_bound_is_a_whole_number_from_one_or_none(most: Any) -> None:
    with pytest.raises(InvalidInput, match="max_iter"):
        await agent([]).run("Go.", max_iter=most)


async def test_a_provider_that_fails_ends_it_with_what_it_said() -> None:
    state = NetworkState()
    ada = agent(
        [[call("look")], ModelHTTPError(529, "scripted", {"error": "overloaded"})], tools=[look]
    )

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", state=state)

    result = state.results[0]
    assert raised.value.stop_reason == result.stop_reason == "model_error"
    assert isinstance(raised.value.__cause__, ModelHTTPError)
    assert result.error is not None
    assert "529" in str(result.error["message"])
    assert [each.content for each in result.tool_calls] == [{"data": "seen"}]


async def test_what_failed_with_nothing_in_it_is_not_kept() -> None:
    state = NetworkState()

    result = await agent([ValueError("no")]).run("Go.", state=state, raises=False)

    assert (result.stop_reason, state.results) == ("model_error", [])


async def test_a_limit_on_usage_ends_it() -> None:
    ada = agent([call("look"), call("look")], tools=[look])

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", usage_limits=UsageLimits(request_limit=1))

    assert raised.value.stop_reason == "budget"
    assert isinstance(raised.value.__cause__, UsageLimitExceeded)
    assert len(of(raised.value).tool_calls) == 1


async def test_there_is_no_limit_on_usage_unless_one_is_given() -> None:
    ada = agent([*(call("look") for _ in range(60)), "Done."], tools=[look])

    assert (await ada.run("Go.", max_iter=None)).usage.requests == 61


async def test_time_that_runs_out_ends_it_with_what_there_is() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    state = NetworkState()
    ada = agent([["One.", call("look"), call("wait")]], tools=[look, wait])

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", state=state, timeout=2)

    first, second = state.results[0].tool_calls
    assert raised.value.stop_reason == state.results[0].stop_reason == "timeout"
    assert first.content == {"data": "seen"}
    assert error_of(second)["kind"] == "interrupted"


async def test_a_slow_model_is_not_waited_for_either() -> None:
    async def never(_: object) -> str:
        await asyncio.Event().wait()
        return ""

    result = await Agent("ada", instructions="", model=ScriptedModel(never)).run(
        "Go.", timeout=0.02, raises=False
    )

    assert result.stop_reason == "timeout"


async def test_a_cancelled_call_keeps_what_is_finished_and_goes_on_cancelled() -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    state, heard = NetworkState(), Heard()
    ada = agent([["One.", call("look"), call("wait")]], tools=[look, wait])
    task = asyncio.create_task(ada.run("Go.", state=state, on_event=heard))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(each.text, each.stop_reason) for each in state.results] == [("One.", "cancelled")]
    assert heard.types[-1] == "run.cancelled"


async def test_an_interrupted_result_can_be_gone_on_from() -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    state = NetworkState()
    ada = agent([[call("look"), call("wait")], "Done."], tools=[look, wait])
    task = asyncio.create_task(ada.run("Go.", state=state))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])

    result = await ada.run("And?", state=state)

    assert result.text == "Done."
    assert "interrupted" in model_of(ada).asked[1].text


async def test_nobody_to_ask_is_said_before_anything_is_stored() -> None:
    state, heard = NetworkState(), Heard()

    with pytest.raises(NoModel, match="ada") as raised:
        await Agent("ada", instructions="").run("Go.", state=state, on_event=heard)

    assert "default_model" in str(raised.value)
    assert (state.results, heard.events) == ([], [])


async def test_a_tool_that_is_to_be_chosen_and_comes_from_no_toolset_is_refused() -> None:
    ada = agent([], toolsets=[FunctionToolset[Any]([look])], tool_choice="jump")

    with pytest.raises(InvalidInput, match="there are: look"):
        await ada.run("Go.")


async def test_names_that_clash_with_a_toolset_are_refused() -> None:
    ada = agent([], tools=[look], toolsets=[FunctionToolset[Any]([look])])

    with pytest.raises(ToolNameTaken, match="look"):
        await ada.run("Go.")


async def test_a_failed_run_may_be_returned() -> None:
    result = await agent([ValueError("no")]).run("Go.", raises=False)

    assert isinstance(result, InferenceResult)
    assert result.error == {"name": "ValueError", "message": "no"}


async def test_usage_is_of_this_call() -> None:
    ada = agent([call("look"), "Done.", "Again."], tools=[look])

    first, second = await ada.run("Go."), await ada.run("Go.")

    assert (first.usage.requests, first.usage.tool_calls) == (2, 1)
    assert (second.usage.requests, second.usage.tool_calls) == (1, 0)


async def test_many_calls_of_one_agent_do_not_meet() -> None:
    async def answer(asked: Any) -> str:
        await asyncio.sleep(0)
        return asked.text.split()[-1]

    ada = Agent("ada", instructions="", model=ScriptedModel(answer))

    results = await asyncio.gather(*(ada.run(f"Say {n}") for n in range(20)))

    assert [each.text for each in results] == [str(n) for n in range(20)]


def test_plain_code_may_call_it() -> None:
    assert agent(["Done."]).run_sync("Go.").text == "Done."


@pytest.mark.parametrize("run_id", ["my run", "x" * 129])
async def test_an_id_of_a_run_is_a_word(run_id: str) -> None:
    with pytest.raises(InvalidInput, match="run_id"):
        await agent([]).run("Go.", run_id=run_id)
