"""PostgreSQL that is stopped, killed or cancelled under load keeps what it acknowledged."""

import os
import random
import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest
from torture.counts import counted
from torture.postgres_load import OWN, Load, make_own, opened, verify

from holdfast.testing.postgres import PostgresServer, running_postgres

LIVES = int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3"))
STOPS = max(3, LIVES // 5)
CANCELLED = 20 * LIVES
_BACK_ENDS = "select pid from pg_stat_activity where application_name = 'holdfast'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        make_own(server)
        yield server


def stop_at_once(server: PostgresServer) -> None:
    server.stop("immediate")
    server.start()


def kill_all(server: PostgresServer) -> None:
    server.kill()
    server.start()


def kill_one(server: PostgresServer) -> None:
    """Kill a back end: the server ends all others, and recovers as after a crash."""
    with psycopg.connect(server.url(OWN), autocommit=True) as connection:
        back_ends = connection.execute(_BACK_ENDS).fetchall()
        os.kill(random.choice(back_ends)[0], signal.SIGKILL)


FAILURES: tuple[Callable[[PostgresServer], None], ...] = (stop_at_once, kill_all, kill_one)


@pytest.mark.timeout(60 + 10 * STOPS)
def test_a_server_that_crashes_under_load_loses_nothing_acknowledged(
    server: PostgresServer,
) -> None:
    with opened(server.url(OWN)) as engine, Load(engine) as load:
        for number in range(STOPS):
            load.wait(100)
            fail = FAILURES[number % len(FAILURES)]
            load.outage(lambda fail=fail: fail(server))

        assert engine.status().metrics["reconnects_total"] >= STOPS
    verify(server.url(OWN))
    counted("postgres stops", STOPS, writes=load.acknowledged, unknown=load.unknown)


@pytest.mark.timeout(60 + LIVES)
def test_back_ends_that_are_cancelled_or_ended_under_load_lose_nothing_acknowledged(
    server: PostgresServer,
) -> None:
    def cancel_some() -> None:
        with psycopg.connect(server.url(OWN), autocommit=True) as connection:
            for _ in range(CANCELLED):
                load.wait(5)
                pids = connection.execute(_BACK_ENDS).fetchall()
                act = random.choice(("pg_cancel_backend", "pg_terminate_backend"))
                connection.execute(f"select {act}(%s)".encode(), random.choice(pids))

    with opened(server.url(OWN)) as engine, Load(engine) as load:
        load.outage(cancel_some)

    counted("cancelled back ends", CANCELLED, writes=load.acknowledged, unknown=load.unknown)
