"""What the server deletes and samples by itself."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.doors.http.app import make_app
from holdfast.ground.errors import CursorExpired
from holdfast.ground.scope import EVERYBODY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Save
from holdfast.testing.fakes import FrozenClock

DAY = 24 * 3600
WEEK = 7 * DAY


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

    make_app(hf, clock=clock).state.sweep()

    with pytest.raises(CursorExpired):
        hf.engine.feed(start).poll(0)
    kept = hf.engine.feed(between).poll(10)
    assert [change.type for change in kept] == ["store.created"]


def test_edits_of_the_last_day_stay_and_older_ones_go(hf: Holdfast, clock: FrozenClock) -> None:
    for workspace in ("default", "lab"):
        memories = hf.acting(workspace=workspace).memory_stores
        store = memories.create(name="n").id
        for number in range(2):
            save = Save(path="/a", content=str(number))
            memories.memories.apply(store, [save], edit_id=f"edit_{number}")
            clock.tick(DAY // 2 if number == 0 else 0)

    clock.tick(DAY // 4)
    make_app(hf, clock=clock).state.sweep()

    everybody = hf.engine.scoped(EVERYBODY)
    kept = everybody.all(_edit, "select workspace, id from store_edits order by workspace, id")
    assert kept == [("default", "edit_1"), ("lab", "edit_0"), ("lab", "edit_1")]


def _edit(*, workspace: str, id: str) -> tuple[str, str]:
    return workspace, id


def test_sign_ins_that_are_over_go(hf: Holdfast, clock: FrozenClock) -> None:
    state = make_app(hf, clock=clock).state
    key = hf.keys.create("laptop").secret
    assert key is not None
    state.sign_ins.begin(key)
    clock.tick(DAY // 2)
    kept = state.sign_ins.begin(key)
    assert kept is not None

    state.sweep()

    everybody = hf.engine.scoped(EVERYBODY)
    assert everybody.one(dict[str, int], "select count(*) as n from console_sessions") == {"n": 1}
    assert state.sign_ins.find(kept) is not None


def test_each_workspace_has_a_sample_of_the_day(hf: Holdfast, clock: FrozenClock) -> None:
    lab = hf.acting(workspace="lab")
    for handle in (hf, lab, lab):
        handle.memory_stores.create(name="n")
    store = hf.memory_stores.list().data[0]
    hf.memory_stores.memories.create(store.id, path="/a", content="a")

    for _ in range(2):
        make_app(hf, clock=clock).state.sweep()

    ours, theirs = hf.samples(), lab.samples()
    assert [(each.day, each.memories) for each in ours] == [(clock.now().date(), 1)]
    assert [(each.day, each.memories) for each in theirs] == [(clock.now().date(), 0)]
    assert ours[0].bytes > 0
