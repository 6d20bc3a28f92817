"""A primary of PostgreSQL that is lost: its synchronous standby has all that was acknowledged."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Thread
from types import SimpleNamespace as Row

import psycopg
import pytest
from torture.counts import counted
from torture.postgres_load import OWN, Load, make_own, opened, verify, wait_for

from holdfast.engines.base import Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.errors import Unavailable
from holdfast.ground.events import Event
from holdfast.testing.contracts.engine import SCRATCH, happened
from holdfast.testing.postgres import PostgresServer, running_postgres, server_folder

FAILOVERS = max(1, int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3")) // 50)
_WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep' and query "


class Pair:
    """A primary, and a standby that has each commit before it is acknowledged."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary, self.standby = primary, standby
        self.url = f"{primary.url(OWN)},{standby.folder}"

    def replicate(self) -> None:
        """Make the standby a copy of the primary, whose commits wait for it."""
        self.standby.follow(self.primary)
        self.standby.start()

    def fail_over(self) -> None:
        """Kill the primary, and make the standby the primary, with the other one as its standby."""
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
        self.replicate()

    def count(self, query: str) -> int:
        """Return how many rows *query* has on the primary."""
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            return len(connection.execute(query.encode()).fetchall())


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        one = stack.enter_context(running_postgres())
        two = PostgresServer(stack.enter_context(server_folder()))
        stack.callback(lambda: two.running and two.stop("immediate"))
        make_own(one)
        one.execute("alter system set synchronous_standby_names = '*'")
        one.stop()
        one.start()
        pair = Pair(one, two)
        pair.replicate()
        yield pair


def put(engine: PostgresEngine, key: str) -> Thread:
    """Start to write *key*."""
    sql = engine.queries(SCRATCH)

    def write() -> None:
        def work(tx: Transaction) -> None:
            tx.run(sql.put_new, key=key, number=1)
            tx.note(happened())

        engine.write(work)

    thread = Thread(target=write)
    thread.start()
    return thread


@pytest.mark.parametrize("act", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_commit_that_no_longer_waits_for_the_standby_is_not_acknowledged_yet(
    pair: Pair, act: str
) -> None:
    commits, settles = f"{_WAITING} = 'commit'", f"{_WAITING} like '%emit_message%'"
    with opened(pair.url) as engine:
        pair.standby.stop()
        write = put(engine, act)
        wait_for(lambda: pair.count(commits) == 1)
        pair.primary.execute(f"select {act}(pid) from ({commits}) waiting")
        wait_for(lambda: pair.count(settles) == 1 or not write.is_alive())
        assert write.is_alive()
        pair.standby.start()
        write.join()

        assert engine.one(Row, engine.queries(SCRATCH).get_number, key=act).number == 1


def test_a_url_of_standbys_alone_is_refused_with_the_reason(pair: Pair) -> None:
    with pytest.raises(Unavailable) as caught, opened(f"{pair.standby.url(OWN)},/nowhere"):
        pass

    assert caught.value.reason == "read_only"
    assert caught.value.message.endswith("accepts writes.")


@pytest.mark.timeout(120 + 30 * FAILOVERS)
def test_a_failover_under_load_loses_nothing_acknowledged(pair: Pair) -> None:
    events: list[Event] = []
    with opened(pair.url) as engine:
        engine.events.subscribe(events.append, {"engine.failed_over"})
        with Load(engine) as load:
            for _ in range(FAILOVERS):
                load.wait(100)
                load.outage(pair.fail_over)

    assert len(events) == FAILOVERS
    verify(pair.url)
    counted("failovers", FAILOVERS, writes=load.acknowledged, unknown=load.unknown)
