"""The contract of histories, on ours, on every engine and through a server."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Page
from holdfast.library.holdfast import Holdfast
from holdfast.memories.state.thread import ThreadTurn
from holdfast.memories.state.threads import Threads
from holdfast.runtime import EngineHistory, History, HistoryContext, InMemoryHistory
from holdfast.runtime.history import LOADED, LoadedThreads, asked, has_any
from holdfast.testing.contracts import HistoryContract
from holdfast.testing.contracts.history import made, said


class TestInMemory(HistoryContract):
    def make_history(self) -> History:
        return InMemoryHistory()


class OnAHandle(HistoryContract):
    @pytest.fixture(autouse=True)
    def handle(self, hf: Holdfast) -> None:
        self.hf = hf

    def make_history(self) -> History:
        return EngineHistory(self.hf)


class TestOnMemory(OnAHandle):
    @pytest.fixture
    def hf(self) -> Iterator[Holdfast]:
        with holdfast.open(":memory:") as hf:
            yield hf


class TestOnSQLite(OnAHandle):
    @pytest.fixture
    def hf(self, sqlite_file: Path) -> Iterator[Holdfast]:
        with holdfast.open(sqlite_file) as hf:
            yield hf


class TestOnPostgres(OnAHandle):
    @pytest.fixture
    def hf(self, postgres_url: str) -> Iterator[Holdfast]:
        with holdfast.open(postgres_url) as hf:
            yield hf


class TestOverHTTP(OnAHandle):
    @pytest.fixture
    def hf(self, remote: Holdfast) -> Holdfast:
        return remote


class Late:
    """A history of one method, which is awaitable and gives dicts."""

    async def get(self, ctx: HistoryContext) -> list[dict[str, object]]:
        del ctx
        return [dict(made().export())]


def test_a_history_may_have_one_method_alone() -> None:
    late: History = Late()
    ctx = HistoryContext(run_id="run_1", thread_id="thread_1")

    assert has_any(late)
    assert not has_any(object())
    assert asyncio.run(asked(late, "create_thread", ctx)) is None
    assert asyncio.run(asked(late, "get", ctx)) == [made().export()]


def test_without_a_thread_nothing_is_kept() -> None:
    ctx = HistoryContext(run_id="run_1")

    with pytest.raises(InvalidInput):
        InMemoryHistory().append_user_message(ctx, said())


def test_the_bus_of_a_history_is_its_engines_where_there_is_one(remote: Holdfast) -> None:
    with holdfast.open(":memory:") as hf:
        assert EngineHistory(hf).bus is hf.events
    assert EngineHistory(remote).bus is None


def test_the_event_loop_goes_on_while_a_turn_is_written(sqlite_file: Path) -> None:
    async def went_on() -> bool:
        with holdfast.open(sqlite_file) as hf:
            ctx = HistoryContext(run_id="run_1", thread_id="thread_1")
            writing = asyncio.ensure_future(EngineHistory(hf).append_results(ctx, [made()]))
            await asyncio.sleep(0)
            before = writing.done()
            await writing
            return not before

    assert asyncio.run(went_on())


class CountedThreads:
    """Threads that count the turns that are loaded from them."""

    def __init__(self, threads: Threads) -> None:
        self._threads, self.loaded = threads, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)

    def turns(self, *args: Any, **options: Any) -> Page[ThreadTurn]:
        page = self._threads.turns(*args, **options)
        self.loaded += len(page.data)
        return page


THREAD = "thread_1"


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


def test_a_turn_loads_what_is_new_in_its_thread(hf: Holdfast) -> None:
    loaded, threads = LoadedThreads(), cast("Any", CountedThreads(hf.threads))
    for turn in range(50):
        hf.threads.append(THREAD, [said(), made(turn)])
        assert loaded.results(threads, THREAD) == hf.threads.results(THREAD)

    threads.loaded = 0
    hf.threads.append(THREAD, [said(), made(50)])
    found = loaded.results(threads, THREAD)

    assert [each.index for each in found] == list(range(51))
    assert threads.loaded == 3
    assert found == hf.threads.results(THREAD)


CHANGES: list[Callable[[Holdfast], object]] = [
    lambda hf: hf.forget_agent("eve"),
    lambda hf: (hf.forget_agent("eve"), hf.threads.append(THREAD, [made(7), made(8)])),
    lambda hf: (hf.threads.pop(THREAD, "result"), hf.threads.append(THREAD, [made(7)])),
    lambda hf: hf.threads.pop(THREAD, "user"),
    lambda hf: (hf.threads.delete(THREAD), hf.threads.append(THREAD, [made(7), made(8)])),
    lambda hf: (hf.threads.delete(THREAD), hf.threads.append(THREAD, map(made, range(7)))),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_thread_is_loaded_anew_after_a_turn_of_it_was_removed(
    hf: Holdfast, change: Callable[[Holdfast], object]
) -> None:
    loaded = LoadedThreads()
    hf.threads.append(THREAD, [said(), made(0), made(1, agent="eve"), made(2)])
    loaded.results(hf.threads, THREAD)

    change(hf)

    assert loaded.results(hf.threads, THREAD) == hf.threads.results(THREAD)


def test_what_exceeds_the_room_for_loaded_threads_is_evicted(hf: Holdfast) -> None:
    loaded, threads = LoadedThreads(), cast("Any", CountedThreads(hf.threads))
    for number in range(3):
        large = made().replace(raw="x" * (LOADED // 2 - 10_000))
        hf.threads.append(f"thread_{number}", [said(), said(), large])
        loaded.results(threads, f"thread_{number}")

    threads.loaded = 0
    for number in (2, 1, 0):
        assert len(loaded.results(threads, f"thread_{number}")) == 1

    assert threads.loaded == 1 + 1 + 3
