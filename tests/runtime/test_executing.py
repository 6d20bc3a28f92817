"""Executing something: who is told, in which order, and of what."""

import asyncio
from typing import Any

import pytest
from stepping import Stepping, names

from holdfast.ground.errors import InvalidInput
from holdfast.runtime import Context, LogUpdate, executor
from holdfast.runtime.events import BOUND
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.testing import call
from holdfast.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


class Work:
    """An executor that tells *lines* lines, and writes to the run's memory."""

    name, title = "work", "Work"

    def __init__(self, context: Context, lines: int = 1) -> None:
        self.context, self.lines, self.told = context, lines, 0

    async def perform(self) -> None:
        """Tell, then write."""
        for number in range(self.lines):
            await self.context.tell(LogUpdate(severity="info", content=str(number)))
            self.told += 1
        self.context.memory.set("shared:lines", self.lines)

    def ending(self) -> ExecutionOutcome:
        """Return how many it told."""
        return ExecutionOutcome(state="completed", result=self.told)


async def test_the_run_is_told_first_and_last_and_what_is_written_between() -> None:
    work = Work(Context(run_id="run_1"))

    told = [event async for event in executor.events(work)]

    assert names(told) == ["started", "log_update", "memory_update", "completed"]
    update: Any = told[2]
    assert (update.key, update.kind, update.value_bytes) == ("shared:lines", "shared", 1)


async def test_only_the_outermost_of_nested_executors_tells_of_the_run() -> None:
    context = Context(clock=FrozenClock())

    async def nested() -> int:
        """Run another step of the same run."""
        await executor.run(Work(context))
        within = context.copy()
        await executor.run(Work(within))
        return len([event async for event in executor.events(Work(context, 2))])

    stepping = Stepping([call("nested"), "Three."], context=context, tools=[nested])

    told = await stepping.events()

    assert names(told).count("started") == names(told).count("completed") == 1
    assert len([each for each in told if isinstance(each, LogUpdate)]) == 2
    assert len({each.run_id for each in told}) == 2


async def test_a_run_of_its_own_within_another_tells_of_itself() -> None:
    async def nested() -> list[str]:
        """Run something else."""
        return names([event async for event in executor.events(Work(Context()))])

    stepping = Stepping([call("nested"), "Three."], tools=[nested])

    await stepping.executor.run()

    assert stepping.given[0][0] == "started"
    assert stepping.given[0][-1] == "completed"


async def test_whoever_tells_faster_than_is_looked_waits() -> None:
    work = Work(Context(), lines=3 * BOUND)
    events = executor.events(work)

    await anext(events)
    for _ in range(2 * BOUND):
        await asyncio.sleep(0)
    waited_at = work.told
    told = [event async for event in events]

    assert waited_at <= BOUND + 1
    assert [each.seq for each in told] == list(range(2, 3 * BOUND + 4))


async def test_what_parallel_parts_tell_comes_numbered_in_its_order() -> None:
    class Together(Work):
        async def perform(self) -> None:
            await asyncio.gather(*(Work(self.context, BOUND).perform() for _ in range(4)))

    told = [event async for event in executor.events(Together(Context()))]

    assert [each.seq for each in told] == list(range(1, len(told) + 1))
    assert len([each for each in told if isinstance(each, LogUpdate)]) == 4 * BOUND


async def test_two_executed_side_by_side_are_told_to_those_who_look_at_each() -> None:
    context = Context()

    async def looked_at(lines: int) -> int:
        told = [event async for event in executor.events(Work(context, lines))]
        return len([each for each in told if isinstance(each, LogUpdate)])

    assert await asyncio.gather(looked_at(3), looked_at(5)) == [3, 5]


async def test_run_returns_the_result() -> None:
    assert await executor.run(Work(Context(), 3)) == 3


async def test_run_sync_is_refused_on_an_event_loop() -> None:
    with pytest.raises(InvalidInput, match="event loop"):
        executor.run_sync(Work(Context()))


def test_run_sync_runs_without_one() -> None:
    assert executor.run_sync(Work(Context(), 3)) == 3
