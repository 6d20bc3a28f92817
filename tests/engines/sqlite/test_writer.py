import signal
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace as Row
from typing import NoReturn

import apsw
import pytest

from holdfast.engines.base import Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.write_queue import MOST_IN_A_GROUP, MOST_WAITING, Slot
from holdfast.ground.errors import EngineFault, Unavailable
from holdfast.ground.events import Event
from holdfast.testing.contracts.engine import Wanted, noting, putting

Opened = Callable[[], SQLiteEngine]


@contextmanager
def writer_kept_busy(engine: SQLiteEngine) -> Generator[None]:
    """Keep the writer in one write, so that others wait, until the block ends."""
    inside, go = threading.Event(), threading.Event()

    def work(_: Transaction) -> None:
        inside.set()
        go.wait()

    future = engine.submit(work)
    inside.wait()
    try:
        yield
    finally:
        go.set()
        future.result()


def keys(engine: SQLiteEngine, sql: Row) -> list[str]:
    return [row.key for row in engine.all(Row, sql.list)]


def failing(sql: Row, key: str) -> Callable[[Transaction], int]:
    def work(tx: Transaction) -> NoReturn:
        tx.run(sql.put_number, key=key, number=0)
        raise Wanted

    return work


def groups(engine: SQLiteEngine) -> float:
    return engine.status().metrics["groups_total"]


def test_writes_that_wait_together_share_one_commit(engine: SQLiteEngine, sql: Row):
    with writer_kept_busy(engine):
        before = groups(engine)
        futures = [engine.submit(putting(sql, f"{n:02}", n)) for n in range(20)]

    assert [future.result() for future in futures] == sorted(f.result() for f in futures)
    assert groups(engine) <= before + 2
    assert len(keys(engine, sql)) == 20


def test_one_that_fails_in_a_group_is_undone_alone(engine: SQLiteEngine, sql: Row):
    with writer_kept_busy(engine):
        before = engine.submit(putting(sql, "before", 1))
        fails = engine.submit(failing(sql, "fails"))
        after = engine.submit(putting(sql, "after", 1))

    assert isinstance(fails.exception(), Wanted)
    assert before.result() < after.result()
    assert keys(engine, sql) == ["after", "before"]


def test_a_group_ends_after_256_writes_and_the_rest_are_next(engine: SQLiteEngine, sql: Row):
    with writer_kept_busy(engine):
        futures = [
            engine.submit(lambda tx: tx.one(Row, sql.add, key="a").number)
            for _ in range(MOST_IN_A_GROUP + 10)
        ]

    assert [future.result() for future in futures] == list(range(1, MOST_IN_A_GROUP + 11))


def test_a_group_ends_when_much_was_bound(engine: SQLiteEngine, sql: Row):
    def put(key: str) -> Callable[[Transaction], int]:
        row = {"number": 0, "real": None, "text": None, "bytes": bytes(5 * 1024 * 1024)}
        return lambda tx: tx.run(sql.put, key=key, **row)

    with writer_kept_busy(engine):
        before = groups(engine)
        futures = [engine.submit(put(f"{n}")) for n in range(4)]

    assert [future.result() for future in futures] == [1] * 4
    assert groups(engine) >= before + 3


def test_a_write_whose_turn_does_not_come_in_time_never_runs(engine: SQLiteEngine, sql: Row):
    with writer_kept_busy(engine), pytest.raises(Unavailable) as caught:
        engine.write(putting(sql, "a", 1), timeout=0.05)

    assert (caught.value.reason, caught.value.written) == ("timeout", False)
    engine.write(putting(sql, "b", 1))
    assert keys(engine, sql) == ["b"]


def test_a_submitted_write_whose_turn_does_not_come_in_time_never_runs(
    engine: SQLiteEngine, sql: Row
):
    with writer_kept_busy(engine):
        late = engine.submit(putting(sql, "a", 1), timeout=0)

    error = late.exception()

    assert isinstance(error, Unavailable)
    assert error.reason == "timeout"
    assert keys(engine, sql) == []


def test_a_write_that_runs_is_waited_for_whatever_the_deadline(engine: SQLiteEngine, sql: Row):
    running, go = threading.Event(), threading.Event()

    def work(tx: Transaction) -> str:
        running.set()
        go.wait()
        tx.run(sql.put_number, key="a", number=1)
        return "done"

    with ThreadPoolExecutor(1) as pool:
        caller = pool.submit(lambda: engine.write(work, timeout=1))
        running.wait()
        threading.Timer(1.1, go.set).start()

        assert caller.result() == "done"
    assert keys(engine, sql) == ["a"]


def test_a_cancelled_future_never_runs(engine: SQLiteEngine, sql: Row):
    with writer_kept_busy(engine):
        future = engine.submit(putting(sql, "a", 1))
        assert future.cancel()

    engine.write(putting(sql, "b", 1))

    assert keys(engine, sql) == ["b"]


def test_too_many_waiting_writes_are_refused_at_once(engine: SQLiteEngine, sql: Row):
    with writer_kept_busy(engine):
        futures = [engine.submit(putting(sql, "a", n)) for n in range(MOST_WAITING)]
        with pytest.raises(Unavailable) as caught:
            engine.write(putting(sql, "b", 1))

    error = caught.value
    assert (error.reason, error.written, error.retry_after) == ("overloaded", False, 0.1)
    assert len({future.result() for future in futures}) == MOST_WAITING
    assert keys(engine, sql) == ["a"]


def test_closing_writes_what_waits(engine: SQLiteEngine, sql: Row, opened: Opened):
    with writer_kept_busy(engine):
        futures = [engine.submit(putting(sql, f"{n:03}", n)) for n in range(300)]
        closer = threading.Thread(target=engine.close)
        closer.start()
    closer.join()

    assert all(future.result() for future in futures)
    assert len(keys(opened(), sql)) == 300


def test_what_cannot_be_written_before_closing_ends_is_refused(
    engine: SQLiteEngine, sql: Row, opened: Opened
):
    with writer_kept_busy(engine):
        waiting = engine.submit(putting(sql, "a", 1))
        engine.close(timeout=0.05)
        error = waiting.exception()

    assert isinstance(error, Unavailable)
    assert (error.reason, error.written) == ("closed", False)
    assert keys(opened(), sql) == []


@contextmanager
def interrupted_once(engine: SQLiteEngine) -> Generator[None]:
    """Interrupt this thread when a write of it waits, whatever the process does at SIGINT."""
    here, heard, over = threading.get_ident(), threading.Event(), threading.Event()

    def handle(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        # A signal just before the thread blocks is only handled when another one wakes it.
        while not over.wait(0.01):
            if len(engine.core.writer.queue):
                signal.pthread_kill(here, signal.SIGINT)

    before = signal.signal(signal.SIGINT, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


def test_an_interrupted_caller_withdraws_what_waits(engine: SQLiteEngine, sql: Row):
    with (
        writer_kept_busy(engine),
        interrupted_once(engine),
        pytest.raises(KeyboardInterrupt),
    ):
        engine.write(putting(sql, "a", 1))

    engine.write(putting(sql, "b", 1))
    assert keys(engine, sql) == ["b"]


def test_a_caller_interrupted_before_it_waits_withdraws_its_write(
    engine: SQLiteEngine, sql: Row, monkeypatch: pytest.MonkeyPatch
):
    put = engine.core.writer.put

    def put_and_interrupt(slot: Slot) -> None:
        put(slot)
        raise KeyboardInterrupt

    with writer_kept_busy(engine):
        monkeypatch.setattr(engine.core.writer, "put", put_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.write(putting(sql, "a", 1))
    monkeypatch.undo()

    engine.write(putting(sql, "b", 1))
    assert keys(engine, sql) == ["b"]


def test_a_slow_write_is_told_of_by_its_statement_alone(engine: SQLiteEngine, sql: Row):
    heard: list[Event] = []
    engine.events.subscribe(heard.append, {"engine.slow_work"})

    def work(tx: Transaction) -> None:
        for n in range(60_000):
            tx.run(sql.put_number, key=f"secret {n}", number=n)

    engine.write(work)

    assert heard[0].data["statement"] == "put_number"
    assert "secret" not in repr(heard)


def test_what_does_not_fit_fails_alone_and_says_that_the_disk_is_full(
    engine: SQLiteEngine, sql: Row
):
    limit_pages(engine, 40)

    with writer_kept_busy(engine):
        small = [engine.submit(putting(sql, f"{n}", n)) for n in range(3)]
        big = engine.submit(lambda tx: put_bytes(tx, sql, "big", 400_000))
        after = engine.submit(putting(sql, "after", 1))

    error = big.exception()

    assert isinstance(error, Unavailable)
    assert (error.reason, error.written) == ("full", False)
    assert isinstance(error.__cause__, apsw.FullError)
    assert all(future.result() for future in [*small, after])
    assert keys(engine, sql) == ["0", "1", "2", "after"]


def test_it_heals_by_itself_once_there_is_room(engine: SQLiteEngine, sql: Row):
    heard: list[Event] = []
    engine.events.subscribe(heard.append)
    limit_pages(engine, 40)
    with pytest.raises(Unavailable, match="full"):
        engine.write(lambda tx: put_bytes(tx, sql, "big", 400_000))
    assert [event.type for event in heard] == ["engine.full"]

    limit_pages(engine, 100_000)

    assert engine.write(lambda tx: put_bytes(tx, sql, "big", 400_000)) == 1


def test_a_group_that_cannot_begin_gives_each_its_own_error(
    engine: SQLiteEngine, sql: Row, path: Path
):
    with engine.core.database.turn:
        waiting = [engine.submit(putting(sql, "a", n)) for n in range(3)]
        path.unlink()
        engine.status()

    errors = [future.exception() for future in waiting]

    assert len({id(error) for error in errors}) == 3
    for error in errors:
        assert isinstance(error, Unavailable)
        assert (error.reason, error.written) == ("replaced", False)
        assert "deleted or replaced" in str(error)


def test_work_cannot_go_on_after_its_transaction_was_ended(engine: SQLiteEngine, sql: Row):
    limit_pages(engine, 40)

    def work(tx: Transaction) -> str:
        tx.run(sql.put_number, key="first", number=1)
        try:
            put_bytes(tx, sql, "big", 400_000)
        except Unavailable:
            tx.after_commit(lambda: None)
        return "as if nothing had happened"

    with ThreadPoolExecutor(2) as pool, writer_kept_busy(engine):
        both: list[Future[object]] = [pool.submit(engine.write, work) for _ in range(2)]

    for future in both:
        assert isinstance(future.exception(), (Unavailable, type(None)))
    assert "big" not in keys(engine, sql)


def test_a_write_from_a_call_after_the_commit_would_wait_for_itself(engine: SQLiteEngine, sql: Row):
    raised: list[EngineFault] = []

    def again() -> None:
        try:
            engine.write(putting(sql, "b", 1))
        except EngineFault as error:
            raised.append(error)

    engine.write(lambda tx: tx.after_commit(again))

    assert len(raised) == 1


def test_reading_through_the_engine_inside_work_is_a_fault(engine: SQLiteEngine, sql: Row):
    for act in (
        lambda: engine.first(Row, sql.list),
        lambda: engine.read(lambda reader: reader.first(Row, sql.list)),
        lambda: engine.submit(putting(sql, "a", 1)),
    ):
        with pytest.raises(EngineFault, match="inside a"):
            engine.write(lambda _, act=act: act())
        with pytest.raises(EngineFault, match="inside a"):
            engine.read(lambda _, act=act: act())


def test_statements_are_counted_but_not_the_engine_s_own(engine: SQLiteEngine, sql: Row):
    before = engine.statements

    engine.write(putting(sql, "a", 1))
    engine.write(noting("test.a"))
    engine.first(Row, sql.list)

    assert engine.statements == before + 3


def limit_pages(engine: SQLiteEngine, pages: int) -> None:
    with engine.core.database.turn:
        engine.core.writer.group.connection().do(f"pragma max_page_count = {pages}")


def put_bytes(tx: Transaction, sql: Row, key: str, size: int) -> int:
    return tx.run(sql.put, key=key, number=0, real=None, text=None, bytes=bytes(size))
