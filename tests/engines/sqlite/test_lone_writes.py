"""Writes of one caller alone: on its own thread, and what an interrupt leaves."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from types import SimpleNamespace as Row

import pytest

from holdfast.engines.base import Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.connection import connect
from holdfast.engines.sqlite.maintenance import LONG
from holdfast.ground.errors import EngineFault, Unavailable
from holdfast.ground.events import Event
from holdfast.testing.contracts.engine import noting, putting

Opened = Callable[[], SQLiteEngine]


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-writer"]


def number(engine: SQLiteEngine, sql: Row) -> int:
    return next(row.number for row in engine.all(Row, sql.list) if row.key == "a")


@pytest.fixture
def alone(path: Path, engine: SQLiteEngine, opened: Opened) -> SQLiteEngine:
    """An engine that has written nothing yet, on a file with its table."""
    engine.close()
    assert path.exists()
    return opened()


def test_it_runs_on_the_thread_of_its_caller(alone: SQLiteEngine, sql: Row):
    before, ran = writers(), list[int]()

    def work(tx: Transaction) -> None:
        tx.run(sql.put_number, key="a", number=1)
        ran.append(threading.get_ident())

    for _ in range(3):
        alone.write(work)

    assert ran == [threading.get_ident()] * 3
    assert writers() == before
    assert number(alone, sql) == 1


def test_it_does_so_again_when_the_writer_has_nothing_to_do(alone: SQLiteEngine, sql: Row):
    ran = list[int]()

    def work(tx: Transaction) -> None:
        tx.run(sql.put_number, key="a", number=1)
        ran.append(threading.get_ident())

    alone.submit(putting(sql, "b", 1)).result()
    while threading.get_ident() not in ran:
        alone.write(work)


def test_what_came_before_it_is_written_before_it(alone: SQLiteEngine, sql: Row):
    for n in range(200):
        alone.submit(lambda tx, n=n: tx.run(sql.put_number, key="a", number=2 * n))
        alone.write(lambda tx, n=n: tx.run(sql.put_number, key="a", number=2 * n + 1))
        assert number(alone, sql) == 2 * n + 1


def test_many_callers_lose_nothing(alone: SQLiteEngine, sql: Row):
    alone.write(lambda tx: tx.run(sql.put_number, key="a", number=0))

    def count() -> None:
        for _ in range(50):
            alone.write(lambda tx: tx.one(Row, sql.add, key="a"))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert number(alone, sql) == 400


def test_while_another_process_writes_it_waits_on_the_writer_s_thread(
    alone: SQLiteEngine, sql: Row, path: Path
):
    other, ran = connect(str(path), "writer"), list[str]()
    other.do("begin immediate")

    def work(tx: Transaction) -> None:
        tx.run(sql.put_number, key="a", number=1)
        ran.append(threading.current_thread().name)

    with pytest.raises(Unavailable) as caught:
        alone.write(work, timeout=0.05)
    assert (caught.value.reason, caught.value.written) == ("busy", False)

    threading.Timer(0.05, lambda: other.do("rollback")).start()
    alone.write(work)
    other.raw.close()

    assert ran == ["holdfast-writer"]


def test_a_write_inside_it_or_after_its_commit_is_a_fault(alone: SQLiteEngine, sql: Row):
    raised = list[type[BaseException]]()

    def write() -> None:
        with pytest.raises(EngineFault) as caught:
            alone.write(putting(sql, "b", 1))
        raised.append(caught.type)

    def work(tx: Transaction) -> None:
        write()
        tx.after_commit(write)

    alone.write(work)

    assert raised == [EngineFault] * 2
    assert alone.all(Row, sql.list) == []


def test_closing_in_it_ends_it_first(alone: SQLiteEngine, sql: Row, opened: Opened):
    def work(tx: Transaction) -> None:
        tx.run(sql.put_number, key="a", number=1)
        # As the handler of a signal does that arrives just now.
        alone.close()

    alone.write(work)

    with pytest.raises(Unavailable, match="closed"):
        alone.write(putting(sql, "b", 1))
    assert number(opened(), sql) == 1


def test_a_long_log_is_truncated_after_it(alone: SQLiteEngine, sql: Row, path: Path):
    log = path.with_name(path.name + "-wal")
    row = {"number": 0, "real": None, "text": None, "bytes": bytes(LONG + 1)}

    alone.write(lambda tx: tx.run(sql.put, key="a", **row))
    alone.submit(putting(sql, "b", 1)).result()
    alone.close()

    assert not log.exists() or log.stat().st_size == 0


class Interrupt:
    """Raises KeyboardInterrupt at the *n*-th moment at which the interpreter looks for one.

    It looks where a function begins, and where a call of one in C has returned.
    """

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "c_return") or "holdfast" not in frame.f_code.co_filename:
            return
        self.left -= 1
        if self.left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt


def test_an_interrupt_at_any_moment_leaves_a_whole_write_or_none(alone: SQLiteEngine, sql: Row):
    published = list[Event]()
    alone.events.subscribe(published.append)
    alone.write(lambda tx: tx.run(sql.put_number, key="a", number=0))
    moment, kept, outcomes = 0, 0, list[bool]()
    while True:
        moment += 1
        published.clear()

        def work(tx: Transaction, moment: int = moment) -> None:
            tx.run(sql.put_number, key="a", number=moment)
            noting("a")(tx)

        sys.setprofile(Interrupt(moment))
        try:
            alone.write(work)
        except KeyboardInterrupt:
            sys.setprofile(None)
        else:
            sys.setprofile(None)
            break
        found = number(alone, sql)
        assert found in (kept, moment)
        assert len(published) <= (found == moment)
        outcomes.append(found == moment)
        kept = found
        assert not alone.core.database.turn.locked()
        alone.write(putting(sql, "b", moment), timeout=5)

    assert number(alone, sql) == moment
    assert True in outcomes
    assert outcomes == sorted(outcomes)
