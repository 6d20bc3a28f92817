import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Row

import pytest

from holdfast.engines.base import Reader, Scrubbed
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.connection import connect
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import Unavailable
from holdfast.testing.contracts.engine import putting

MARKER = "b7c1-the-secret-nobody-may-find"


def fill(engine: SQLiteEngine, sql: Row) -> None:
    row = {"number": 0, "real": None, "bytes": b"", "text": MARKER * 100}
    for number in range(200):
        engine.write(lambda tx, key=str(number): tx.run(sql.put, key=key, **row))


def test_the_file_is_as_small_as_what_is_in_it(engine: SQLiteEngine, sql: Row, path: Path):
    engine.write(putting(sql, "kept", 7))
    fill(engine, sql)
    for number in range(200):
        engine.write(lambda tx, key=str(number): tx.run(sql.delete, key=key))
    engine.scrub()
    before = path.stat().st_size

    assert engine.scrub_full() == Scrubbed(done=True)

    assert path.stat().st_size < before / 2
    assert path.with_name(f"{path.name}-wal").stat().st_size == 0
    assert engine.one(Row, sql.get, key="kept").number == 7


def test_full_text_indexes_are_merged(engine: SQLiteEngine, path: Path):
    raw = connect(str(path), "writer")
    raw.do('create virtual table "a "" b" using fts5 (t, content=\'\')')
    for number in range(3):
        raw.do(f'insert into "a "" b" (t) values ({number})')
    count = 'select count(distinct segid) from "a "" b_idx"'
    before = raw.number(count)

    engine.scrub_full()

    assert (before, raw.number(count)) == (3, 1)
    raw.raw.close()


def test_a_reader_keeps_its_moment_and_the_log_is_named_as_pending(
    engine: SQLiteEngine, opened: Callable[[], SQLiteEngine], sql: Row
):
    other, scrubbed = opened(), threading.Event()
    other.events.subscribe(lambda _: scrubbed.set(), {"engine.scrubbed"})
    engine.write(putting(sql, "a", 1))

    def work(reader: Reader) -> tuple[int, Scrubbed, int]:
        before = reader.one(Row, sql.get, key="a").number
        other.write(putting(sql, "a", 2))
        return before, other.scrub_full(), reader.one(Row, sql.get, key="a").number

    assert engine.read(work) == (1, Scrubbed(done=False, pending=("log",)), 1)

    assert scrubbed.wait(60)


def test_writers_and_readers_go_on_afterwards(engine: SQLiteEngine, sql: Row, path: Path):
    other = SQLiteEngine.open(str(path), clock=SystemClock())
    engine.write(putting(sql, "a", 1))
    assert other.one(Row, sql.get, key="a").number == 1

    engine.scrub_full()

    other.write(putting(sql, "a", 2))
    assert engine.one(Row, sql.get, key="a").number == 2
    other.close()


def test_a_closed_one_says_so(engine: SQLiteEngine):
    engine.close()

    with pytest.raises(Unavailable) as caught:
        engine.scrub_full()

    assert caught.value.reason == "closed"


def test_in_memory_there_is_nothing_to_rewrite():
    engine = SQLiteEngine.open(":memory:", clock=SystemClock())

    assert engine.scrub_full() == Scrubbed(done=True)
    engine.close()
