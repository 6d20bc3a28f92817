"""The contract of histories, on ours, on every engine and through a server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import EngineHistory, History, HistoryContext, InMemoryHistory
from holdfast.runtime.history import asked, has_any
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
