"""Groups of writes under one commit: what fails, what is run again, and what that costs."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace as Row
from typing import NoReturn

import pytest

from holdfast.engines.base import Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.writer import CAREFUL
from holdfast.testing.contracts.engine import Wanted, happened, putting

STATEMENTS = 3


def grouped(
    engine: SQLiteEngine, works: list[Callable[[Transaction], object]]
) -> list[Future[object]]:
    """Submit *works* while the writer is busy, so that they share a group, and run them."""
    inside, go = threading.Event(), threading.Event()

    def work(_: Transaction) -> None:
        inside.set()
        go.wait()

    first = engine.submit(work)
    inside.wait()
    futures = [engine.submit(work) for work in works]
    go.set()
    first.result()
    for future in futures:
        future.exception()
    return futures


def spoilt(engine: SQLiteEngine) -> float:
    return engine.status().metrics['retries_total{reason="spoilt"}']


def numbers(engine: SQLiteEngine, sql: Row) -> dict[str, int]:
    return {row.key: row.number for row in engine.all(Row, sql.list)}


class Statements:
    """The engine's own statements that the writer runs, by their text."""

    def __init__(self, engine: SQLiteEngine) -> None:
        self.seen: Counter[str] = Counter()
        engine.core.writer.group.connection().raw.exec_trace = self._trace

    def _trace(self, _cursor: object, sql: str, _bindings: object) -> bool:
        self.seen[sql] += 1
        return True


@pytest.mark.parametrize("size", [1, 2, 64])
@pytest.mark.parametrize("fault", range(STATEMENTS + 1))
def test_a_fault_at_a_statement_undoes_its_own_write_alone(
    engine: SQLiteEngine, sql: Row, size: int, fault: int
):
    def failing(tx: Transaction) -> None:
        for number in range(STATEMENTS):
            if number == fault:
                tx.run(sql.put_new, key="taken", number=0)
            tx.run(sql.put_number, key=f"fails {number}", number=number)
        raise Wanted

    engine.write(putting(sql, "taken", 7))
    place = size // 2
    works: list[Callable[[Transaction], object]] = [
        failing if number == place else putting(sql, f"{number}", number) for number in range(size)
    ]

    futures = grouped(engine, works)

    kept = {f"{number}": number for number in range(size) if number != place}
    assert futures[place].exception() is not None
    assert numbers(engine, sql) == {"taken": 7, **kept}
    seqs = [future.result() for number, future in enumerate(futures) if number != place]
    assert seqs == sorted({int(str(seq)) for seq in seqs})


def test_a_group_that_nothing_spoils_uses_no_savepoint(engine: SQLiteEngine, sql: Row):
    def refused(tx: Transaction) -> NoReturn:
        tx.first(Row, sql.get, key="0")
        tx.run(sql.delete, key="is not there")
        raise Wanted

    ran = Statements(engine)

    futures = grouped(engine, [*(putting(sql, f"{n}", n) for n in range(9)), refused])

    assert isinstance(futures[-1].exception(), Wanted)
    assert len(numbers(engine, sql)) == 9
    assert ran.seen["savepoint one"] == 0
    assert spoilt(engine) == 0


def test_a_spoilt_group_runs_each_work_at_most_twice_and_is_counted(engine: SQLiteEngine, sql: Row):
    calls: Counter[int] = Counter()

    def counted(number: int) -> Callable[[Transaction], int]:
        def work(tx: Transaction) -> int:
            calls[number] += 1
            tx.run(sql.put_number, key=f"{number}", number=number)
            if number in (5, 20):
                raise Wanted
            return number

        return work

    futures = grouped(engine, [counted(number) for number in range(30)])

    assert [number for number, each in enumerate(futures) if each.exception()] == [5, 20]
    assert set(numbers(engine, sql)) == {f"{n}" for n in range(30) if n not in (5, 20)}
    assert set(calls.values()) == {1, 2}
    assert spoilt(engine) == 1


def test_the_groups_after_a_spoilt_one_use_savepoints_for_a_while(engine: SQLiteEngine, sql: Row):
    def failing(tx: Transaction) -> NoReturn:
        tx.run(sql.put_number, key="fails", number=0)
        raise Wanted

    grouped(engine, [putting(sql, "a", 1), failing])
    ran = Statements(engine)

    grouped(engine, [putting(sql, "a", 1), failing])
    assert ran.seen["savepoint one"] == 2
    assert spoilt(engine) == 1

    for number in range(CAREFUL):
        engine.write(putting(sql, "a", number))
    ran.seen.clear()
    grouped(engine, [putting(sql, "a", 1), putting(sql, "b", 1)])
    assert ran.seen["savepoint one"] == 0


def test_each_of_many_callers_gets_its_own_outcome(engine: SQLiteEngine, sql: Row):
    def refused(tx: Transaction) -> NoReturn:
        tx.first(Row, sql.get, key="a")
        raise Wanted

    def late(tx: Transaction) -> NoReturn:
        tx.run(sql.put_number, key="late", number=0)
        raise Wanted

    def caller(me: int) -> list[str]:
        kept: list[str] = []
        for number in range(25):
            key, mark = f"{me} {number}", me * 25 + number
            work = refused if mark % 10 == 0 else late if mark % 50 == 1 else putting(sql, key, 1)
            try:
                engine.write(lambda tx, work=work: (work(tx), tx.note(happened())))
                kept.append(key)
            except Wanted:
                continue
        return kept

    with ThreadPoolExecutor(64) as pool:
        kept = [key for keys in pool.map(caller, range(64)) for key in keys]

    assert set(numbers(engine, sql)) == set(kept)
    assert len(kept) == 64 * 25 - 160 - 32
    assert engine.one(Row, COUNT_EVENTS).n == len(kept)


COUNT_EVENTS = "select count(*) as n from changes"
