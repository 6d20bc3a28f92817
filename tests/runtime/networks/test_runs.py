"""Runs of a network: shared state, events, threads, replays, and ends."""

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai import UsageLimits
from pydantic_ai.exceptions import UsageLimitExceeded
from runtime.calling.asked import Heard, model_of
from runtime.networks.played import TERMINAL, agent, in_turn, network, once, run_of, who

import holdfast
from holdfast.ground.errors import (
    AgentNameTaken,
    InvalidInput,
    NoAgentEnabled,
    NoModel,
    NoRouter,
    NotRunnable,
    RunFailed,
)
from holdfast.ground.events import Event
from holdfast.memories.run.records.event import LIVE
from holdfast.memories.state.history import View
from holdfast.memories.state.message import StateLimits
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import (
    AgentHooks,
    EngineHistory,
    HistoryContext,
    InMemoryHistory,
    McpServer,
    Network,
    RunEvent,
    ToolContext,
    UserMessage,
)
from holdfast.testing.scripted import call, thought

pytestmark = pytest.mark.anyio


def keep(ctx: ToolContext, word: str) -> str:
    ctx.state.kv.set("word", word)
    return "kept"


async def test_nothing_of_a_run_comes_back_to_the_network() -> None:
    state = NetworkState({"city": "Oslo"})
    ada = agent("ada", [call("keep", word="it"), "Done."], tools=[keep])
    desk = network(ada, default_state=state)

    heard = Heard()

    run = await desk.run("Go.", data={"year": 2026}, on_event=heard)

    assert heard.types[0] == "run.started"
    assert run.state.kv.all() == {"city": "Oslo", "year": 2026, "word": "it"}
    assert (desk.state.kv.all(), desk.state.results) == ({"city": "Oslo"}, [])


async def test_runs_at_once_see_nothing_of_each_other() -> None:
    together = asyncio.Barrier(5)

    async def mark(ctx: ToolContext) -> str:
        ctx.state.kv.set("mine", ctx.run_id)
        await together.wait()
        return str(ctx.state.kv.get("mine"))

    ada = agent("ada", [call("mark")] * 5 + ["Done."] * 5, tools=[mark])
    desk = network(ada)

    runs = await asyncio.gather(*(desk.run("Go.", run_id=f"run_{i}") for i in range(5)))

    for run in runs:
        assert run.results[0].tool_calls[0].content == {"data": run.id}
        assert (run.state.kv.all(), len(run.state.results)) == ({"mine": run.id}, 1)


async def test_a_state_that_is_given_is_worked_on_itself() -> None:
    state, desk = NetworkState(), network(agent("ada"))

    await desk.run("One.", state=state)
    second = await desk.run("Two.", state=state)

    assert [each.input for each in state.results] == ["One.", "Two."]
    assert [each.input for each in second.results] == ["Two."]


async def test_runs_that_share_a_state_each_store_their_own_once() -> None:
    state, desk = NetworkState(), network(agent("ada"), agent("bob"))

    runs = await asyncio.gather(*(desk.run(f"{i}", state=state) for i in range(4)))

    assert [who(run) for run in runs] == [["ada", "bob"]] * 4
    assert len({each.id for each in state.results}) == len(state.results) == 8


@pytest.mark.parametrize("form", ["to_json", "to_dict"])
async def test_a_state_may_be_given_as_it_is_written(form: str) -> None:
    given = getattr(NetworkState({"city": "Oslo"}), form)()

    assert (await network(agent("ada")).run("Go.", state=given)).state.kv.get("city") == "Oslo"


async def test_what_a_user_message_says_goes_to_every_agent() -> None:
    history, ada, bob = InMemoryHistory(), agent("ada"), agent("bob")
    message = UserMessage("Go.", id="msg_1", system_prompt="Speak Latin.")

    await network(ada, bob, history=history).run(message, thread_id="t")

    for each in (ada, bob):
        said = model_of(each).asked[0].instructions
        assert said == f"You are {each.name}.\n\nSpeak Latin."
    assert history.turns("t")[0].id == "msg_1"


async def test_nothing_said_is_no_turn() -> None:
    history, ada = InMemoryHistory(), agent("ada")

    await network(ada, history=history).run("", thread_id="t")

    assert [each.kind for each in history.turns("t")] == ["result"]


async def test_a_run_tells_of_itself_in_json() -> None:
    run = await network(agent("ada"), agent("bob")).run("Go.", data={"city": "Oslo"})

    told = json.loads(json.dumps(run.to_dict()))

    assert (told["id"], told["network"], told["status"]) == (run.id, "desk", "completed")
    assert [each["agent"] for each in told["results"]] == ["ada", "bob"]
    assert (told["data"], told["usage"]["requests"]) == ({"city": "Oslo"}, 2)
    ada = run.agent_of(run.results[0])
    assert ada is run.network.agents["ada"]


async def test_views_are_the_networks_or_an_agents_own() -> None:
    bob, eve = agent("bob"), agent("eve")
    desk = network(agent("ada"), bob, eve, views={"bob": View(turns="own")})

    await desk.run("Go.")

    assert "ada speaks." not in model_of(bob).asked[0].text
    assert "ada speaks." in model_of(eve).asked[0].text


async def test_what_a_budget_left_out_is_told() -> None:
    heard = Heard()
    state = NetworkState()
    desk = network(agent("ada"), view=View(budget=60))
    for _ in range(4):
        await desk.run("Say it all.", state=state)

    run = await desk.run("Say it again.", state=state, on_event=heard)

    told = heard.of("history.omitted")
    assert len(told) == len(run.omitted) == 1
    assert told[0].data["count"] == len(run.omitted[0].omitted) > 0


async def test_all_that_happens_is_streamed_in_order() -> None:
    said: list[Any] = [[thought("Hm."), call("keep", word="it", call_id="call_1")], "Done."]
    ada = agent("ada", said, tools=[keep])

    events = [each async for each in network(ada).stream("Go.", thread_id="t")]

    assert [each.type for each in events] == [
        "run.started",
        "router.decided",
        "agent.started",
        "model.requested",
        "reasoning.delta",
        "model.responded",
        "tool.called",
        "value.changed",
        "tool.returned",
        "model.requested",
        "text.delta",
        "model.responded",
        "agent.finished",
        "router.decided",
        "run.completed",
    ]
    assert {each.network for each in events} == {"desk"}
    assert events[7].data["key"] == "word"
    assert (events[7].agent, events[7].call_id) == ("ada", "call_1")


async def test_a_run_tells_what_it_is_at_its_start_and_how_it_went_at_its_end() -> None:
    heard = Heard()

    run = await network(agent("ada")).run("Go.", data={"city": "Oslo"}, on_event=heard)

    assert heard.events[0].data == {
        "kind": "network",
        "name": "desk",
        "inputs": ["city"],
    }
    assert heard.events[-1].data == {
        "reason": "done",
        "detail": None,
        "error": None,
        "usage": run.usage.export(),
        "dropped": [],
        "blocked": [],
    }


async def test_a_stream_of_a_failed_run_raises_after_its_last_event() -> None:
    seen: list[RunEvent] = []

    async def follow() -> None:
        async for event in network(agent("ada", [OSError("down")])).stream("Go."):
            seen.append(event)  # noqa: PERF401 - what came before it raises counts

    with pytest.raises(RunFailed):
        await follow()
    assert seen[-1].type == "run.failed"


async def test_leaving_a_stream_cancels_the_run() -> None:
    history, said = InMemoryHistory(), "x" * 80_000
    desk = network(agent("ada", [said]), history=history)

    stream = desk.stream("Go.", run_id="run_1", thread_id="t")
    async for event in stream:
        if event.type == "text.delta":
            break
    await stream.aclose()

    context = HistoryContext(run_id="run_1")
    record = history.get_run(context)
    assert record is not None
    assert (record.status, record.reason) == ("cancelled", "cancelled")


async def test_one_who_looks_on_and_raises_breaks_nothing() -> None:
    def explode(_: RunEvent) -> None:
        raise RuntimeError("boom")

    run = await network(agent("ada")).run("Go.", on_event=explode)

    assert (run.stop_reason, run.event_errors > 3) == ("done", True)


async def test_a_replay_of_an_ended_run_runs_and_stores_nothing() -> None:
    history, ada, heard = InMemoryHistory(), agent("ada"), Heard()
    desk = network(ada, history=history)
    first = await desk.run("Go.", run_id="run_1")

    again = await desk.run("Go.", run_id="run_1", on_event=heard)

    assert first.thread_id is not None
    assert (again.thread_id, again.stop_reason, who(again)) == (first.thread_id, "done", ["ada"])
    assert (again.usage, again.ended_at) == (first.usage, first.ended_at)
    assert [each for each in heard.types if each in TERMINAL] == heard.types
    assert len(model_of(ada).asked) == 1
    assert len(history.turns(first.thread_id)) == 2


async def test_a_run_that_was_broken_off_goes_on_after_what_it_has_done() -> None:
    class Dying(InMemoryHistory):
        """A history that dies with the run, before it hears of the end."""

        def end_run(self, ctx: Any, summary: Any) -> None:
            if summary.status == "completed":
                super().end_run(ctx, summary)

    history, ada = Dying(), agent("ada")
    bob = agent("bob", [OSError("down"), "Here."])
    desk = network(ada, bob, history=history, router=in_turn("ada", "bob"))
    await desk.run("Go.", run_id="run_1", thread_id="t", raises=False)

    run = await desk.run("Go.", run_id="run_1", thread_id="t")

    assert (who(run), run.calls, [each.index for each in run.results]) == (
        ["ada", "bob"],
        2,
        [0, 1],
    )
    assert len(model_of(ada).asked) == 1
    assert [each.kind for each in history.turns("t")] == ["user", "result", "result"]


async def test_a_thread_goes_on_in_another_run() -> None:
    history, ada = InMemoryHistory(), agent("ada")
    desk = network(ada, history=history)

    await desk.run("One.", thread_id="t")
    run = await desk.run("Two.", thread_id="t")

    assert (who(run), len(run.state.results)) == (["ada"], 2)
    assert "One." in model_of(ada).asked[1].text


async def test_an_agents_own_history_keeps_its_turns_where_the_network_has_none() -> None:
    own, shared = InMemoryHistory(), InMemoryHistory()
    ada, bob = agent("ada", history=own), agent("bob")

    alone = await network(ada, bob).run("Go.", thread_id="t")
    await network(ada, bob, history=shared).run("Go.", thread_id="u")

    assert [each.result and each.result.agent for each in own.turns("t")] == [None, "ada"]
    record = own.get_run(HistoryContext(run_id=alone.id))
    assert record is not None
    assert record.status == "completed"
    assert (own.turns("u"), len(shared.turns("u"))) == ([], 3)


async def test_a_history_that_fails_at_first_lets_nothing_run() -> None:
    class Gone:
        """A history that is not there."""

        def get(self, _: object) -> Any:
            raise OSError("gone")

    ada, heard = agent("ada"), Heard()

    run = await network(ada, history=Gone()).run("Go.", thread_id="t", on_event=heard, raises=False)

    assert (run.stop_reason, heard.types, model_of(ada).asked) == (
        "history",
        ["run.failed"],
        [],
    )


async def test_an_engines_bus_hears_of_a_run_and_nothing_of_what_was_said() -> None:
    heard: list[Event] = []
    with holdfast.open(":memory:") as hf:
        off = hf.events.subscribe(heard.append)
        ada = agent("ada", [call("keep", word="secret"), "secret"], tools=[keep])
        run = await network(ada, history=EngineHistory(hf)).run("secret")
        off()

    told = [each for each in heard if each.ids.get("run_id") == run.id]
    assert [each.type for each in told] == [
        "run.started",
        "run.router_decided",
        "run.version_kept",
        "run.agent_started",
        "run.model_requested",
        "run.model_responded",
        "run.tool_called",
        "run.value_changed",
        "run.tool_returned",
        "run.model_requested",
        "run.model_responded",
        "run.version_kept",
        "run.agent_finished",
        "run.router_decided",
        "run.version_kept",
        "run.completed",
    ]
    assert "secret" not in repr(told)
    assert not [each for each in heard if each.type.startswith("network.")]


async def test_what_is_kept_of_a_run_tells_how_it_went() -> None:
    with holdfast.open(":memory:") as hf:
        desk = network(agent("ada"), agent("bob", [OSError("down")]), history=EngineHistory(hf))
        run = await desk.run("secret", raises=False)
        record = hf.runs.retrieve(run.id)

    assert (record.status, record.reason) == ("failed", "model_error")
    assert (record.extras["calls"], record.extras["dropped"]) == (1, [])
    assert "secret" not in repr(record)


def test_a_network_needs_nothing_to_be_made() -> None:
    desk = Network("desk", [])

    desk.state.kv.set("city", "Oslo")

    assert (desk.state.data["city"], len(desk.agents)) == ("Oslo", 0)


def test_two_agents_of_one_name_are_refused() -> None:
    with pytest.raises(AgentNameTaken, match="ada"):
        Network("desk", [agent("ada"), agent("ada")])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("default_state", {}),
        ("view", "all"),
        ("views", {"eve": View()}),
        ("max_tool_errors", 0),
    ],
)
def test_what_a_network_cannot_be_made_of_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=field):
        Network("desk", [], **{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [("state", 5), ("timeout", 0), ("timeout", "1"), ("run_id", "a b"), ("thread_id", "")],
)
async def test_what_a_run_cannot_be_is_named_and_nothing_is_told(field: str, value: Any) -> None:
    heard = Heard()

    with pytest.raises(InvalidInput, match=field):
        await network(agent("ada"), router=once("ada")).run("Go.", on_event=heard, **{field: value})
    assert heard.types == []


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
        "max_turns": network(agent("ada"), router=in_turn(*["ada"] * 3), max_turns=2),
        "budget": network(agent("ada"), usage_limits=UsageLimits(request_limit=0)),
        "tool_error": network(agent("ada", [call("broken")], **tools), max_tool_errors=1),
        "model_error": network(agent("ada", [OSError("down")])),
        "hook": network(agent("ada", hooks=hooks)),
        "router": network(agent("ada"), router=explode),
        "history": network(agent("ada"), history=Forgetful()),
        "cancelled": network(agent("ada", [call("cancelling")], tools=[cancelling])),
        "timeout": network(agent("ada", [stuck])),
    }


STATUS = dict.fromkeys(("done", "no_agent"), "completed") | {"cancelled": "cancelled"}


@pytest.mark.parametrize("reason", list(ends()))
async def test_each_way_to_end_is_told_once_and_last(reason: str) -> None:
    heard = Heard()
    timeout = 0.05 if reason == "timeout" else None

    run = await ends()[reason].run("Go.", on_event=heard, raises=False, timeout=timeout)

    assert (run.stop_reason, run.status) == (reason, STATUS.get(reason, "failed"))
    assert [each for each in heard.types if each in TERMINAL] == [f"run.{run.status}"]
    assert heard.types[-1] == f"run.{run.status}"
    stored = [each.seq for each in heard.events if each.type not in LIVE]
    assert stored == list(range(1, len(stored) + 1))
    assert heard.events[-1].data["reason"] == reason
    assert run.ended_at is not None


@pytest.mark.parametrize("reason", [each for each in ends() if each not in STATUS])
async def test_a_failed_run_raises_and_is_in_what_it_raises(reason: str) -> None:
    timeout = 0.05 if reason == "timeout" else None

    with pytest.raises(RunFailed) as raised:
        await ends()[reason].run("Go.", timeout=timeout)

    assert raised.value.stop_reason == run_of(raised.value).stop_reason == reason


class Odd(BaseException):
    """What no code expects, and which cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Exploding(NetworkState):
    """A state that takes no result."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def append_result(self, result: Any) -> Any:
        del result
        raise self._error


TIGHT = StateLimits(result_bytes=100)


@pytest.mark.parametrize(
    ("state", "detail"),
    [
        (NetworkState(limits=TIGHT), "LimitExceeded: result_bytes of res_"),
        (Exploding(Odd()), "Odd: "),
    ],
)
async def test_what_nothing_foresaw_ends_a_run_as_internal_and_its_record_too(
    state: NetworkState, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard, history = Heard(), InMemoryHistory()
    desk = network(agent("ada"), history=history)

    run = await desk.run("Go.", on_event=heard, raises=False, state=state)

    assert (run.status, run.stop_reason) == ("failed", "internal")
    assert (run.stop_detail or "").startswith(detail)
    assert [each for each in heard.types if each in TERMINAL] == ["run.failed"] == heard.types[-1:]
    record = history.get_run(HistoryContext(run_id=run.id))
    assert record is not None
    assert (record.status, record.reason) == ("failed", "internal")
    assert detail.partition(":")[0] in caplog.text
    assert "Traceback" in caplog.text


async def test_an_internal_end_says_five_hundred_characters_and_is_a_failed_run() -> None:
    class Long(BaseException):
        """What no code expects, at length."""

    with pytest.raises(RunFailed) as raised:
        await network(agent("ada")).run("Go.", state=Exploding(Long("x" * 5_000)))

    assert run_of(raised.value).stop_detail == f"Long: {'x' * 499}…"
    assert isinstance(raised.value.__cause__, Long)


async def test_a_failure_before_a_run_begins_is_returned_with_raises_off() -> None:
    class Broken(dict[str, Any]):
        """Values that cannot be read."""

        def __iter__(self) -> Any:
            raise RuntimeError("boom")

        keys = items = __iter__

    run = await network(agent("ada")).run("Go.", data=Broken(a=1), raises=False)

    assert (run.stop_reason, run.stop_detail) == ("internal", "RuntimeError: boom")


async def test_half_a_character_in_a_reason_to_stop_is_repaired_in_the_record() -> None:
    def finish(ctx: ToolContext) -> str:
        ctx.network.stop("\ud800")
        return "ok"

    history = InMemoryHistory()
    ada = agent("ada", [call("finish"), "Solved."], tools=[finish])

    run = await network(ada, history=history).run("Go.")

    record = history.get_run(HistoryContext(run_id=run.id))
    assert record is not None
    assert (record.status, record.reason, record.detail) == ("completed", "stopped", "\ufffd")


async def test_one_history_that_fails_at_the_end_keeps_no_other_from_it() -> None:
    class Failing(InMemoryHistory):
        """A history that cannot store an end."""

        def end_run(self, ctx: HistoryContext, summary: object) -> None:
            raise OSError(f"{ctx.run_id} cannot be stored as {summary}")

    bad, good = Failing(), InMemoryHistory()

    run = await network(agent("ada", history=bad), agent("bob", history=good)).run(
        "Go.", raises=False
    )

    record = good.get_run(HistoryContext(run_id=run.id))
    assert record is not None
    assert (record.status, run.stop_reason) == ("completed", "history")


async def test_what_is_scheduled_and_is_no_agent_is_the_routers_failure() -> None:
    def plan(ctx: ToolContext) -> str:
        ctx.network.schedule(5)
        return "ok"

    ada = agent("ada", [call("plan"), "Planned."], tools=[plan])

    run = await network(ada).run("Go.", raises=False)

    assert (run.stop_reason, run.stop_detail) == ("router", "must be agents or their names")


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
        "history",
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
    assert (run.stop_reason, run.stop_detail, run.dropped) == ("stopped", "it is solved", ["bob"])


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
    run = ends()["router"].start("Go.")

    with pytest.raises(RunFailed):
        await run.wait()
    assert (run.status, run.stop_reason) == ("failed", "router")


@pytest.mark.parametrize("most", [0, -1, 1.5, "3", True])
async def test_a_bound_is_a_whole_number_from_one_or_none(most: Any) -> None:
    with pytest.raises(InvalidInput, match="max_turns"):
        Network("desk", [], max_turns=most)
    with pytest.raises(InvalidInput, match="max_turns"):
        await network(agent("ada")).run("Go.", max_turns=most)


async def test_as_many_calls_are_made_as_are_allowed_and_the_router_is_asked_no_more() -> None:
    asked: list[int] = []

    def choose(ctx: Any) -> list[str]:
        asked.append(ctx.call_count)
        return ["ada", "ada"]

    run = await network(agent("ada"), router=choose).run("Go.", max_turns=3, raises=False)

    assert (run.stop_reason, run.calls, asked) == ("max_turns", 3, [0, 1, 2])
    assert run.dropped == ["ada"] * 3


async def test_without_a_bound_the_router_decides() -> None:
    run = await network(agent("ada"), router=in_turn(*["ada"] * 30)).run("Go.", max_turns=None)

    assert (run.stop_reason, run.calls) == ("done", 30)


async def test_a_network_runs_from_plain_code_too() -> None:
    run = await asyncio.to_thread(network(agent("ada")).run_sync, "Go.")

    assert run.last is not None
    assert run.last.text == "ada speaks."


async def test_a_server_that_an_agent_requires_keeps_the_run_from_beginning() -> None:
    far = McpServer("far", command="/nonexistent/server", required=True, timeout=60)
    history = InMemoryHistory()
    state = NetworkState()
    heard = Heard()

    with pytest.raises(NotRunnable, match="far"):
        await network(agent("ada"), agent("bob", toolsets=[far]), history=history).run(
            "Hi?", state=state, on_event=heard
        )

    assert heard.events == []
    assert state.thread_id is None
