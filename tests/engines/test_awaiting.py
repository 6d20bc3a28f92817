import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace as Row

import pytest

from holdfast.engines.async_writes import awaited
from holdfast.engines.base import Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import Unavailable
from holdfast.testing.contracts.engine import SCRATCH, make_scratch, putting
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def engine() -> Iterator[SQLiteEngine]:
    engine = SQLiteEngine.open(":memory:", clock=FrozenClock())
    make_scratch(engine)
    yield engine
    engine.close()


@pytest.fixture
def sql(engine: SQLiteEngine) -> Row:
    return engine.queries(SCRATCH)


class Counting(asyncio.SelectorEventLoop):
    """A loop that counts how often another thread woke it."""

    wakes = 0

    def call_soon_threadsafe(self, *args: object, **options: object) -> asyncio.Handle:
        self.wakes += 1
        return super().call_soon_threadsafe(*args, **options)  # pyright: ignore[reportArgumentType] - handed on as it came


def test_a_whole_group_wakes_the_loop_once(engine: SQLiteEngine, sql: Row):
    go = threading.Event()
    loop = Counting()

    async def main() -> list[int]:
        first = asyncio.ensure_future(awaited(engine, lambda _: go.wait()))
        await asyncio.sleep(0)
        rest = [asyncio.ensure_future(awaited(engine, putting(sql, "a", n))) for n in range(100)]
        await asyncio.sleep(0)
        go.set()
        await first
        return await asyncio.gather(*rest)

    numbers = loop.run_until_complete(main())
    loop.close()

    assert len(set(numbers)) == 100
    assert loop.wakes <= 3


def test_a_cancelled_caller_withdraws_what_waits(engine: SQLiteEngine, sql: Row):
    go = threading.Event()

    async def main() -> None:
        first = asyncio.ensure_future(awaited(engine, lambda _: go.wait()))
        second = asyncio.ensure_future(awaited(engine, putting(sql, "a", 1)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        go.set()
        await first
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(main())
    engine.write(putting(sql, "b", 1))

    assert [row.key for row in engine.all(Row, sql.list)] == ["b"]


def test_a_loop_that_is_gone_does_not_trouble_the_writer(engine: SQLiteEngine, sql: Row):
    inside, go = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        inside.set()
        go.wait()
        tx.run(sql.put_number, key="a", number=1)

    async def main() -> None:
        task = asyncio.ensure_future(awaited(engine, work))
        await asyncio.to_thread(inside.wait)
        task.cancel()

    asyncio.run(main())
    go.set()
    engine.write(putting(sql, "b", 1))

    assert [row.key for row in engine.all(Row, sql.list)] == ["a", "b"]


def test_an_engine_that_is_closed_says_so_at_once(engine: SQLiteEngine, sql: Row):
    engine.close()

    with pytest.raises(Unavailable, match="closed"):
        asyncio.run(awaited(engine, putting(sql, "a", 1)))
