"""Runs of networks and agents in `hf.runs`: their records, events, owners and control."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from runtime.calling.asked import Heard, model_of
from runtime.networks.played import agent, network, who

import holdfast
from holdfast import Holdfast, RunMemory
from holdfast.ground.errors import NotFound, RunFailed, RunTaken
from holdfast.memories.run.records.event import LIVE
from holdfast.memories.run.records.writer import RunOpening
from holdfast.runtime import (
    Agent,
    EngineHistory,
    InMemoryHistory,
    Session,
    ToolContext,
)
from holdfast.testing.scripted import call

pytestmark = pytest.mark.anyio


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as opened:
        yield opened


def keep(ctx: ToolContext) -> str:
    ctx.state.kv.set("topic", "billing")
    return "kept"


async def test_a_network_with_an_hf_is_a_run_like_any_other(hf: Holdfast) -> None:
    desk = network(agent("ada"), hf=hf)

    run = await desk.run("Go.", data={"city": "Oslo"}, thread_id="thread_1")

    record = hf.runs.retrieve(run.id)
    assert (record.kind, record.name, record.agent) == ("network", "desk", None)
    assert (record.status, record.reason, record.detail) == ("completed", "done", None)
    assert (record.thread_id, record.usage) == ("thread_1", run.usage)
    assert (record.fence, [each.id for each in hf.runs.list(kind="network")]) == (1, [run.id])


async def test_an_agent_with_an_hf_is_one_too(hf: Holdfast) -> None:
    ada = agent("ada", hf=hf)

    await ada.run("Go.", run_id="run_1")

    record = hf.runs.retrieve("run_1")
    assert (record.kind, record.name, record.agent) == ("agent", "ada", "ada")
    assert (record.status, record.reason, record.usage.requests) == ("completed", "done", 1)


async def test_an_hf_may_be_given_to_a_run(hf: Holdfast) -> None:
    run = await network(agent("ada")).run("Go.", hf=hf)
    await agent("bob").run("Go.", hf=hf, run_id="run_2")

    assert {each.id for each in hf.runs.list()} == {run.id, "run_2"}


async def test_a_history_in_an_engine_brings_its_hf(hf: Holdfast) -> None:
    history = EngineHistory(hf)

    run = await network(agent("ada"), history=history).run("Go.")
    await agent("bob", history=history).run("Go.", run_id="run_2")

    for id in (run.id, "run_2"):
        told = [each.type for each in hf.runs.follow(id)]
        assert (told[0], told[-1]) == ("run.started", "run.completed")
    record = hf.runs.retrieve(run.id)
    assert (record.extras["calls"], record.thread_id) == (1, run.thread_id)


async def test_turns_of_a_session_are_runs(hf: Holdfast) -> None:
    async with Session(agent("ada"), hf=hf, id="thread_1") as session:
        await session.send("Hi?")

    (record,) = hf.runs.list(thread="thread_1")
    assert (record.kind, record.agent, record.status) == ("session", "ada", "completed")


async def test_what_is_stored_of_a_run_is_what_was_told_without_deltas(hf: Holdfast) -> None:
    heard = Heard()
    ada = agent("ada", [[call("keep"), call("value_read", keys=["topic"])], "Kept."], tools=[keep])

    run = await network(ada, hf=hf).run("Go.", on_event=heard)

    told = [(e.seq, e.type, e.agent, e.call_id, e.data) for e in heard.events if e.type not in LIVE]
    kept = list(hf.runs.follow(run.id))
    stored = [(e.seq, e.type, e.agent, e.call_id, e.data) for e in kept]
    assert stored == told
    assert {"value.changed", "value.read", "tool.returned"} <= {type for _, type, *_ in stored}


async def test_a_failed_run_is_stored_as_it_ended(hf: Holdfast) -> None:
    desk = network(agent("ada"), agent("bob", [OSError("down")]), hf=hf)

    run = await desk.run("Go.", raises=False)

    record = hf.runs.retrieve(run.id)
    assert (record.status, record.reason) == ("failed", "model_error")
    assert record.error == {"name": "OSError", "message": "down"}


async def test_a_history_that_fails_at_the_end_is_in_the_record(hf: Holdfast) -> None:
    class Failing(InMemoryHistory):
        """A history that cannot store an end."""

        def end_run(self, ctx: Any, summary: object) -> None:
            raise OSError(f"{ctx.run_id} cannot be stored as {summary}")

    run = await network(agent("ada"), history=Failing(), hf=hf).run("Go.", raises=False)

    record = hf.runs.retrieve(run.id)
    assert (run.stop_reason, record.status, record.reason) == ("history", "failed", "history")


async def test_a_run_that_an_agent_starts_is_within_the_networks(hf: Holdfast) -> None:
    async def delegate(ctx: ToolContext) -> str:
        return (await agent("bob").run("Help.", network=ctx.network, run_id="run_2")).text

    ada = agent("ada", [call("delegate"), "Done."], tools=[delegate])

    run = await network(ada, hf=hf).run("Go.")

    assert hf.runs.retrieve("run_2").parent_id == run.id


async def stuck() -> str:
    await asyncio.Event().wait()
    return "never"


async def test_a_network_is_cancelled_through_its_record(hf: Holdfast) -> None:
    async def cancel(ctx: ToolContext) -> str:
        hf.runs.cancel(ctx.run_id, "enough")
        return await stuck()

    ada = agent("ada", [["One.", call("cancel")]], tools=[cancel])

    run = await network(ada, hf=hf).run("Go.")

    record = hf.runs.retrieve(run.id)
    assert (run.status, run.stop_detail, run.last and run.last.text) == (
        "cancelled",
        "enough",
        "One.",
    )
    assert (record.status, record.reason, record.detail) == ("cancelled", "cancelled", "enough")


async def test_an_agent_that_is_cancelled_through_its_record_returns(hf: Holdfast) -> None:
    async def cancel(ctx: ToolContext) -> str:
        hf.runs.cancel(ctx.run_id, "enough")
        return await stuck()

    ada = agent("ada", [["One.", call("cancel")]], tools=[cancel])

    result = await ada.run("Go.", hf=hf, run_id="run_1")

    record = hf.runs.retrieve("run_1")
    assert (result.stop_reason, result.text) == ("cancelled", "One.")
    assert (record.status, record.detail) == ("cancelled", "enough")


async def test_an_agent_at_work_is_steered_through_the_record(hf: Holdfast) -> None:
    reached: list[list[str]] = []

    def steer(ctx: ToolContext) -> str:
        reached.append(hf.runs.steer(ctx.run_id, "Be quick."))
        with pytest.raises(NotFound):
            hf.runs.steer(ctx.run_id, "And you.", step="bob")
        return "sent"

    ada = agent("ada", [call("steer"), "Done."], tools=[steer])

    await network(ada, agent("bob"), hf=hf).run("Go.")

    assert reached == [["ada"]]
    assert "Be quick." in model_of(ada).asked[1].text


async def test_a_run_that_has_an_owner_is_refused_before_anything_is_asked(hf: Holdfast) -> None:
    bob = agent("bob")

    async def again(ctx: ToolContext) -> str:
        with pytest.raises(RunTaken) as raised:
            await network(bob, hf=hf).run("Go.", run_id=ctx.run_id)
        return raised.value.run_id

    ada = agent("ada", [call("again"), "Done."], tools=[again])

    run = await network(ada, hf=hf).run("Go.", run_id="run_1")

    assert run.results[0].tool_calls[0].content == {"data": "run_1"}
    assert model_of(bob).asked == []
    assert (run.status, hf.runs.retrieve("run_1").name) == ("completed", "desk")


def thief(hf: Holdfast, **options: Any) -> Agent:
    """Return the agent ada with a tool that takes its run over, and one that waits."""

    def steal(ctx: ToolContext) -> str:
        opening = RunOpening(kind="network", name="other", take_over="always")
        hf.runs.open_run(RunMemory(run_id=ctx.run_id), opening)
        return "stolen"

    turns = [["One.", call("steal"), call("stuck")]]
    return agent("ada", turns, tools=[steal, stuck], **options)


async def test_a_network_that_was_taken_over_stops_and_writes_nothing(hf: Holdfast) -> None:
    heard, history = Heard(), InMemoryHistory()
    desk = network(thief(hf), hf=hf, history=history)

    with pytest.raises(RunFailed) as raised:
        await desk.run("Go.", run_id="run_1", thread_id="t", on_event=heard)

    assert raised.value.stop_reason == "taken_over"
    assert not [each for each in heard.types if each in ("run.failed", "run.cancelled")]
    record = hf.runs.retrieve("run_1")
    assert (record.status, record.name, record.fence) == ("running", "other", 2)
    assert [each.kind for each in history.turns("t")] == ["user"]


async def test_an_agent_that_was_taken_over_stops_and_writes_nothing(hf: Holdfast) -> None:
    result = await thief(hf).run("Go.", hf=hf, run_id="run_1", raises=False)

    assert result.stop_reason == "taken_over"
    assert (hf.runs.retrieve("run_1").status, hf.runs.retrieve("run_1").fence) == ("running", 2)


@pytest.mark.parametrize("kind", ["agent", "network"])
async def test_a_result_of_a_run_that_was_taken_over_unnoticed_does_not_reach_its_thread(
    hf: Holdfast, kind: str
) -> None:
    def steal(ctx: ToolContext) -> str:
        opening = RunOpening(kind="network", name="other", take_over="always")
        hf.runs.open_run(RunMemory(run_id=ctx.run_id), opening)
        return "stolen"

    ada = agent("ada", [call("steal"), "Done."], tools=[steal], history=EngineHistory(hf))
    given: dict[str, Any] = {"run_id": "run_1", "thread_id": "t"}

    if kind == "agent":
        result = await ada.run("Go.", raises=False, **given)
        assert result.stop_reason == "taken_over"
    else:
        with pytest.raises(RunFailed) as raised:
            await network(ada, hf=hf).run("Go.", **given)
        assert raised.value.stop_reason == "taken_over"

    assert [each.kind for each in hf.threads.turns("t")] == ["user"]
    record = hf.runs.retrieve("run_1")
    assert (record.status, record.name, record.fence) == ("running", "other", 2)


async def test_a_run_that_is_cancelled_while_it_is_acquired_gives_its_lease_back(
    hf: Holdfast,
) -> None:
    task = asyncio.create_task(network(agent("ada"), hf=hf).run("Go.", run_id="run_1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    again = await network(agent("ada")).run("Go.", run_id="run_2", hf=hf)

    assert who(again) == ["ada"]
    assert not [each for each in hf.runs.list() if each.status == "running"]
