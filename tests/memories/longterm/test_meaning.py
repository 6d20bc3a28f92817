"""The contract of comparing by meaning, on each engine with each keeper of vectors."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contracts.longterm_vectors import LongTermMeaningContract

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.serving import Shared, new_workspace


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


class TestOnSQLite(LongTermMeaningContract):
    @pytest.fixture
    def provider(self) -> None:
        return None

    @pytest.fixture
    def hf(self, sqlite_file: Path, clock: FrozenClock) -> Iterator[Holdfast]:
        with holdfast.open(sqlite_file, clock=clock) as hf:
            yield hf


class TestInMemory(TestOnSQLite):
    @pytest.fixture
    def hf(self, clock: FrozenClock) -> Iterator[Holdfast]:
        with holdfast.open(":memory:", clock=clock) as hf:
            yield hf


class TestWithSqliteVec(TestOnSQLite):
    @pytest.fixture
    def provider(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return "sqlite-vec"


class TestWithChroma(TestOnSQLite):
    @pytest.fixture
    def provider(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return "chroma"


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> Iterator[Shared]:
    clock = FrozenClock()
    name = postgres_server.new_database(TEMPLATE)
    postgres_server.execute("create extension vector schema public", database=name)
    with holdfast.open(postgres_server.url(name), clock=clock) as hf:
        yield Shared(hf, clock)


class TestOnPostgres(LongTermMeaningContract):
    @pytest.fixture
    def provider(self) -> str:
        return "pgvector"

    @pytest.fixture
    def clock(self, shared: Shared) -> FrozenClock:
        return shared.clock

    @pytest.fixture
    def hf(self, shared: Shared) -> Holdfast:
        return shared.hf.acting(workspace=new_workspace())
