"""Writes of a kin that wait together: one transaction, an outcome for each."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import SimpleNamespace as Row
from typing import Any

import pytest
from psycopg import Connection

from holdfast.engines.async_writes import awaited
from holdfast.engines.base import BatchedWork, Kin, Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.postgres.batches import MOST_OF_A_KIN
from holdfast.ground.errors import EngineFault, Unavailable
from holdfast.ground.scope import Scope
from holdfast.testing.contracts.engine import Wanted

Opened = Callable[[str], PostgresEngine]
Item = tuple[str, int]


class Puts:
    """Puts of numbers under keys; they record their batches, and the first waits for `go`."""

    def __init__(self, engine: PostgresEngine, sql: Row) -> None:
        self.engine, self.sql = engine, sql
        self.batches: list[list[Item]] = []
        self.begun, self.go = threading.Event(), threading.Event()
        self.lost: Callable[[int], None] | None = None

    def put(self, key: str, number: int, *, act: str = "put") -> BatchedWork[Item, int]:
        return BatchedWork(Kin("scratch", "a", act), (key, number), self.work)

    def work(self, tx: Transaction, items: Sequence[Item]) -> list[int | Exception]:
        self.batches.append(list(items))
        self.begun.set()
        self.go.wait(60)
        results: list[int | Exception] = [Wanted() if number < 0 else number for _, number in items]
        for key, number in items:
            if number >= 0:
                tx.run(self.sql.put_number, key=key, number=number)
            if number >= 1000:
                raise Wanted
        if self.lost is not None and len(items) > 1:
            self.lost(tx.one(Row, "select pg_backend_pid() as pid").pid)
        return results

    def behind(self, make: Callable[["Puts"], list["Future[Any]"]]) -> list["Future[Any]"]:
        """Return the futures of *make*, whose writes wait while one is under way."""
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(self.engine.write, self.put("first", 0))
            assert self.begun.wait(60)
            waiting = make(self)
            self.go.set()
            first.result(60)
            for each in waiting:
                if not each.cancelled():
                    each.exception(60)
        return waiting

    def waits(self, count: int) -> None:
        """Wait until *count* writes are queued."""
        pause = threading.Event()
        while self.engine.status().metrics["queue"] < count:
            pause.wait(0.001)

    def kept(self) -> dict[str, int]:
        rows = self.engine.all(Row, self.sql.list)
        return {row.key: row.number for row in rows if row.key != "first"}


@pytest.fixture
def puts(engine: PostgresEngine, sql: Row) -> Puts:
    return Puts(engine, sql)


def submitted(
    works: Callable[[Puts], list[BatchedWork[Item, int]]],
) -> Callable[[Puts], list["Future[int]"]]:
    return lambda puts: [puts.engine.submit(work) for work in works(puts)]


def test_waiting_writes_of_a_kin_are_one_transaction(puts: Puts) -> None:
    futures = puts.behind(submitted(lambda puts: [puts.put(f"{n}", n) for n in range(50)]))

    assert [future.result(60) for future in futures] == list(range(50))
    assert [len(batch) for batch in puts.batches] == [1, 50]
    assert puts.kept() == {f"{n}": n for n in range(50)}
    metrics = puts.engine.status().metrics
    assert (metrics['writes_total{outcome="ok"}'], metrics["groups_total"]) == (51, 2)


def test_the_threads_of_a_kin_wait_and_one_of_them_leads(puts: Puts) -> None:
    with ThreadPoolExecutor(40) as pool:

        def wait(puts: Puts) -> list["Future[int]"]:
            works = [puts.put(f"{n}", n) for n in range(40)]
            futures = [pool.submit(puts.engine.write, work) for work in works]
            puts.waits(40)
            return futures

        futures = puts.behind(wait)

    assert [future.result(60) for future in futures] == list(range(40))
    assert [len(batch) for batch in puts.batches] == [1, 40]


def test_a_batch_ends_after_64_writes(puts: Puts) -> None:
    count = 2 * MOST_OF_A_KIN + 9
    puts.behind(submitted(lambda puts: [puts.put(f"{n}", n) for n in range(count)]))

    assert [len(batch) for batch in puts.batches] == [1, MOST_OF_A_KIN, MOST_OF_A_KIN, 9]
    assert len(puts.kept()) == count


def test_only_equal_kins_of_one_owner_are_brought_together(puts: Puts) -> None:
    other = puts.engine.scoped(Scope(workspace="*", agent="*", user="ada"))

    def several(puts: Puts) -> list["Future[int]"]:
        return [
            puts.engine.submit(puts.put("a", 1)),
            puts.engine.submit(puts.put("b", 2, act="other")),
            other.submit(puts.put("c", 3)),
        ]

    puts.behind(several)

    assert [len(batch) for batch in puts.batches] == [1] * 4
    assert puts.kept() == {"a": 1, "b": 2, "c": 3}


def test_a_refusal_in_a_batch_is_its_own_alone(puts: Puts) -> None:
    a, b, c = puts.behind(
        submitted(lambda puts: [puts.put("a", 1), puts.put("b", -1), puts.put("c", 3)])
    )

    assert (a.result(60), c.result(60)) == (1, 3)
    assert isinstance(b.exception(60), Wanted)
    assert [len(batch) for batch in puts.batches] == [1, 3]
    assert puts.kept() == {"a": 1, "c": 3}


def test_a_batch_that_raises_runs_each_alone(puts: Puts) -> None:
    a, b, c = puts.behind(
        submitted(lambda puts: [puts.put("a", 1), puts.put("b", 1000), puts.put("c", 3)])
    )

    assert (a.result(60), c.result(60)) == (1, 3)
    assert isinstance(b.exception(60), Wanted)
    assert [len(batch) for batch in puts.batches] == [1, 3, 1, 1, 1]
    assert puts.kept() == {"a": 1, "c": 3}


def test_a_batch_that_gives_too_few_results_fails_each_of_its_writes(puts: Puts) -> None:
    kin = Kin("scratch", "a", "put")
    wrong: BatchedWork[Item, int] = BatchedWork(
        kin, ("wrong", 1), lambda _tx, items: [0] * (len(items) + 1)
    )

    futures = puts.behind(lambda puts: [puts.engine.submit(wrong) for _ in range(3)])

    assert all(isinstance(each.exception(60), EngineFault | ValueError) for each in futures)
    assert puts.kept() == {}


def test_a_connection_lost_before_the_commit_repeats_the_batch(
    puts: Puts, admin: Connection
) -> None:
    killed: list[int] = []

    def lose(pid: int) -> None:
        if not killed:
            killed.append(pid)
            admin.execute("select pg_terminate_backend(%s, 60000)", [pid])

    puts.lost = lose
    futures = puts.behind(submitted(lambda puts: [puts.put(f"{n}", n) for n in range(3)]))

    assert [future.result(60) for future in futures] == [0, 1, 2]
    assert [len(batch) for batch in puts.batches] == [1, 3, 3]
    assert killed


def test_a_write_whose_turn_does_not_come_in_time_never_runs(puts: Puts) -> None:
    late: list[BaseException | None] = []

    def wait(puts: Puts) -> list["Future[int]"]:
        try:
            puts.engine.write(puts.put("late", 1), timeout=0.05)
        except Unavailable as error:
            late.append(error)
        return [
            puts.engine.submit(puts.put("late too", 1), timeout=0.0),
            puts.engine.submit(puts.put("b", 2)),
        ]

    late_too, b = puts.behind(wait)

    for error in (*late, late_too.exception(60)):
        assert isinstance(error, Unavailable)
        assert (error.reason, error.written) == ("timeout", False)
    assert (len(late), b.result(60)) == (1, 2)
    assert puts.kept() == {"b": 2}


def test_a_cancelled_write_never_runs(puts: Puts) -> None:
    def wait(puts: Puts) -> list["Future[int]"]:
        futures = [puts.engine.submit(puts.put(f"{n}", n)) for n in range(3)]
        assert futures[1].cancel()
        return futures

    _, cancelled, last = puts.behind(wait)

    assert last.result(60) == 2
    with pytest.raises(CancelledError):
        cancelled.result(60)
    assert puts.kept() == {"0": 0, "2": 2}


def test_a_loop_waits_for_writes_of_a_kin(puts: Puts) -> None:
    async def all() -> list[int]:
        return await asyncio.gather(*(awaited(puts.engine, puts.put(f"{n}", n)) for n in range(30)))

    puts.go.set()

    assert asyncio.run(all()) == list(range(30))
    assert puts.kept() == {f"{n}": n for n in range(30)}


def test_a_closed_engine_refuses_writes_of_a_kin(puts: Puts) -> None:
    puts.engine.close()

    with pytest.raises(Unavailable) as caught:
        puts.engine.write(puts.put("a", 1))
    assert (caught.value.reason, caught.value.written) == ("closed", False)
    with pytest.raises(Unavailable):
        puts.engine.submit(puts.put("a", 1))


def test_writing_inside_work_is_a_fault_at_once(puts: Puts) -> None:
    puts.go.set()

    with pytest.raises(EngineFault):
        puts.engine.write(lambda _: puts.engine.write(puts.put("a", 1)))


def test_each_of_many_callers_gets_its_own_outcome(puts: Puts) -> None:
    puts.go.set()

    def caller(me: int) -> int:
        refused = 0
        for turn in range(10):
            number = -1 if (me + turn) % 10 == 0 else 1000 if (me * 10 + turn) % 50 == 1 else turn
            try:
                puts.engine.write(puts.put(f"{me} {turn}", number))
            except Wanted:
                refused += 1
        return refused

    with ThreadPoolExecutor(32) as pool:
        refused = sum(pool.map(caller, range(32)))

    assert len(puts.kept()) == 320 - refused
    assert refused >= 32
    assert max(len(batch) for batch in puts.batches) > 1
