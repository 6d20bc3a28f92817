"""The engine's contract, on PostgreSQL, and behind a pooler that hands out any connection."""

import random
from collections.abc import Iterator

import psycopg
import pytest
from torture.postgres_load import MAKE_SCRATCH

from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.postgres.engine import open_server
from holdfast.engines.postgres.pool import Pool
from holdfast.engines.postgres.protocol import Wire, bind
from holdfast.engines.postgres.server import resolve
from holdfast.ground.events import EventBus
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.contracts.engine import EngineContract
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer

DISCARD = bind("discard all", {})


class AnyConnection(Pool):
    """Hands out any of its connections, which forgot all that was said to them."""

    def take(self, deadline: float) -> Wire:
        held = [super().take(deadline)]
        if self.in_use < 4:
            held.append(super().take(deadline))
        random.shuffle(held)
        wire = held.pop()
        for other in held:
            self.give(other)
        assert wire.exchange((DISCARD,)).failure() is None
        return wire


@pytest.fixture(scope="module")
def owner(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    """Connect to a database that the tests share, with the contract's table in it."""
    database = postgres_server.new_database(TEMPLATE)
    postgres_server.execute(*MAKE_SCRATCH, database=database)
    with psycopg.connect(postgres_server.url(database), autocommit=True) as connection:
        yield connection


@pytest.fixture
def url(postgres_server: PostgresServer, owner: psycopg.Connection) -> str:
    """Give the URL of that database, in which the table is empty."""
    owner.execute("delete from holdfast.scratch")
    return postgres_server.url(owner.info.dbname)


class TestOnPostgres(EngineContract):
    @pytest.fixture
    def engine(self, url: str) -> Iterator[PostgresEngine]:
        engine = PostgresEngine.open(url, clock=FrozenClock())
        yield engine.scoped(EVERYBODY)
        engine.close()


class TestBehindAPooler(EngineContract):
    @pytest.fixture
    def engine(self, url: str) -> Iterator[PostgresEngine]:
        target = resolve(url + "&prepare=0&pool=8")
        server, _ = open_server(target, clock=FrozenClock(), events=EventBus(), migrations=True)
        server.pool = AnyConnection(
            lambda: Wire(server.connect(), prepare=False), most=8, target=target.shown
        )
        engine = PostgresEngine(server, EVERYBODY)
        yield engine
        engine.close()
