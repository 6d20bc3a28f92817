"""What a disk that fails does to writes: to those that met it, and to those after them."""

import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace as Row

import pytest
from engines.sqlite.disk import Disk, faulty_disk

from holdfast.engines.base import Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import Corrupt, Unavailable
from holdfast.testing.contracts.engine import SCRATCH, make_scratch, numbered, putting

PROGRAM = """
import resource, sys
from types import SimpleNamespace as Row
from holdfast.engines.sqlite import SQLiteEngine
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
