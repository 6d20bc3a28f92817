"""What the executors of one run share."""

import asyncio
from contextlib import aclosing
from typing import Any, cast

import pytest
from stepping import Stepping

import holdfast
from holdfast import RunMemory
from holdfast.ground.errors import InvalidInput, NotFound, WaitTimeout
from holdfast.runtime import Context
from holdfast.runtime.watch import BUFFER
from holdfast.testing import ScriptedModel, call
from holdfast.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


def test_a_run_has_a_memory_of_its_own_under_its_id() -> None:
    context = Context(run_id="run_1")

    assert context.memory.run_id == context.run_id == "run_1"
    assert Context().run_id != Context().run_id


def test_a_memory_that_is_given_names_the_run() -> None:
    memory = RunMemory(run_id="run_9")

    assert Context(memory=memory).run_id == "run_9"
    with pytest.raises(InvalidInput):
        Context(memory=memory, run_id="run_1")


def test_a_copy_starts_empty_but_for_what_it_inherits() -> None:
    context = Context()
    context.memory.set("shared:one", 1)
    context.memory.set("shared:two", 2)

    within = context.copy(inherit=["shared:two"])
    within.memory.set("shared:three", 3)

    assert [each.key for each in within.memory.list()] == ["shared:two", "shared:three"]
    assert not context.memory.has("shared:three")
    assert within.run_id not in (context.run_id, context.copy().run_id)


def test_a_copy_cannot_inherit_what_is_not_there() -> None:
    with pytest.raises(NotFound):
        Context().copy(inherit=["shared:one"])


async def test_a_copy_shares_model_slots_and_usage() -> None:
    context = Context(model=ScriptedModel(["Three."]), clock=FrozenClock())
    within = context.copy()
    stepping = Stepping(context=within, model=None)

    await stepping.executor.run()

    assert within.slots is context.slots
    assert context.usage == within.usage
    assert context.usage.requests == 1


async def test_waiting_for_a_key_ends_when_it_is_written() -> None:
    context = Context()
    waiting = asyncio.create_task(context.wait_for("shared:one", timeout=30))
    await asyncio.sleep(0)

    context.memory.set("shared:one", 1)

    assert (await waiting).value == 1


async def test_waiting_for_what_is_there_ends_at_once_unless_a_newer_is_wanted() -> None:
    context = Context()
    context.memory.set("shared:one", 1)

    assert (await context.wait_for("shared:one")).version == 1
    with pytest.raises(WaitTimeout) as raised:
        await context.wait_for("shared:one", after_version=1, timeout=0)
    assert (raised.value.key, raised.value.seconds) == ("shared:one", 0)


async def test_whoever_watches_sees_what_happens_to_entries_that_are_meant() -> None:
    context = Context()
    seen: list[Any] = []

    async def look_on() -> None:
        async for event in context.watch(key_prefix="shared:"):
            seen.append((event.type, event.data.get("key")))
            if len(seen) == 2:
                return

    looking = asyncio.create_task(look_on())
    await asyncio.sleep(0)
    context.memory.set("input:no", 0)
    await asyncio.to_thread(context.memory.set, "shared:one", 1)
    context.memory.delete("shared:one")
    await looking

    assert seen == [("run.entry_written", "shared:one"), ("run.entry_deleted", "shared:one")]


async def test_whoever_watches_too_slowly_is_told_how_much_was_missed() -> None:
    context = Context()
    watched = context.watch()
    first = asyncio.ensure_future(anext(watched))
    await asyncio.sleep(0)

    for number in range(BUFFER + 51):
        context.memory.set("shared:one", number)
    await first
    for _ in range(BUFFER - 1):
        await anext(watched)

    gap = await anext(watched)
    assert (gap.type, gap.data) == ("gap", {"missed": 51})
    context.memory.set("shared:one", "again")
    assert (await anext(watched)).data["version"] == BUFFER + 52
    await watched.aclose()


async def test_with_a_handle_the_run_is_shown_while_it_lasts() -> None:
    clock = FrozenClock()
    with holdfast.open(":memory:", clock=clock) as hf:
        context = Context(hf=hf, agent="pilot", run_id="run_1", clock=clock)
        states: list[str] = []

        def look() -> str:
            """Look."""
            states.append(hf.runs.retrieve("run_1").state)
            assert hf.runs.steer("run_1", "Only the big ones.") == ["count"]
            return "Ships."

        stepping = Stepping([call("look"), "Three."], context=context, tools=[look])
        await stepping.executor.run()

        record = hf.runs.retrieve("run_1")
        assert states == ["running"]
        assert (record.state, record.name, record.agent) == ("completed", "count", "pilot")
        assert "Only the big ones." in stepping.model.asked[1].text


@pytest.mark.parametrize(
    ("turn", "state"), [(OSError("no route"), "failed"), ("Three.", "completed")]
)
async def test_how_a_run_ended_is_shown(turn: Any, state: str) -> None:
    clock = FrozenClock()
    with holdfast.open(":memory:", clock=clock) as hf:
        context = Context(hf=hf, run_id="run_1", clock=clock)
        await Stepping([turn], context=context).events()

        assert hf.runs.retrieve("run_1").state == state


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 256, "x" * 256),
        ("x" * 257, "x" * 255 + "…"),
        ("", "default"),
        (" \n", "default"),
        ("a\0b", "a b"),
        ("a\ud800", "a?"),
    ],
)
async def test_whatever_an_agent_is_called_its_run_is_shown(text: str, shown: str) -> None:
    with holdfast.open(":memory:") as hf:
        context = Context(hf=hf, agent=text)

        assert await Stepping(["Three."], context=context).executor.run() == "Three."
        assert hf.runs.retrieve(context.run_id).agent == shown


async def test_a_title_that_is_too_long_to_be_shown_is_cut() -> None:
    with holdfast.open(":memory:") as hf:
        stepping = Stepping(["Three."], context=Context(hf=hf))
        stepping.step.id = "x" * 300

        assert await stepping.executor.run() == "Three."
        assert hf.runs.retrieve(stepping.context.run_id).name == "x" * 255 + "…"


async def test_a_run_that_nobody_looks_at_any_more_is_shown_as_cancelled() -> None:
    with holdfast.open(":memory:") as hf:
        stepping = Stepping(["Three."], context=Context(hf=hf))

        async with aclosing(stepping.executor.execute()) as events:
            await anext(events)

        assert hf.runs.retrieve(stepping.context.run_id).state == "cancelled"


async def test_a_run_whose_task_is_cancelled_is_shown_as_cancelled() -> None:
    begun = asyncio.Event()

    async def look() -> None:
        """Look."""
        begun.set()
        await asyncio.Event().wait()

    with holdfast.open(":memory:") as hf:
        stepping = Stepping([call("look")], context=Context(hf=hf), tools=[look])
        running = asyncio.create_task(stepping.executor.run())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert hf.runs.retrieve(stepping.context.run_id).state == "cancelled"


def test_a_profile_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match="alone or together"):
        Context(profile=cast("Any", "apart"))
