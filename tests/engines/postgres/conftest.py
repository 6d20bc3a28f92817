"""What the tests of the PostgreSQL engine are given."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace as Row
from typing import LiteralString

import psycopg
import pytest

from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.contracts.engine import SCRATCH
from holdfast.testing.fakes import FrozenClock

MAKE_SCRATCH: tuple[LiteralString, ...] = (
    """
    create table holdfast.scratch (
        key text collate "C" primary key,
        number bigint,
        real double precision,
        text text collate "C",
        bytes bytea
    )
    """,
    "grant select, insert, update, delete on holdfast.scratch to holdfast_app",
)


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Callable[..., PostgresEngine]]:
    """Open the same database again, as often as it is called."""
    engines: list[PostgresEngine] = []

    def open(options: str = "") -> PostgresEngine:
        engines.append(PostgresEngine.open(postgres_url + options, clock=FrozenClock()))
        return engines[-1]

    yield open
    for engine in engines:
        engine.close()


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection]:
    """Give a connection of the login's own, which row-level security does not hold."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def scratch(admin: psycopg.Connection) -> None:
    """Make the table that the contract plays with."""
    for statement in MAKE_SCRATCH:
        admin.execute(statement)


@pytest.fixture
def engine(opened: Callable[..., PostgresEngine], scratch: None) -> PostgresEngine:
    return opened().scoped(EVERYBODY)


@pytest.fixture
def sql(engine: PostgresEngine) -> Row:
    return engine.queries(SCRATCH)
