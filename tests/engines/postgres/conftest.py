"""What the tests of the PostgreSQL engine are given."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace as Row

import psycopg
import pytest
from torture.postgres_load import MAKE_SCRATCH, make_own

from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.contracts.engine import SCRATCH
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import PostgresServer, running_postgres

Opened = Callable[[str], PostgresEngine]


@pytest.fixture
def opened(fresh_postgres_url: str) -> Iterator[Opened]:
    """Open this test's database, with more options, as often as it is called."""
    engines: list[PostgresEngine] = []

    def open(options: str = "") -> PostgresEngine:
        engines.append(PostgresEngine.open(fresh_postgres_url + options, clock=FrozenClock()))
        return engines[-1]

    yield open
    for engine in engines:
        engine.close()


@pytest.fixture
def admin(fresh_postgres_url: str) -> Iterator[psycopg.Connection]:
    """Give a connection of the login's own, which row-level security does not hold."""
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def with_scratch(opened: Opened, admin: psycopg.Connection) -> Opened:
    """Open this test's database with the contract's table in it, for upkeep's scope."""
    for statement in MAKE_SCRATCH:
        admin.execute(statement)
    return lambda options: opened(options).scoped(EVERYBODY)


@pytest.fixture
def engine(with_scratch: Opened) -> PostgresEngine:
    return with_scratch("")


@pytest.fixture
def sql(engine: PostgresEngine) -> Row:
    return engine.queries(SCRATCH)


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """Give this module a server that it may stop and start."""
    with running_postgres() as server:
        make_own(server)
        yield server
