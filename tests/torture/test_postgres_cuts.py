"""A connection to PostgreSQL cut at each byte of a commit: the outcome is as it is reported."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace as Row

import psycopg
import pytest
from proxied import Direction, Proxy, proxied
from torture.counts import counted
from torture.postgres_load import OWN, make_own, opened, wait_for

from holdfast.engines.base import Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.errors import Unavailable
from holdfast.testing.contracts.engine import SCRATCH, happened
from holdfast.testing.postgres import PostgresServer, running_postgres

EVERY = int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3")) >= 50
STEPS: dict[Direction, int] = {"to server": 97, "to client": 29}
"""Bytes from one cut to the next, unless each byte is cut."""
STATEMENTS: dict[str, Callable[[Transaction, Row], object]] = {
    "noted": lambda tx, sql: (tx.one(Row, sql.add, key="a"), tx.note(happened())),
    "not noted": lambda tx, sql: tx.one(Row, sql.add, key="a"),
    "in one trip": lambda tx, sql: (tx.send(sql.add, key="a"), tx.note(happened())),
    "in one trip, not noted": lambda tx, sql: tx.send(sql.add, key="a"),
}
"""What a write does before its commit, by its name; each adds one."""
_BUSY = """
select count(*) from pg_stat_activity where application_name = 'holdfast' and state <> 'idle'
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        make_own(server)
        yield server


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with proxied(server) as proxy:
        yield proxy


@pytest.fixture
def engine(proxy: Proxy) -> Iterator[PostgresEngine]:
    with opened(f"postgresql://postgres@127.0.0.1:{proxy.port}/{OWN}?pool=1") as engine:
        yield engine


@pytest.fixture
def admin(server: PostgresServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url(OWN), autocommit=True) as connection:
        yield connection


def number_of(admin: psycopg.Connection, query: str) -> int:
    row = admin.execute(query.encode()).fetchone()
    return row[0] if row else 0


def total(admin: psycopg.Connection) -> int:
    """Return how many writes were committed, once none is under way."""
    wait_for(lambda: number_of(admin, _BUSY) == 0)
    return number_of(admin, "select number from holdfast.scratch where key = 'a'")


@pytest.mark.timeout(1800 if EVERY else 60)
@pytest.mark.parametrize("warm", [True, False], ids=["prepared", "unprepared"])
@pytest.mark.parametrize("direction", ["to server", "to client"])
@pytest.mark.parametrize("kind", STATEMENTS)
def test_a_commit_cut_at_any_byte_is_what_it_is_reported_to_be(
    engine: PostgresEngine,
    proxy: Proxy,
    admin: psycopg.Connection,
    kind: str,
    direction: Direction,
    *,
    warm: bool,
) -> None:
    sql, outcomes = engine.queries(SCRATCH), {"written": 0, "unknown": 0, "refused": 0}
    for position in count(0, 1 if EVERY else STEPS[direction]):
        runs: list[int] = []

        def work(tx: Transaction, position: int = position, runs: list[int] = runs) -> None:
            STATEMENTS[kind](tx, sql)
            if not runs:
                proxy.cut(direction, position)
            runs.append(1)

        if warm:
            engine.write(lambda tx: STATEMENTS[kind](tx, sql))
        before = total(admin)
        outcome, possible = "written", {before + 1}
        try:
            engine.write(work)
        except Unavailable as error:
            unknown = error.written is None
            outcome = "unknown" if unknown else "refused"
            possible = {before, before + 1} if unknown else {before}
        if proxy.cancel():
            break
        outcomes[outcome] += 1
        assert total(admin) in possible
        assert engine.one(Row, sql.get_number, key="a").number == total(admin)

    if kind == "noted":
        assert outcomes["unknown"] == 0
        assert outcomes["written"] > 0
    assert sum(outcomes.values()) > 0
    counted("cut connections", sum(outcomes.values()), **outcomes)
