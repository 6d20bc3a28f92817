"""Copies that SQLite leaves in unused space, the pages that hold them, and their erasure."""

import errno
import os
import random
import resource
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace as Row
from unittest.mock import Mock

import apsw
import pytest
from engines.sqlite.disk import faulty_disk

from holdfast.engines.base import Scrubbed, Transaction
from holdfast.engines.sqlite import SQLiteEngine, maintenance
from holdfast.engines.sqlite.connection import connect
from holdfast.testing.contracts.engine import putting


def churn(engine: SQLiteEngine, seed: int) -> list[bytes]:
    """Put and delete rows at random; return the texts of those deleted.

    With these seeds SQLite leaves copies of some, of rows that it moved between pages.
    """
    chance, live, gone = random.Random(seed), list[str](), list[bytes]()
    engine.write(lambda tx: tx.run("create table moved (id text primary key, body text)"))

    def work(tx: Transaction) -> None:
        for _ in range(50):
            if live and chance.random() < 0.48:
                id = live.pop(chance.randrange(len(live)))
                tx.run("delete from moved where id = :id", id=id)
                gone.append(f"mark{id}x".encode())
            else:
                live.append(f"{chance.random():.12f}")
                body = f"mark{live[-1]}x" + "y" * chance.randrange(200)
                tx.run("insert into moved values (:id, :body)", id=live[-1], body=body)

    for _ in range(40):
        engine.write(work)
    return gone


def left_of(gone: list[bytes], path: Path) -> list[bytes]:
    """Return which of *gone* are in the files of a database."""
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    return [each for each in gone if each in content]


SEEDS = (12, 29, 32)


@pytest.mark.parametrize("before", [False, True], ids=["all pages", "pages since the last scrub"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_copy_of_a_row_that_was_moved_and_deleted_is_left(
    engine: SQLiteEngine, path: Path, seed: int, *, before: bool
):
    if before:
        assert engine.scrub() == Scrubbed(done=True)
    gone = churn(engine, seed)

    assert engine.scrub() == Scrubbed(done=True)

    assert left_of(gone, path) == []
    integrity = connect(str(path), "reader").execute("pragma integrity_check").fetchall()
    assert integrity == [("ok",)]


@pytest.mark.parametrize("seed", SEEDS)
def test_sqlite_itself_leaves_copies_of_rows_that_it_moved(
    engine: SQLiteEngine, path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(maintenance, "zero", Mock(return_value=False))
    gone = churn(engine, seed)

    assert engine.scrub() == Scrubbed(done=True)

    assert left_of(gone, path) != []


def test_a_copy_in_the_cache_of_another_connection_is_not_written_again(
    engine: SQLiteEngine, opened: Callable[[], SQLiteEngine], path: Path
):
    gone = churn(engine, SEEDS[0])
    other = opened()
    other.write(lambda tx: tx.run("update moved set body = body || 'z' where rowid % 2 = 0"))
    assert engine.scrub() == Scrubbed(done=True)

    other.write(lambda tx: tx.run("update moved set body = body || 'z'"))
    assert maintenance.empty(connect(str(path), "writer"))

    assert left_of(gone, path) == []


def test_a_copy_that_another_connection_reads_meanwhile_is_not_written_again(
    engine: SQLiteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
):
    gone, other, zero = churn(engine, SEEDS[0]), connect(str(path), "writer"), maintenance.zero

    def zero_read_pages(path: Path, pages: Sequence[int]) -> bool:
        assert other.execute("select sum(length(body)) from moved").fetchall()
        return zero(path, pages)

    monkeypatch.setattr(maintenance, "zero", zero_read_pages)
    assert engine.scrub() == Scrubbed(done=True)

    other.execute("update moved set body = body || 'z'").fetchall()
    assert maintenance.empty(other)
    assert left_of(gone, path) == []


def test_a_scrub_after_another_reads_only_pages_that_were_written_since(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
):
    read = zeroed_pages(monkeypatch)
    first = "delete from moved where rowid = (select min(rowid) from moved)"
    churn(engine, SEEDS[0])
    for _ in range(3):
        assert engine.scrub() == Scrubbed(done=True)
        engine.write(lambda tx: tx.run(first))

    assert isinstance(read[0], range)
    assert [len(pages) < 10 for pages in read[1:]] == [True, True]


def zeroed_pages(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[int]]:
    """Return the list to which each call of `zero` appends its pages."""
    zero, read = maintenance.zero, list[Sequence[int]]()

    def zero_noted(path: Path, pages: Sequence[int]) -> bool:
        read.append(pages)
        return zero(path, pages)

    monkeypatch.setattr(maintenance, "zero", zero_noted)
    return read


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a log begin again after 20 pages, and erase 8 pages at a time."""
    monkeypatch.setattr(maintenance, "AUTOCHECKPOINT", 20)
    monkeypatch.setattr(maintenance, "_SLICE", 8)


@pytest.mark.usefixtures("short_log")
@pytest.mark.parametrize("seed", SEEDS)
def test_pages_of_logs_that_began_again_are_noted(
    opened: Callable[[], SQLiteEngine], path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
):
    engine = opened()
    fill_pages(engine, 1_000)
    assert engine.scrub() == Scrubbed(done=True)
    read = zeroed_pages(monkeypatch)
    gone = churn(engine, seed)
    log = path.with_name(f"{path.name}-wal").stat().st_size

    assert engine.scrub() == Scrubbed(done=True)

    pages = {page for each in read for page in each}
    assert log < 100 * 4096 < path.stat().st_size
    assert len(read) > 1
    assert len(pages) < 200
    assert left_of(gone, path) == []


@pytest.mark.usefixtures("short_log")
@pytest.mark.parametrize("pages", [5, 30], ids=["before it was noted", "after it was noted"])
def test_all_pages_are_read_after_another_connection_truncated_a_log(
    engine: SQLiteEngine, path: Path, pages: int, monkeypatch: pytest.MonkeyPatch
):
    other = connect(str(path), "writer")
    fill_pages(engine, 100)
    assert engine.scrub() == Scrubbed(done=True)
    fill_pages(engine, pages)
    assert maintenance.empty(other)
    fill_pages(engine, 1)
    read = zeroed_pages(monkeypatch)

    assert engine.scrub() == Scrubbed(done=True)

    assert isinstance(read[0], range)


@pytest.mark.parametrize("kept", [0, 100, 9_000])
def test_a_log_that_is_truncated_while_it_is_read_is_erased_later(
    engine: SQLiteEngine, kept: int, path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Truncated(apsw.VFSFile):
        def xFileSize(self) -> int:  # noqa: N802 - SQLite's name
            size = super().xFileSize()
            os.truncate(f"{path}-wal", kept)
            return size

    fill_pages(engine, 10)
    connection = connect(str(path), "writer")
    assert maintenance.empty(connection)
    fill_pages(engine, 10)
    connection.raw.wal_checkpoint()
    unused = maintenance.UnusedSpace()
    with monkeypatch.context() as patch:
        patch.setattr(apsw, "VFSFile", Truncated)
        assert unused.erase(connection) == "held"

    assert engine.scrub() == Scrubbed(done=True)
    assert engine.all(Row, "select count(*) as n from filler") == [Row(n=20)]


def fill_pages(engine: SQLiteEngine, pages: int) -> None:
    engine.write(lambda tx: tx.run("create table if not exists filler (body blob)"))
    each = "insert into filler values (zeroblob(4000))"
    engine.write(lambda tx: [tx.run(each) for _ in range(pages)])


@pytest.mark.usefixtures("short_log")
def test_a_log_that_cannot_be_read_fails_no_write(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
):
    fill_pages(engine, 100)
    assert engine.scrub() == Scrubbed(done=True)
    with faulty_disk() as disk:
        disk.fail("pread", "-wal", errno.EIO)
        fill_pages(engine, 30)
        assert disk.pending == 0
    read = zeroed_pages(monkeypatch)

    assert engine.scrub() == Scrubbed(done=True)

    assert isinstance(read[0], range)
    assert engine.all(Row, "select count(*) as n from filler") == [Row(n=130)]


def test_without_a_free_descriptor_nothing_counts_as_erased(engine: SQLiteEngine, path: Path):
    scrubbed = threading.Event()
    assert engine.scrub() == Scrubbed(done=True)
    gone = churn(engine, SEEDS[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert engine.scrub(timeout=0.01) == Scrubbed(done=False, pending=("log",))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    engine.events.subscribe(lambda _: scrubbed.set(), {"engine.scrubbed"})
    engine.scrub_later()

    assert scrubbed.wait(60)
    assert left_of(gone, path) == []


@pytest.mark.usefixtures("short_log")
@pytest.mark.parametrize(("most", "forgotten"), [(20, True), (200, False)])
def test_so_many_pages_are_noted_and_no_more(
    engine: SQLiteEngine, most: int, monkeypatch: pytest.MonkeyPatch, *, forgotten: bool
):
    monkeypatch.setattr(maintenance, "_MOST_NOTED", most)
    fill_pages(engine, 100)
    assert engine.scrub() == Scrubbed(done=True)
    fill_pages(engine, 60)
    read = zeroed_pages(monkeypatch)

    assert engine.scrub() == Scrubbed(done=True)

    assert isinstance(read[0], range) == forgotten


@pytest.mark.usefixtures("short_log")
def test_writers_go_on_between_the_slices_of_a_scrub(
    engine: SQLiteEngine, sql: Row, monkeypatch: pytest.MonkeyPatch
):
    zero, writes = maintenance.zero, list["Future[int]"]()
    fill_pages(engine, 200)

    def zero_with_a_write_waiting(path: Path, pages: Sequence[int]) -> bool:
        assert all(write.done() for write in writes)
        writes.append(engine.submit(putting(sql, "a", len(writes))))
        return zero(path, pages)

    monkeypatch.setattr(maintenance, "zero", zero_with_a_write_waiting)

    while engine.scrub() != Scrubbed(done=True):
        assert len(writes) < 1_000

    assert len(writes) > 200 // 8


@pytest.mark.usefixtures("short_log")
def test_closing_ends_what_is_left_to_erase(opened: Callable[[], SQLiteEngine], path: Path):
    engine = opened()
    fill_pages(engine, 200)
    gone = churn(engine, SEEDS[0])
    engine.scrub_later()

    engine.close()

    assert left_of(gone, path) == []
