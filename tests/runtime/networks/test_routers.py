"""Routers of a network: functions, schedules, and agents that route."""

from collections.abc import Sequence
from typing import Any

import pytest
from runtime.calling.asked import Heard, model_of
from runtime.networks.played import agent, in_turn, network, once, run_of, who

from holdfast.ground.errors import Conflict, InvalidInput, NoModel, RunFailed, ToolNameTaken
from holdfast.runtime import (
    Agent,
    AgentHooks,
    Network,
    Route,
    RouterContext,
    RoutingAgent,
    ToolContext,
)
from holdfast.testing.scripted import ScriptedModel, Turn, call

pytestmark = pytest.mark.anyio


def first(answer: object) -> Any:
    """Return a router that answers *answer* at first, and later nothing."""

    def choose(ctx: RouterContext) -> object:
        return None if ctx.call_count else answer

    return choose


async def test_an_agent_a_name_or_several_are_added() -> None:
    ada, bob = agent("ada"), agent("bob")

    for answer, ran in (
        (ada, ["ada"]),
        ("bob", ["bob"]),
        ([ada, "bob"], ["ada", "bob"]),
        (("bob", ada), ["bob", "ada"]),
        (Route.add(ada, "bob"), ["ada", "bob"]),
        ([], []),
    ):
        assert who(await network(ada, bob, router=first(answer)).run("Go.")) == ran


async def test_a_router_may_be_awaitable() -> None:
    async def choose(ctx: RouterContext) -> str | None:
        return None if ctx.call_count else "ada"

    assert who(await network(agent("ada"), router=choose).run("Go.")) == ["ada"]


async def test_stop_drops_what_is_pending_and_continue_runs_it() -> None:
    def stops(ctx: RouterContext) -> Any:
        return Route.stop("enough") if ctx.call_count else ["ada", "bob"]

    stopped = await network(agent("ada"), agent("bob"), router=stops).run("Go.")
    went_on = await network(agent("ada"), agent("bob")).run("Go.")

    assert (who(stopped), stopped.dropped, stopped.stop_detail) == (["ada"], ["bob"], "enough")
    assert (who(went_on), went_on.dropped) == (["ada", "bob"], [])


async def test_replace_drops_what_is_pending_and_says_so() -> None:
    def choose(ctx: RouterContext) -> Any:
        steps: list[Any] = [["ada", "bob"], Route.replace("eve"), None]
        return steps[ctx.call_count]

    run = await network(agent("ada"), agent("bob"), agent("eve"), router=choose).run("Go.")

    assert (who(run), run.dropped) == (["ada", "eve"], ["bob"])


async def test_a_router_is_told_what_there_is_to_know() -> None:
    seen: list[RouterContext] = []

    def choose(ctx: RouterContext) -> Any:
        seen.append(ctx)
        return ["ada", "bob"] if not ctx.call_count else None

    run = await network(agent("ada"), agent("bob"), router=choose).run("Go.")

    assert [(each.call_count, each.stack) for each in seen] == [(0, ()), (1, ("bob",)), (2, ())]
    assert (seen[0].last_result, seen[0].results, seen[0].input) == (None, [], "Go.")
    assert seen[2].last_result == run.last
    assert (seen[0].network is run, seen[0].agents.names) == (True, ("ada", "bob"))


async def test_a_value_that_an_agent_sets_decides_who_is_next() -> None:
    def file(ctx: ToolContext, topic: str) -> str:
        ctx.state.kv.set("topic", topic)
        return "filed"

    def choose(ctx: RouterContext) -> str | None:
        if not ctx.call_count:
            return "triage"
        return str(ctx.state.kv.get("topic")) if ctx.call_count == 1 else None

    triage = agent("triage", [call("file", topic="billing"), "Filed."], tools=[file])

    run = await network(triage, agent("billing"), agent("tech"), router=choose).run("Help!")

    assert who(run) == ["triage", "billing"]
    info = run.state.get("topic")
    assert info is not None
    assert (info.agent, info.run_id, info.tool) == ("triage", run.id, "file")


async def test_what_a_tool_writes_through_its_run_carries_the_call_too() -> None:
    def file(ctx: ToolContext) -> str:
        ctx.network.state.kv.set("topic", "billing")
        return "filed"

    ada = agent("ada", [call("file", call_id="call_1"), "Filed."], tools=[file])

    run = await network(ada).run("Help!")
    run.state.kv.set("later", 1)

    info, later = run.state.get("topic"), run.state.get("later")
    assert info is not None
    assert later is not None
    assert (info.agent, info.run_id, info.tool, info.call_id) == ("ada", run.id, "file", "call_1")
    assert (later.agent, later.run_id, later.tool) == (None, run.id, None)


@pytest.mark.parametrize("answer", ["eve", ["ada", "eve"], agent("ada"), 5, {"agent": "ada"}, [5]])
async def test_what_is_no_agent_of_the_network_is_an_error_that_names_those_there_are(
    answer: Any,
) -> None:
    with pytest.raises(RunFailed) as raised:
        await network(agent("ada"), agent("bob"), router=first(answer)).run("Go.")

    run = run_of(raised.value)
    assert (run.stop_reason, run.calls) == ("router", 0)
    assert isinstance(raised.value.__cause__, InvalidInput)
    if isinstance(answer, Agent | str):
        assert "ada, bob" in str(raised.value)


async def test_a_name_that_a_tool_schedules_runs_before_what_the_router_adds() -> None:
    def send(ctx: ToolContext) -> str:
        ctx.network.schedule("bob")
        return "sent"

    ada = agent("ada", [call("send"), "Sent."], tools=[send])

    run = await network(ada, agent("bob"), agent("eve"), router=in_turn("ada", "eve")).run("Go.")

    assert who(run) == ["ada", "bob", "eve"]


async def test_a_router_may_schedule_too() -> None:
    def choose(ctx: RouterContext) -> str | None:
        if ctx.call_count:
            return None
        ctx.network.schedule("bob")
        return "ada"

    run = await network(agent("ada"), agent("bob"), router=choose).run("Go.")

    assert who(run) == ["bob", "ada"]


async def test_a_scheduled_name_that_is_no_agent_ends_the_run() -> None:
    def send(ctx: ToolContext) -> str:
        ctx.network.schedule("eve")
        return "sent"

    ada = agent("ada", [call("send"), "Sent."], tools=[send])

    run = await network(ada, agent("bob")).run("Go.", raises=False)

    assert (who(run), run.stop_reason) == (["ada", "bob"], "router")
    assert "eve" in (run.stop_detail or "")


async def test_nothing_is_scheduled_in_a_run_that_has_ended() -> None:
    run = await network(agent("ada")).run("Go.")

    with pytest.raises(Conflict, match="ended"):
        run.schedule("ada")


async def test_an_agent_that_is_switched_off_meanwhile_is_passed_over() -> None:
    heard = Heard()
    hooks = AgentHooks(enabled=lambda _, run: not run.calls)

    run = await network(agent("ada"), agent("bob", hooks=hooks), agent("eve")).run(
        "Go.", on_event=heard
    )

    assert (who(run), run.skipped) == (["ada", "eve"], [("bob", "it is switched off")])
    assert [each.agent for each in heard.of("agent.skipped")] == ["bob"]


async def test_a_router_sees_no_agent_that_is_switched_off() -> None:
    seen: list[tuple[str, ...]] = []
    bob = agent("bob", hooks=AgentHooks(enabled=False))

    def choose(ctx: RouterContext) -> None:
        seen.append(ctx.agents.names)

    await network(agent("ada"), bob, router=choose).run("Go.")

    assert seen == [("ada",)]


async def test_a_router_that_insists_on_an_agent_that_is_switched_off_comes_to_an_end() -> None:
    bob = agent("bob", hooks=AgentHooks(enabled=False))

    run = await network(agent("ada"), bob, router=lambda _: "bob").run("Go.", raises=False)  # pyright: ignore[reportUnknownLambdaType]

    assert (run.stop_reason, run.calls) == ("router", 0)


async def test_a_hook_that_cannot_say_whether_its_agent_is_on_ends_the_run() -> None:
    def explode(*_: object) -> bool:
        raise RuntimeError("boom")

    run = await network(agent("ada", hooks=AgentHooks(enabled=explode))).run("Go.", raises=False)

    assert (run.stop_reason, run.stop_detail) == ("hook", "enabled")


async def test_the_router_of_a_run_goes_before_the_networks() -> None:
    run = await network(agent("ada"), agent("bob")).run("Go.", router=once("bob"))

    assert who(run) == ["bob"]


async def test_decisions_are_told() -> None:
    heard = Heard()

    await network(agent("ada"), agent("bob")).run("Go.", on_event=heard)

    told = [each.data for each in heard.of("router.decided")]
    assert told[0] == {"route": "add", "agents": ["ada", "bob"], "reason": ""}
    assert [each["route"] for each in told] == ["add", "continue", "continue"]


@pytest.mark.parametrize("router", [5, "ada", agent("ada")])
def test_a_router_is_a_function_or_a_routing_agent(router: Any) -> None:
    with pytest.raises(InvalidInput, match="router"):
        Network("desk", [], router=router)


async def test_each_agent_is_sent_the_input_once_and_what_others_said() -> None:
    bob = agent("bob")

    await network(agent("ada"), bob).run("Go there.")

    assert model_of(bob).asked[0].text.count("Go there.") == 1
    assert "ada speaks." in model_of(bob).asked[0].text


def pick(name: str) -> Any:
    return call("select_agent", name=name, reason=f"{name} knows")


def desk(turns: Sequence[Turn], **changes: Any) -> tuple[Network, ScriptedModel]:
    """Return a network whose own router says *turns*, and the model it asks."""
    model = ScriptedModel(turns)
    agents = [agent("ada", description="Sums\nthings."), agent("bob")]
    return Network("desk", agents, default_model=model, **changes), model


async def test_the_networks_own_router_chooses_until_it_is_done() -> None:
    heard = Heard()
    ours, model = desk([pick("ada"), pick("bob"), call("done", summary="All said.")])

    run = await ours.run("Go.", on_event=heard)

    assert (who(run), run.stop_reason, run.stop_detail) == (["ada", "bob"], "done", "All said.")
    assert [each.data["reason"] for each in heard.of("router.decided")] == [
        "ada knows",
        "bob knows",
        "All said.",
    ]
    assert len(run.router_calls) == len(model.asked) == 3
    assert run.usage.requests == 5
    assert {each.id for each in run.router_calls}.isdisjoint(each.id for each in run.results)


async def test_it_is_told_of_the_agents_there_are_and_forced_to_choose() -> None:
    ours, model = desk([call("done")])

    await ours.run("Go.")

    assert "- ada: Sums things.\n- bob" in model.asked[0].instructions
    assert model.asked[0].offered == ["select_agent", "done"]
    assert (model.asked[0].settings or {}).get("tool_choice") == "required"


async def test_it_sees_no_agent_that_is_switched_off() -> None:
    model = ScriptedModel([pick("bob"), pick("ada"), call("done")])
    bob = agent("bob", hooks=AgentHooks(enabled=False))

    run = await Network("desk", [agent("ada"), bob], default_model=model).run("Go.")

    assert "bob" not in model.asked[0].instructions
    assert (who(run), run.skipped) == (["ada"], [])


async def test_it_sees_what_was_said_and_no_calls_of_tools() -> None:
    model = ScriptedModel([pick("ada"), call("done")])
    ada = agent("ada", [call("look"), "It is there."], tools=[look])

    await Network("desk", [ada], default_model=model).run("Where is it?")

    assert "It is there." in model.asked[1].text
    assert model.asked[1].text.count("Where is it?") == 1
    assert "look" not in model.asked[1].text


def look() -> str:
    return "seen"


async def test_the_first_call_of_a_reply_counts() -> None:
    ours, _ = desk([[pick("bob"), pick("ada"), call("done")], [call("done"), pick("ada")]])

    assert who(await ours.run("Go.")) == ["bob"]


async def test_a_name_that_is_not_there_is_answered_once() -> None:
    ours, model = desk([pick("eve"), pick("bob"), call("done")])

    run = await ours.run("Go.")

    assert who(run) == ["bob"]
    assert "there is no agent eve; there are: ada, bob" in model.asked[1].text


async def test_a_second_such_name_ends_the_run() -> None:
    ours, _ = desk([pick("eve"), pick("mallory")])

    run = await ours.run("Go.", raises=False)

    assert (run.stop_reason, run.calls) == ("router", 0)
    assert "mallory" in (run.stop_detail or "")


async def test_words_alone_end_the_run() -> None:
    ours, _ = desk(["I cannot say."])

    run = await ours.run("Go.")

    assert (run.stop_reason, run.stop_detail, run.calls) == ("no_agent", "I cannot say.", 0)


async def test_its_requests_have_a_bound() -> None:
    model = ScriptedModel(lambda _: call("look"))
    router = RoutingAgent("chief", instructions="Choose.", tools=[look], model=model)

    run = await network(agent("ada"), router=router).run("Go.", max_turns=2, raises=False)

    assert (run.stop_reason, len(model.asked)) == ("router", 6)


async def test_a_model_that_fails_it_ends_the_run() -> None:
    ours, _ = desk([OSError("down")])

    run = await ours.run("Go.", raises=False)

    assert run.stop_reason == "router"
    assert run.error == {"name": "OSError", "message": "down"}


async def test_two_networks_share_no_router() -> None:
    one, other = desk([])[0], desk([])[0]

    assert one.own_router is not other.own_router


async def test_on_route_decides_by_what_its_agent_said() -> None:
    def choose(ctx: RouterContext) -> Any:
        assert ctx.result is not None
        return Route.stop() if ctx.call_count else ctx.result.text

    model = ScriptedModel(["bob", "ada"])
    router = RoutingAgent("chief", instructions="Name one.", model=model, on_route=choose)

    run = await network(agent("ada"), agent("bob"), router=router).run("Go.")

    assert (who(run), model.asked[0].offered) == (["bob"], [])
    assert "- ada" in model.asked[0].instructions


async def test_tools_of_its_own_work_before_it_decides() -> None:
    def weather() -> str:
        return "rain"

    model = ScriptedModel([call("weather"), pick("ada"), call("done")])
    router = RoutingAgent("chief", instructions="Choose.", tools=[weather], model=model)

    run = await network(agent("ada"), router=router).run("Go.")

    assert (who(run), len(run.router_calls)) == (["ada"], 2)


def test_a_tool_of_its_own_may_not_be_named_as_one_of_the_two() -> None:
    def done() -> str:
        return ""

    with pytest.raises(ToolNameTaken):
        RoutingAgent("chief", instructions="", tools=[done])


async def test_one_that_has_nobody_to_ask_does_not_run() -> None:
    router = RoutingAgent("chief", instructions="Choose.")

    with pytest.raises(NoModel, match="chief"):
        await network(agent("ada"), router=router).run("Go.")
