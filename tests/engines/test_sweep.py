from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace as Row

import pytest
from msgspec.structs import replace

from holdfast.engines.base import Engine, trim_changes
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import CursorExpired
from holdfast.testing.contracts.engine import happened
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def engine(clock: FrozenClock) -> Iterator[Engine]:
    engine = SQLiteEngine.open(":memory:", clock=clock)
    yield engine
    engine.close()


def note(engine: Engine, clock: FrozenClock, times: int) -> None:
    event = replace(happened(), at=clock.now())

    engine.write(lambda tx: [tx.note(event) for _ in range(times)])


def kept(engine: Engine) -> int:
    return engine.one(Row, "select count(*) as n from changes where type <> 'feed.trimmed'").n


def test_changes_older_than_a_week_go_and_younger_ones_stay(engine: Engine, clock: FrozenClock):
    note(engine, clock, 2500)
    clock.tick(timedelta(days=7).total_seconds())
    note(engine, clock, 10)
    clock.tick()

    assert trim_changes(engine, clock.now()) == 2500
    assert trim_changes(engine, clock.now()) == 0
    assert kept(engine) == 10


def test_the_oldest_beyond_the_most_kept_go(engine: Engine, clock: FrozenClock):
    note(engine, clock, 1200)

    assert trim_changes(engine, clock.now(), most=100) == 1100
    assert trim_changes(engine, clock.now(), most=100) == 0
    assert kept(engine) == 100


def test_a_cursor_older_than_what_is_kept_is_expired_and_names_the_oldest(
    engine: Engine, clock: FrozenClock
):
    start = engine.feed()
    note(engine, clock, 10)
    middle = engine.feed().cursor
    note(engine, clock, 5)
    trim_changes(engine, clock.now(), most=5)

    with pytest.raises(CursorExpired) as caught:
        engine.feed("chg_3")
    with pytest.raises(CursorExpired):
        start.poll()

    assert caught.value.oldest == middle
    assert len(engine.feed(middle).poll()) == 5
    assert engine.feed().poll() == []
