"""How a run of a network ends: why, with what kept, and told once."""

import asyncio
from typing import Any

import pytest
from pydantic_ai import UsageLimits
from pydantic_ai.exceptions import UsageLimitExceeded
from runtime.calling.asked import Heard
from runtime.networks.played import TERMINAL, agent, in_turn, network, once, run_of, who

from holdfast.ground.errors import (
    InvalidInput,
    NoAgentEnabled,
    NoModel,
    NoRouter,
    NotRunnable,
    RunFailed,
)
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import AgentHooks, InMemoryHistory, McpServer, Network, ToolContext
from holdfast.testing.scripted import call

pytestmark = pytest.mark.anyio


def explode(_: Any) -> None:
    raise RuntimeError("boom")


def broken() -> str:
    raise ValueError("no")


def look() -> str:
    return "seen"


async def stuck(_: Any) -> str:
    await asyncio.Event().wait()
    return "never"


class Forgetful:
    """A history that cannot keep results."""

    def append_results(self, *_: object) -> None:
        raise OSError("the disk is gone")


async def cancelling(ctx: ToolContext) -> str:
    ctx.network.cancel("enough")
    await asyncio.Event().wait()
    return "never"


def ends() -> dict[str, Network]:
    """Return a network for each way to end."""
    tools = {"tools": [broken]}
    hooks = AgentHooks(on_start=explode)
    return {
        "done": network(agent("ada")),
        "no_agent": network(agent("ada"), router=once()),
        "max_steps": network(agent("ada"), router=in_turn(*["ada"] * 3), max_iter=2),
        "budget": network(agent("ada"), usage_limits=UsageLimits(request_limit=0)),
        "tool_error": network(agent("ada", [call("broken")], **tools), max_tool_errors=1),
        "model_error": network(agent("ada", [OSError("down")])),
        "hook_error": network(agent("ada", hooks=hooks)),
        "router_error": network(agent("ada"), router=explode),
        "history_error": network(agent("ada"), history=Forgetful()),
        "cancelled": network(agent("ada", [call("cancelling")], tools=[cancelling])),
        "timeout": network(agent("ada", [stuck])),
    }


STATUS = dict.fromkeys(("done", "no_agent", "max_steps"), "completed") | {"cancelled": "cancelled"}


@pytest.mark.parametrize("reason", list(ends()))
async def test_each_way_to_end_is_told_once_and_last(reason: str) -> None:
    heard = Heard()
    timeout = 0.05 if reason == "timeout" else None

    run = await ends()[reason].run("Go.", on_event=heard, raises=False, timeout=timeout)

    assert (run.stop_reason, run.status) == (reason, STATUS.get(reason, "failed"))
    assert [each for each in heard.types if each in TERMINAL] == [f"run.{run.status}"]
    assert heard.types[-1] == f"run.{run.status}"
    assert [each.seq for each in heard.events] == list(range(len(heard.events)))
    assert heard.events[-1].data["stop_reason"] == reason
    assert run.ended_at is not None


@pytest.mark.parametrize("reason", [each for each in ends() if each not in STATUS])
async def test_a_failed_run_raises_and_is_in_what_it_raises(reason: str) -> None:
    timeout = 0.05 if reason == "timeout" else None

    with pytest.raises(RunFailed) as raised:
        await ends()[reason].run("Go.", timeout=timeout)

    assert raised.value.stop_reason == run_of(raised.value).stop_reason == reason


async def test_a_hook_that_stops_one_agent_lets_the_run_go_on() -> None:
    hooks = AgentHooks(on_start=lambda _: {"stop": True})

    run = await network(agent("ada", hooks=hooks), agent("bob")).run("Go.")

    assert [each.stop_reason for each in run.results] == ["hook_stop", "done"]
    assert (run.stop_reason, run.calls) == ("done", 2)


async def test_a_router_that_raises_is_the_cause() -> None:
    with pytest.raises(RunFailed, match="boom") as raised:
        await network(agent("ada"), router=explode).run("Go.")

    assert isinstance(raised.value.__cause__, RuntimeError)
    assert run_of(raised.value).error == {"name": "RuntimeError", "message": "boom"}


async def test_what_ran_before_a_failure_is_kept() -> None:
    history, state = InMemoryHistory(), NetworkState()
    desk = network(agent("ada"), agent("bob", [OSError("down")]), history=history)

    with pytest.raises(RunFailed) as raised:
        await desk.run("Go.", state=state, thread_id="thread_1")

    assert who(run_of(raised.value)) == ["ada"]
    assert [each.text for each in state.results] == ["ada speaks."]
    assert [turn.kind for turn in history.turns("thread_1")] == ["user", "result"]
    assert isinstance(raised.value.__cause__, OSError)


async def test_results_that_a_history_could_not_keep_are_in_the_state() -> None:
    run = await network(agent("ada"), history=Forgetful()).run("Go.", raises=False)

    assert (who(run), run.stop_reason, run.stop_detail) == (
        ["ada"],
        "history_error",
        "append_results",
    )


async def test_an_agent_without_a_model_ends_the_run_and_is_named() -> None:
    with pytest.raises(RunFailed, match="bob") as raised:
        await network(agent("ada"), agent("bob", model=None)).run("Go.")

    assert raised.value.stop_reason == "model_error"
    assert isinstance(raised.value.__cause__, NoModel)
    assert who(run_of(raised.value)) == ["ada"]


async def test_a_network_without_agents_does_not_run() -> None:
    history, heard = InMemoryHistory(), Heard()

    with pytest.raises(NoAgentEnabled):
        await Network("desk", [], history=history).run("Go.", on_event=heard, thread_id="thread_1")

    assert (heard.types, history.turns("thread_1")) == ([], [])


async def test_a_network_whose_agents_are_switched_off_does_not_run() -> None:
    with pytest.raises(NoAgentEnabled):
        await network(agent("ada", hooks=AgentHooks(enabled=False))).run("Go.")


async def test_a_network_without_router_and_model_says_what_would_help() -> None:
    with pytest.raises(NoRouter) as raised:
        await Network("desk", [agent("ada")]).run("Go.")

    assert "router" in str(raised.value.next)
    assert "default_model" in str(raised.value.next)


async def test_limits_on_usage_hold_for_the_whole_run() -> None:
    desk = network(agent("ada"), agent("bob"), agent("eve"))

    run = await desk.run("Go.", usage_limits=UsageLimits(request_limit=2), raises=False)

    assert (run.stop_reason, who(run), run.usage.requests) == ("budget", ["ada", "bob"], 2)
    assert run.error is not None
    assert run.error["name"] == UsageLimitExceeded.__name__


async def test_time_holds_for_the_whole_run_and_what_was_cut_short_is_kept() -> None:
    cut = agent("bob", [["Wait.", call("look")], stuck], tools=[look])

    run = await network(agent("ada"), cut).run("Go.", timeout=0.3, raises=False)

    assert (run.stop_reason, who(run)) == ("timeout", ["ada", "bob"])
    assert (run.results[1].stop_reason, run.results[1].text) == ("timeout", "Wait.")
    assert run.stop_detail == "it ran past its 0.3 s"


async def test_a_router_too_has_no_more_time_than_the_run() -> None:
    run = await network(agent("ada"), router=stuck).run("Go.", timeout=0.05, raises=False)

    assert (run.stop_reason, run.calls) == ("timeout", 0)


async def test_a_stop_from_a_tool_ends_the_run_after_that_call() -> None:
    def finish(ctx: ToolContext) -> str:
        ctx.network.stop("it is solved")
        return "ok"

    ada = agent("ada", [call("finish"), "Solved."], tools=[finish])

    run = await network(ada, agent("bob")).run("Go.")

    assert (who(run), run.results[0].text) == (["ada"], "Solved.")
    assert (run.stop_reason, run.stop_detail, run.dropped) == ("done", "it is solved", ["bob"])


async def test_a_cancelled_run_returns_with_what_was_finished() -> None:
    history = InMemoryHistory()
    bob = agent("bob", [["One.", call("cancelling")]], tools=[cancelling])

    run = await network(agent("ada"), bob, history=history).run("Go.", thread_id="t")

    assert (run.status, run.stop_reason, run.stop_detail) == ("cancelled", "cancelled", "enough")
    assert [each.stop_reason for each in run.results] == ["done", "cancelled"]
    assert [turn.kind for turn in history.turns("t")] == ["user", "result", "result"]


async def test_a_run_is_cancelled_while_its_router_thinks() -> None:
    inside = asyncio.Event()

    async def think(_: Any) -> None:
        inside.set()
        await asyncio.Event().wait()

    run = network(agent("ada"), router=think).start("Go.")
    await inside.wait()
    run.cancel("too slow")

    assert (await run.wait()).stop_detail == "too slow"


async def test_a_task_that_is_cancelled_ends_the_run_and_is_cancelled() -> None:
    heard, inside, state = Heard(), asyncio.Event(), NetworkState()

    async def wait(_: Any) -> str:
        inside.set()
        await asyncio.Event().wait()
        return "never"

    desk = network(agent("ada"), agent("bob", [wait]))
    task = asyncio.create_task(desk.run("Go.", on_event=heard, state=state))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert heard.types[-1] == "run.cancelled"
    assert [each.agent for each in state.results] == ["ada"]


async def test_a_task_that_is_cancelled_twice_tells_its_end_too() -> None:
    heard, inside, ending = Heard(), asyncio.Event(), asyncio.Event()

    async def wait(_: Any) -> str:
        inside.set()
        await asyncio.Event().wait()
        return "never"

    class Slow:
        """A history that never hears of the end."""

        async def end_run(self, *_: object) -> None:
            ending.set()
            await asyncio.Event().wait()

    desk = network(agent("ada", [wait]), history=Slow())
    task = asyncio.create_task(desk.run("Go.", on_event=heard))
    for event in (inside, ending):
        await event.wait()
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert heard.types.count("run.cancelled") == 1
    assert heard.types[-1] == "run.cancelled"


async def test_a_wait_that_is_given_up_leaves_the_run_going() -> None:
    go = asyncio.Event()

    async def wait(_: Any) -> str:
        await go.wait()
        return "Done."

    run = network(agent("ada", [wait])).start("Go.")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run.wait(), 0.05)
    assert run.status == "running"
    go.set()

    assert (await run.wait()).results[0].text == "Done."


async def test_a_started_run_that_fails_raises_when_waited_for() -> None:
    run = ends()["router_error"].start("Go.")

    with pytest.raises(RunFailed):
        await run.wait()
    assert (run.status, run.stop_reason) == ("failed", "router_error")


@pytest.mark.parametrize("most", [0, -1, 1.5, "3", True])
async def test_a_bound_is_a_whole_number_from_one_or_none(most: Any) -> None:
    with pytest.raises(InvalidInput, match="max_iter"):
        Network("desk", [], max_iter=most)
    with pytest.raises(InvalidInput, match="max_iter"):
        await network(agent("ada")).run("Go.", max_iter=most)


async def test_as_many_calls_are_made_as_are_allowed_and_the_router_is_asked_no_more() -> None:
    asked: list[int] = []

    def choose(ctx: Any) -> list[str]:
        asked.append(ctx.call_count)
        return ["ada", "ada"]

    run = await network(agent("ada"), router=choose).run("Go.", max_iter=3)

    assert (run.stop_reason, run.calls, asked) == ("max_steps", 3, [0, 1, 2])
    assert run.dropped == ["ada"] * 3


async def test_without_a_bound_the_router_decides() -> None:
    run = await network(agent("ada"), router=in_turn(*["ada"] * 30)).run("Go.", max_iter=None)

    assert (run.stop_reason, run.calls) == ("done", 30)


async def test_a_network_runs_from_plain_code_too() -> None:
    run = await asyncio.to_thread(network(agent("ada")).run_sync, "Go.")

    assert run.last is not None
    assert run.last.text == "ada speaks."


async def test_a_server_that_an_agent_requires_keeps_the_run_from_beginning() -> None:
    far = McpServer("far", command="/nonexistent/server", required=True, timeout=5)
    history = InMemoryHistory()
    state = NetworkState()
    heard = Heard()

    with pytest.raises(NotRunnable, match="far"):
        await network(agent("ada"), agent("bob", toolsets=[far]), history=history).run(
            "Hi?", state=state, on_event=heard
        )

    assert heard.events == []
    assert state.thread_id is None
