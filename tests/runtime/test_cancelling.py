"""Ending a run before its time: at once, keeping what is finished, leaving nothing behind."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from stepping import Stepping, names

from holdfast.ground.errors import RunCancelled
from holdfast.runtime import Context, LogUpdate
from holdfast.testing import call
from holdfast.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def nothing_is_left_on_the_loop() -> AsyncIterator[None]:
    yield
    await asyncio.sleep(0)
    # What runs the tests has tasks of its own.
    ours = [each for each in asyncio.all_tasks() if "TestRunner" not in repr(each.get_coro())]
    assert ours == []


class Blocking:
    """A model's answer, or a tool, that never comes to an end by itself."""

    def __init__(self) -> None:
        self.begun, self.stopped = asyncio.Event(), False

    async def __call__(self, *_: Any) -> str:
        """Wait for ever."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise
        return "never"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_in_flight_is_torn_down_and_the_cancellation_told(stream: bool) -> None:
    blocking = Blocking()
    context = Context(clock=FrozenClock(), stream=stream)
    stepping = Stepping(blocking, context=context)
    events: list[Any] = []

    async for event in stepping.executor.execute():
        events.append(event)
        if names([event]) == ["step_started"]:
            context.cancel("enough")

    assert names(events) == ["started", "step_started", "step_cancelled", "cancelled"]
    assert (events[2].cause, events[3].reason) == ("enough", "enough")
    assert stepping.step.state == "cancelled"


async def test_a_tool_in_flight_is_torn_down() -> None:
    blocking = Blocking()

    async def wait() -> str:
        """Wait."""
        return await blocking()

    stepping = Stepping([call("wait")], tools=[wait])
    running = asyncio.create_task(stepping.executor.run())
    await blocking.begun.wait()

    stepping.context.cancel("enough")

    with pytest.raises(RunCancelled, match="enough"):
        await running
    assert blocking.stopped


async def test_only_the_first_reason_counts() -> None:
    context = Context()

    context.cancel("one")
    context.cancel("two")

    assert context.cancelled == "one"


async def test_another_thread_may_cancel() -> None:
    blocking = Blocking()
    stepping = Stepping(blocking)
    running = asyncio.create_task(stepping.executor.run())
    await blocking.begun.wait()

    await asyncio.to_thread(stepping.context.cancel)

    with pytest.raises(RunCancelled):
        await running


async def test_an_executor_started_in_a_cancelled_run_starts_and_is_cancelled() -> None:
    stepping = Stepping([])
    stepping.context.cancel("enough")

    assert names(await stepping.events()) == ["started", "cancelled"]


async def test_cancelling_from_outside_goes_on_as_that() -> None:
    blocking = Blocking()
    stepping = Stepping(blocking)
    running = asyncio.create_task(stepping.executor.run())
    await blocking.begun.wait()

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert blocking.stopped
    assert stepping.step.state == "cancelled"
    assert stepping.context.cancelled is None


async def test_whoever_stops_looking_stops_the_work() -> None:
    blocking = Blocking()
    stepping = Stepping(blocking)

    async with aclosing(stepping.executor.execute()) as events:
        async for event in events:
            if names([event]) == ["step_started"]:
                await blocking.begun.wait()
                break

    assert blocking.stopped
    assert stepping.step.state == "cancelled"


async def test_what_was_finished_stays() -> None:
    first = Stepping(["Three."])
    await first.executor.run()
    blocking = Blocking()
    second = Stepping(blocking, context=first.context, step={})
    second.step.id = "other"
    running = asyncio.create_task(second.executor.run())
    await blocking.begun.wait()

    first.context.cancel()

    with pytest.raises(RunCancelled):
        await running
    assert first.context.memory.get_value("step:count") == "Three."


async def test_a_run_within_is_cancelled_with_its_parent_and_not_the_other_way() -> None:
    parent = Context()
    one, two = parent.copy(), parent.copy()

    one.cancel("one")
    parent.cancel("all")

    assert (one.cancelled, two.cancelled, parent.cancelled) == ("one", "all", "all")
    assert parent.copy().cancelled == "all"


async def test_a_tool_in_a_thread_has_time_to_end() -> None:
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> str:
        """Work."""
        begun.set()
        go.wait(30)
        done.set()
        return "done"

    async def patient(_: float) -> None:
        go.set()
        await asyncio.Event().wait()

    context = Context(clock=FrozenClock(), sleep=patient)
    stepping = Stepping([call("work")], tools=[work], context=context)
    running = asyncio.create_task(stepping.executor.run())
    await asyncio.to_thread(begun.wait, 30)

    context.cancel()

    with pytest.raises(RunCancelled):
        await running
    assert done.is_set()


async def test_a_tool_in_a_thread_that_does_not_end_is_left_behind_and_named() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> str:
        """Work."""
        begun.set()
        go.wait(30)
        return "done"

    async def impatient(_: float) -> None:
        pass

    context = Context(clock=FrozenClock(), sleep=impatient)
    stepping = Stepping([call("work")], tools=[work], context=context)
    events: list[Any] = []

    async for event in stepping.executor.execute():
        events.append(event)
        if names([event]) == ["tool_call_update"]:
            await asyncio.to_thread(begun.wait, 30)
            context.cancel()
    go.set()

    warnings = [each for each in events if isinstance(each, LogUpdate)]
    assert [each.severity for each in warnings] == ["warning"]
    assert "work" in warnings[0].content
    assert names(events)[-2:] == ["step_cancelled", "cancelled"]
