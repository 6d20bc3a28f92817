"""What SQLite does to those who do not know it, each held by a test."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace as Row

import pytest

from holdfast.engines.base import Reader, Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.connection import APPLICATION_ID, AUTOCHECKPOINT, Role
from holdfast.engines.sqlite.readers import MOST_READERS
from holdfast.engines.sqlite.writer import LONG
from holdfast.ground.events import Event
from holdfast.testing.contracts.engine import numbered, putting

ALL = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "temp_store": 2,
    "mmap_size": 0,
    "trusted_schema": 0,
    "busy_timeout": 0,
    "application_id": APPLICATION_ID,
}
WRITER = ALL | {"secure_delete": 1, "cache_size": -65536, "wal_autocheckpoint": AUTOCHECKPOINT}
READER = ALL | {"cache_size": -16384, "query_only": 1}


@pytest.mark.parametrize(("role", "settings"), [("writer", WRITER), ("reader", READER)])
def test_every_connection_is_set_up_as_promised(
    engine: SQLiteEngine, role: Role, settings: dict[str, object]
):
    connection = engine.core.database.connect(role)

    found = {name: connection.execute(f"pragma {name}").fetchall()[0][0] for name in settings}
    connection.raw.close()

    assert found == settings


def test_every_table_is_strict(engine: SQLiteEngine):
    loose = engine.all(
        Row,
        "select name from pragma_table_list"
        " where type = 'table' and strict = 0 and name not like 'sqlite_%'",
    )

    assert loose == []


def test_looking_at_one_row_of_many_does_not_pin_the_log(engine: SQLiteEngine, sql: Row):
    engine.write(lambda tx: tx.run_many(sql.put_number, numbered(*map(str, range(1000)))))

    engine.first(Row, sql.list)

    assert engine.scrub(timeout=60).done


def test_reading_before_writing_never_meets_a_moved_snapshot(
    engine: SQLiteEngine, sql: Row, opened: Callable[[], SQLiteEngine]
):
    def add(to: SQLiteEngine) -> None:
        def work(tx: Transaction) -> None:
            found = tx.first(Row, sql.get_number, key="a")
            tx.run(sql.put_number, key="a", number=(found.number if found else 0) + 1)

        for _ in range(100):
            to.write(work)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, [engine, opened()]))

    assert engine.one(Row, sql.get_number, key="a").number == 200


def test_an_unfinished_read_sees_no_later_write_and_the_next_one_does(
    engine: SQLiteEngine, sql: Row
):
    def work(reader: Reader) -> list[Row]:
        before = reader.all(Row, sql.list)
        other = threading.Thread(target=engine.write, args=(putting(sql, "a", 1),))
        other.start()
        other.join()
        return before + reader.all(Row, sql.list)

    assert engine.read(work) == []
    assert engine.first(Row, sql.list) == Row(key="a", number=1)


def test_a_seventeenth_reader_waits_for_one_to_come_back(engine: SQLiteEngine, sql: Row):
    inside = threading.Barrier(MOST_READERS + 1)
    go = threading.Event()

    def hold(_: int) -> int:
        def work(reader: Reader) -> int:
            count = reader.one(Row, sql.count).n
            inside.wait()
            go.wait()
            return count

        return engine.read(work)

    with ThreadPoolExecutor(MOST_READERS + 1) as pool:
        holding = [pool.submit(hold, n) for n in range(MOST_READERS)]
        inside.wait()
        late = pool.submit(engine.one, Row, sql.count)
        threading.Timer(0.1, go.set).start()

        assert late.result() == Row(n=0)
        assert [one.result() for one in holding] == [0] * MOST_READERS
    assert engine.status().metrics["readers"] == MOST_READERS


def test_a_long_log_is_cut_once_no_reader_holds_it(engine: SQLiteEngine, sql: Row, path: Path):
    held: list[Event] = []
    engine.events.subscribe(held.append, {"engine.checkpoint_held"})
    log = path.with_name("a.db-wal")

    def write_much(reader: Reader) -> int:
        reader.one(Row, sql.count)
        fill = threading.Thread(target=lambda: [put_bytes(engine, sql, n) for n in range(9)])
        fill.start()
        fill.join()
        return log.stat().st_size

    longest = engine.read(write_much)
    cut_by = threading.Event()
    while log.stat().st_size > LONG and not cut_by.wait(0.05):
        engine.write(putting(sql, "a", 1))

    assert longest > LONG
    assert len(held) == 1
    assert log.stat().st_size < LONG


def put_bytes(engine: SQLiteEngine, sql: Row, fill: int) -> None:
    content = bytes([fill]) * 8 * 1024 * 1024
    row = {"number": 0, "real": None, "text": None, "bytes": content}
    engine.write(lambda tx: tx.run(sql.put, key="big", **row))
