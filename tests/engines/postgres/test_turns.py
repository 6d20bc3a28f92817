"""Waiting for a turn: deadlines, withdrawal, back-pressure, closing, and a fork."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from time import monotonic
from types import SimpleNamespace as Row

import psycopg
import pytest

from holdfast.engines.base import Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.postgres.pool import MOST_WAITING, Pool
from holdfast.engines.postgres.protocol import Wire
from holdfast.ground.errors import EngineFault, Unavailable

Opened = Callable[[str], PostgresEngine]


class Blocked:
    """The only connection of an engine, in use until `let_go`."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.begun, self._may_end = threading.Event(), threading.Event()
        self.future = engine.submit(self._work)
        assert self.begun.wait(60)

    def _work(self, _: Transaction) -> str:
        self.begun.set()
        self._may_end.wait(60)
        return "ended"

    def let_go(self) -> None:
        self._may_end.set()


@pytest.fixture
def narrow(with_scratch: Opened) -> PostgresEngine:
    """Give an engine with one connection."""
    return with_scratch("&pool=1")


@pytest.fixture
def blocked(narrow: PostgresEngine) -> Iterator[Blocked]:
    blocked = Blocked(narrow)
    yield blocked
    blocked.let_go()


def putting(narrow: PostgresEngine, ran: list[str], key: str) -> Callable[[Transaction], None]:
    sql = narrow.queries("holdfast.testing.contracts.scratch")

    def work(tx: Transaction) -> None:
        ran.append(key)
        tx.run(sql.put_number, key=key, number=1)

    return work


def test_a_write_whose_turn_does_not_come_in_time_never_runs(
    narrow: PostgresEngine, blocked: Blocked
) -> None:
    ran: list[str] = []

    with pytest.raises(Unavailable) as caught:
        narrow.write(putting(narrow, ran, "a"), timeout=0.05)
    late = narrow.submit(putting(narrow, ran, "b"), timeout=0.0)
    blocked.let_go()

    assert (caught.value.reason, caught.value.written) == ("timeout", False)
    error = late.exception(60)
    assert isinstance(error, Unavailable)
    assert error.reason == "timeout"
    assert ran == []


def test_a_running_write_is_waited_for_whatever_the_deadline_says(
    narrow: PostgresEngine, sql: Row
) -> None:
    def work(tx: Transaction) -> int:
        tx.first(Row, "select pg_sleep(1.1)")
        return tx.one(Row, sql.add, key="a").number

    assert narrow.write(work, timeout=1) == 1


def test_a_connection_that_is_never_free_is_busy(fresh_postgres_url: str) -> None:
    pool = Pool(
        lambda: Wire(psycopg.connect(fresh_postgres_url, autocommit=True), prepare=True),
        most=1,
        target="here",
        patience=0.05,
    )
    wire = pool.take(monotonic() + 60)

    with pytest.raises(Unavailable) as caught:
        pool.take(monotonic() + 60)
    pool.give(wire)

    assert (caught.value.reason, caught.value.retry_after) == ("busy", 1.0)
    assert pool.take(monotonic() + 60) is wire
    wire.close()


def test_a_cancelled_write_never_runs(narrow: PostgresEngine, blocked: Blocked) -> None:
    ran: list[str] = []
    future = narrow.submit(putting(narrow, ran, "a"))
    after = narrow.submit(putting(narrow, ran, "b"))

    assert future.cancel()
    blocked.let_go()
    after.result(60)

    with pytest.raises(CancelledError):
        future.result()
    assert ran == ["b"]


def test_one_write_too_many_is_refused_at_once(narrow: PostgresEngine, blocked: Blocked) -> None:
    waiting = [narrow.submit(lambda _: None) for _ in range(MOST_WAITING)]

    with pytest.raises(Unavailable) as caught:
        narrow.submit(lambda _: None)
    blocked.let_go()

    assert (caught.value.reason, caught.value.retry_after) == ("overloaded", 0.1)
    assert {future.result(60) for future in waiting} == {None}


def test_closing_writes_what_waits(narrow: PostgresEngine, blocked: Blocked) -> None:
    ran: list[str] = []
    futures = [narrow.submit(putting(narrow, ran, f"k{number}")) for number in range(20)]

    blocked.let_go()
    narrow.close()

    assert [future.exception(0) for future in futures] == [None] * 20
    assert len(ran) == 20


def test_closing_refuses_what_does_not_get_its_turn(
    narrow: PostgresEngine, blocked: Blocked
) -> None:
    ran: list[str] = []
    future = narrow.submit(putting(narrow, ran, "a"))

    narrow.close(timeout=0.05)

    error = future.exception(60)
    assert isinstance(error, Unavailable)
    assert (error.reason, error.written, ran) == ("closed", False, [])
    assert not blocked.future.done()


def test_reading_inside_work_is_a_fault_at_once(narrow: PostgresEngine) -> None:
    with pytest.raises(EngineFault):
        narrow.write(lambda _: narrow.first(Row, "select 1 as one"))
    with pytest.raises(EngineFault):
        narrow.read(lambda _: narrow.first(Row, "select 1 as one"))


def test_both_sides_of_a_fork_go_on(with_scratch: Opened, sql: Row) -> None:
    engine = with_scratch("")
    stop = threading.Event()
    counts: list[int] = []

    def write() -> None:
        while not stop.is_set():
            counts.append(engine.write(lambda tx: tx.one(Row, sql.add, key="parent").number))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(counts) < 50:
        stop.wait(0.001)

    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(20):
                engine.write(lambda tx: tx.one(Row, sql.add, key="child"))
            submitted = engine.submit(lambda tx: tx.one(Row, sql.add, key="child").number)
            code = 0 if submitted.result(60) == 21 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    before = len(counts)
    while len(counts) < before + 50:
        stop.wait(0.001)
    stop.set()
    for thread in threads:
        thread.join()

    assert os.waitstatus_to_exitcode(status) == 0
    assert engine.one(Row, sql.get_number, key="child").number == 21
    assert engine.one(Row, sql.get_number, key="parent").number == len(counts)
    assert sorted(counts) == list(range(1, len(counts) + 1))
