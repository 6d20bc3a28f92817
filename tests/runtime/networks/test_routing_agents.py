"""Routers that ask a model: the network's own, and those one makes."""

from collections.abc import Sequence
from typing import Any

import pytest
from runtime.calling.asked import Heard
from runtime.networks.played import agent, network, who

from holdfast.ground.errors import NoModel, ToolNameTaken
from holdfast.runtime import AgentHooks, Network, Route, RouterContext, RoutingAgent
from holdfast.testing.scripted import ScriptedModel, Turn, call

pytestmark = pytest.mark.anyio


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

    assert (run.stop_reason, run.calls) == ("router_error", 0)
    assert "mallory" in (run.stop_detail or "")


async def test_words_alone_end_the_run() -> None:
    ours, _ = desk(["I cannot say."])

    run = await ours.run("Go.")

    assert (run.stop_reason, run.stop_detail, run.calls) == ("no_agent", "I cannot say.", 0)


async def test_its_requests_have_a_bound() -> None:
    model = ScriptedModel(lambda _: call("look"))
    router = RoutingAgent("chief", instructions="Choose.", tools=[look], model=model)

    run = await network(agent("ada"), router=router).run("Go.", max_iter=2, raises=False)

    assert (run.stop_reason, len(model.asked)) == ("router_error", 6)


async def test_a_model_that_fails_it_ends_the_run() -> None:
    ours, _ = desk([OSError("down")])

    run = await ours.run("Go.", raises=False)

    assert run.stop_reason == "router_error"
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
