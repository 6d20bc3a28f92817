"""How many model loops are at work at once."""

import asyncio
from collections.abc import Callable

import pytest
from stepping import Stepping

from holdfast.ground.errors import InvalidInput
from holdfast.runtime import Context
from holdfast.runtime.concurrency import Slots
from holdfast.testing import call
from holdfast.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until *holds*, for a thousand turns of the loop at most."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError


async def test_at_most_so_many_are_taken_at_once() -> None:
    slots, at_once, most = Slots(3), 0, 0

    async def work() -> None:
        nonlocal at_once, most
        async with slots.taken():
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

    await asyncio.gather(*(work() for _ in range(20)))

    assert most == 3


async def test_first_come_first_served() -> None:
    slots, order = Slots(1), list[int]()

    async def work(number: int) -> None:
        async with slots.taken():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(10)))

    assert order == list(range(10))


async def test_one_that_gives_up_waiting_takes_no_slot() -> None:
    slots = Slots(1)

    async def work() -> None:
        async with slots.taken():
            pass

    async with asyncio.TaskGroup() as group:
        await slots.acquire()
        waiting = group.create_task(work())
        await until(lambda: slots.waiting == 1)
        waiting.cancel()
        await until(waiting.done)
        slots.release()
        await group.create_task(work())

    assert slots.waiting == 0


async def test_one_that_is_called_while_it_gives_up_hands_on() -> None:
    slots = Slots(1)

    async def work() -> str:
        async with slots.taken():
            return "done"

    await slots.acquire()
    first, second = asyncio.create_task(work()), asyncio.create_task(work())
    await until(lambda: slots.waiting == 2)
    slots.release()
    first.cancel()

    assert await second == "done"


async def test_narrowed_slots_are_also_slots_of_the_whole() -> None:
    whole = Slots(2)
    narrow, at_once, most = whole.narrowed(1), 0, 0

    async def work() -> None:
        nonlocal at_once, most
        async with narrow.taken():
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

    await whole.acquire()
    await asyncio.gather(*(work() for _ in range(5)))

    assert most == 1


async def test_a_waiting_parent_holds_no_slot() -> None:
    """A step whose tool runs a step goes on where there is one slot, also for two at once."""
    context = Context(clock=FrozenClock(), max_concurrency=1)

    async def delegate(name: str) -> str:
        """Delegate."""
        inner = Stepping([f"{name} is done."], context=context.copy())
        return await inner.executor.run()

    turn = [call("delegate", name="one"), call("delegate", name="two")]
    stepping = Stepping([turn, "Both."], tools=[delegate], context=context)

    assert await stepping.executor.run() == "Both."
    assert stepping.given == ["one is done.", "two is done."]


def test_they_serve_one_event_loop_after_another() -> None:
    slots = Slots(1)

    async def work() -> int:
        async def one() -> None:
            async with slots.taken():
                await asyncio.sleep(0)

        await asyncio.gather(one(), one())
        return slots.waiting

    assert [asyncio.run(work()), asyncio.run(work())] == [0, 0]


def test_there_must_be_one() -> None:
    with pytest.raises(InvalidInput):
        Slots(0)
