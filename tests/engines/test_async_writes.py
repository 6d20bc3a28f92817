"""Awaited writes of an engine, and its sweep."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace as Row

import pytest
from msgspec.structs import replace

from holdfast.engines.async_writes import awaited
from holdfast.engines.base import Engine, Transaction, trim_changes
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import CursorExpired, Unavailable
from holdfast.testing.contracts.engine import SCRATCH, happened, make_scratch, putting
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


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def swept_engine(clock: FrozenClock) -> Iterator[Engine]:
    engine = SQLiteEngine.open(":memory:", clock=clock)
    yield engine
    engine.close()


def note(engine: Engine, clock: FrozenClock, times: int) -> None:
    event = replace(happened(), at=clock.now())

    engine.write(lambda tx: [tx.note(event) for _ in range(times)])


def kept(engine: Engine) -> int:
    return engine.one(Row, "select count(*) as n from changes where type <> 'feed.trimmed'").n


def test_changes_older_than_a_week_go_and_younger_ones_stay(
    swept_engine: Engine, clock: FrozenClock
):
    note(swept_engine, clock, 2500)
    clock.tick(timedelta(days=7).total_seconds())
    note(swept_engine, clock, 10)
    clock.tick()

    assert trim_changes(swept_engine, clock.now()) == 2500
    assert trim_changes(swept_engine, clock.now()) == 0
    assert kept(swept_engine) == 10


def test_the_oldest_beyond_the_most_kept_go(swept_engine: Engine, clock: FrozenClock):
    note(swept_engine, clock, 1200)

    assert trim_changes(swept_engine, clock.now(), most=100) == 1100
    assert trim_changes(swept_engine, clock.now(), most=100) == 0
    assert kept(swept_engine) == 100


def test_a_cursor_older_than_what_is_kept_is_expired_and_names_the_oldest(
    swept_engine: Engine, clock: FrozenClock
):
    start = swept_engine.feed()
    note(swept_engine, clock, 10)
    middle = swept_engine.feed().cursor
    note(swept_engine, clock, 5)
    trim_changes(swept_engine, clock.now(), most=5)

    with pytest.raises(CursorExpired) as caught:
        swept_engine.feed("chg_3")
    with pytest.raises(CursorExpired):
        start.poll()

    assert caught.value.oldest == middle
    assert len(swept_engine.feed(middle).poll()) == 5
    assert swept_engine.feed().poll() == []
