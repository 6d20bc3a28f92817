"""What runs of one network share and what they do not; events, threads and replays of them."""

import asyncio
import json
from typing import Any

import pytest
from runtime.calling.asked import Heard, model_of
from runtime.networks.played import TERMINAL, agent, in_turn, network, once, who

import holdfast
from holdfast.ground.errors import AgentNameTaken, InvalidInput, RunFailed
from holdfast.ground.events import Event
from holdfast.memories.state.history import View
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import (
    EngineHistory,
    HistoryContext,
    InMemoryHistory,
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
        "reasoning.delta",
        "tool.called",
        "value.changed",
        "tool.returned",
        "text.delta",
        "agent.finished",
        "router.decided",
        "run.completed",
    ]
    assert {each.network for each in events} == {"desk"}
    assert events[5].data["key"] == "word"
    assert (events[5].agent, events[5].call_id) == ("ada", "call_1")


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
    assert (record.status, record.stop_reason) == ("cancelled", "cancelled")


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
        "history_error",
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

    told = [each for each in heard if each.type.startswith("network.")]
    assert [each.type for each in told] == [
        "network.run_started",
        "network.router_decided",
        "network.agent_started",
        "network.tool_called",
        "network.value_changed",
        "network.tool_returned",
        "network.agent_finished",
        "network.router_decided",
        "network.run_completed",
    ]
    assert "secret" not in repr(told)
    assert {each.ids["run_id"] for each in told} == {run.id}


async def test_what_is_kept_of_a_run_tells_how_it_went() -> None:
    with holdfast.open(":memory:") as hf:
        desk = network(agent("ada"), agent("bob", [OSError("down")]), history=EngineHistory(hf))
        run = await desk.run("secret", raises=False)
        record = hf.network_runs.retrieve(run.id)

    assert (record.status, record.stop_reason, record.calls) == ("failed", "model_error", 1)
    assert record.extras["dropped"] == []
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
