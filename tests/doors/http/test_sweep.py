"""What the server drops of the change feed by itself."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.doors.http.app import make_app
from holdfast.ground.errors import CursorExpired
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

WEEK = 7 * 24 * 3600


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=["sqlite", "postgres"])
def hf(request: pytest.FixtureRequest, clock: FrozenClock) -> Iterator[Holdfast]:
    sqlite = request.param == "sqlite"
    target = ":memory:" if sqlite else request.getfixturevalue("fresh_postgres_url")
    with holdfast.open(target, clock=clock) as hf:
        yield hf


def test_changes_of_the_last_week_stay_and_older_ones_go(hf: Holdfast, clock: FrozenClock) -> None:
    feed = hf.engine.feed()
    start = feed.cursor
    hf.memory_stores.create(name="old")
    between = feed.poll(10)[-1].cursor
    clock.tick(WEEK + 1)
    hf.memory_stores.create(name="new")

    make_app(hf, clock=clock).house.sweep()

    with pytest.raises(CursorExpired):
        hf.engine.feed(start).poll(0)
    kept = hf.engine.feed(between).poll(10)
    assert [change.type for change in kept] == ["store.created"]
