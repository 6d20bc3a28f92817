"""Maintenance of a SQLite file: scrubs, rewrites, pitfalls, and failing disks."""

import errno
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace as Row

import pytest
from engines.sqlite.disk import Disk, faulty_disk

from holdfast.engines.base import Reader, Scrubbed, Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.connection import APPLICATION_ID, AUTOCHECKPOINT, Role, connect
from holdfast.engines.sqlite.maintenance import LONG
from holdfast.engines.sqlite.readers import MOST_READERS
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import Corrupt, Unavailable
from holdfast.ground.events import Event
from holdfast.testing.contracts.engine import SCRATCH, make_scratch, numbered, putting

MARKER = "b7c1-the-secret-nobody-may-find"


def holding_marker(path: Path) -> list[str]:
    """Return the names of the files beside the database that hold the marker."""
    return [file.name for file in path.parent.iterdir() if MARKER.encode() in file.read_bytes()]


def put_and_delete(engine: SQLiteEngine, sql: Row) -> None:
    row = {"number": 0, "real": None, "bytes": MARKER.encode() * 500}
    engine.write(lambda tx: tx.run(sql.put, key=MARKER, text=MARKER * 300, **row))
    engine.write(lambda tx: tx.run(sql.delete, key=MARKER))


def test_what_was_deleted_is_in_no_file_after_a_scrub(engine: SQLiteEngine, sql: Row, path: Path):
    put_and_delete(engine, sql)
    assert holding_marker(path) != []

    assert engine.scrub() == Scrubbed(done=True)

    assert holding_marker(path) == []


def test_while_a_reader_holds_the_log_it_is_pending_and_done_soon_after(
    engine: SQLiteEngine, sql: Row, path: Path
):
    scrubbed = threading.Event()
    engine.events.subscribe(lambda _: scrubbed.set(), {"engine.scrubbed"})
    engine.write(putting(sql, "a", 1))

    def work(reader: Reader) -> tuple[Scrubbed, float]:
        reader.one(Row, sql.count)
        reports: list[Scrubbed] = []

        def forget() -> None:
            put_and_delete(engine, sql)
            reports.append(engine.scrub(timeout=0.1))

        forgetting = threading.Thread(target=forget)
        forgetting.start()
        forgetting.join()
        return reports[0], engine.core.writer.log.erasing

    report, pending = engine.read(work)

    assert report == Scrubbed(done=False, pending=("log",))
    assert pending
    assert scrubbed.wait(30)
    assert holding_marker(path) == []
    assert engine.status().metrics["erasure_pending"] == 0


def test_what_is_left_to_the_writer_is_gone_after_its_group(
    engine: SQLiteEngine, sql: Row, path: Path
):
    scrubbed = threading.Event()
    engine.events.subscribe(lambda _: scrubbed.set(), {"engine.scrubbed"})
    put_and_delete(engine, sql)

    engine.scrub_later()

    assert scrubbed.wait(30)
    assert holding_marker(path) == []


def test_closing_leaves_no_log_and_nothing_deleted(engine: SQLiteEngine, sql: Row, path: Path):
    put_and_delete(engine, sql)

    engine.close()

    assert [file.name for file in path.parent.iterdir()] == ["a.db"]
    assert holding_marker(path) == []


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
WRITER = ALL | {"secure_delete": 1, "cache_size": -16384, "wal_autocheckpoint": AUTOCHECKPOINT}
READER = ALL | {"cache_size": -4096, "query_only": 1}


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


PROGRAM = """
import resource, sys
from types import SimpleNamespace as Row
from unittest.mock import Mock
from holdfast.engines.sqlite import SQLiteEngine, maintenance
from holdfast.ground.errors import HoldfastError
from holdfast.testing.contracts.engine import SCRATCH, make_scratch, noting, putting
from holdfast.testing.fakes import FrozenClock

def let_files_grow_to(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def put(key, size):
    row = {"number": 0, "real": None, "text": None, "bytes": b"x" * size}
    return lambda tx: tx.run(sql.put, key=key, **row)

def said(write):
    try:
        return write()
    except HoldfastError as error:
        return f"{error.reason} {error.written}"

engine = SQLiteEngine.open(sys.argv[1], clock=FrozenClock())
make_scratch(engine)
sql = engine.queries(SCRATCH)
engine.write(putting(sql, "before", 1))
log = engine.core.database.log_bytes()
events = []
engine.events.subscribe(lambda event: events.append(event.type))
let_files_grow_to(log + 20_000)
print(said(lambda: engine.write(put("big", 100_000))))
print([row.key for row in engine.all(Row, sql.list)])
print(said(lambda: engine.write(put("small", 10))))
let_files_grow_to(resource.RLIM_INFINITY)
print(said(lambda: engine.write(put("after", 100_000))))
print([row.key for row in engine.all(Row, sql.list)])
print(events, engine.one(Row, "select integrity_check as ok from pragma_integrity_check").ok)
engine.close()
"""


def test_a_commit_that_fails_to_write_has_an_unknown_outcome_and_harms_nothing_else(path: Path):
    command = [sys.executable, "-c", PROGRAM, str(path)]

    said = subprocess.run(command, check=True, timeout=60, stdout=subprocess.PIPE, text=True)

    assert said.stdout.splitlines() == [
        "io None",
        "['before']",
        "1",
        "1",
        "['after', 'before', 'small']",
        "['engine.reconnected'] ok",
    ]


@pytest.fixture
def disk() -> Iterator[Disk]:
    with faulty_disk() as disk:
        yield disk


@pytest.fixture
def cold(opened: Callable[[], SQLiteEngine]) -> SQLiteEngine:
    """An engine that has yet to read most of its file."""
    engine = opened()
    make_scratch(engine)
    sql = engine.queries(SCRATCH)
    rows = numbered(*(f"{n:04} {'x' * 200}" for n in range(2000)))
    engine.write(lambda tx: tx.run_many(sql.put_number, rows))
    engine.close()
    return opened()


def heard_by(engine: SQLiteEngine) -> list[str]:
    """Return the list to which the types of the engine's events are added."""
    heard: list[str] = []
    engine.events.subscribe(lambda event: heard.append(event.type))
    return heard


def test_a_write_survives_one_failed_read_of_a_sound_file(cold: SQLiteEngine, disk: Disk):
    sql, heard = cold.queries(SCRATCH), heard_by(cold)
    disk.fail("pread", ".db", errno.EIO)

    cold.write(putting(sql, "a", 1))

    assert disk.pending == 0
    assert heard == ["engine.reconnected", "engine.recovered"]
    assert cold.one(Row, sql.get_number, key="a").number == 1
    assert cold.status().ready


def test_writes_that_wait_together_survive_one_failed_read(cold: SQLiteEngine, disk: Disk):
    sql = cold.queries(SCRATCH)
    with cold.core.database.turn:
        futures = [cold.submit(putting(sql, f"{n}", n)) for n in range(5)]
        disk.fail("pread", ".db", errno.EIO)

    assert len({future.result(30) for future in futures}) == 5
    assert disk.pending == 0
    assert cold.one(Row, sql.count).n == 2005


def test_a_failed_read_elsewhere_is_checked_before_the_next_write_is_refused(
    cold: SQLiteEngine, disk: Disk
):
    sql = cold.queries(SCRATCH)
    assert cold.status().ready
    disk.fail("pread", ".db", errno.EIO)
    with pytest.raises(Corrupt):
        cold.all(Row, sql.list)

    cold.write(putting(sql, "a", 1))

    assert cold.status().ready


def test_a_file_that_cannot_be_read_refuses_writes_until_it_can(cold: SQLiteEngine, disk: Disk):
    sql, heard = cold.queries(SCRATCH), heard_by(cold)
    disk.fail("pread", ".db", errno.EIO, times=10_000)
    with pytest.raises(Corrupt) as caught:
        cold.write(putting(sql, "a", 1))
    refused = cold.status()

    disk.heal()
    while not cold.status().ready:
        pass

    assert caught.value.written is False
    assert (refused.ready, refused.reason) == (False, "corrupt")
    assert heard == ["engine.reconnected", "engine.recovered"]
    cold.write(putting(sql, "b", 1))
    assert cold.first(Row, sql.get_number, key="a") is None


def test_a_read_that_fails_in_each_try_of_a_write_is_that_write_s_error(
    cold: SQLiteEngine, disk: Disk
):
    sql = cold.queries(SCRATCH)
    runs: list[int] = []

    def work(tx: Transaction) -> None:
        runs.append(1)
        disk.fail("pread", ".db", errno.EIO)
        tx.all(Row, sql.list)

    with pytest.raises(Corrupt):
        cold.write(work)

    assert len(runs) == 2


def test_a_write_into_a_deleted_file_is_refused(engine: SQLiteEngine, sql: Row, path: Path):
    engine.write(putting(sql, "a", 1))
    path.unlink()

    with pytest.raises(Unavailable) as caught:
        engine.write(putting(sql, "b", 1))

    assert (caught.value.reason, caught.value.written) == ("replaced", False)
    assert engine.status().reason == "replaced"


def test_a_file_that_is_replaced_while_a_write_runs_does_not_take_it(
    engine: SQLiteEngine, sql: Row, path: Path
):
    def work(tx: Transaction) -> None:
        tx.run(sql.put_number, key="a", number=1)
        path.rename(path.with_name("b.db"))
        path.touch()

    with pytest.raises(Unavailable) as caught:
        engine.write(work)

    assert (caught.value.reason, caught.value.written) == ("replaced", False)
    with pytest.raises(Unavailable):
        engine.write(putting(sql, "b", 1))


def test_a_full_quota_is_a_full_disk(cold: SQLiteEngine, disk: Disk):
    sql, heard = cold.queries(SCRATCH), heard_by(cold)
    cold.write(putting(sql, "a", 1))
    disk.fail("pwrite", ".db-wal", errno.EDQUOT)

    with pytest.raises(Unavailable) as caught:
        cold.write(putting(sql, "b", 1))

    assert (caught.value.reason, caught.value.written) == ("full", False)
    assert heard == ["engine.full"]
    cold.write(putting(sql, "c", 1))
    assert cold.first(Row, sql.get_number, key="b") is None
