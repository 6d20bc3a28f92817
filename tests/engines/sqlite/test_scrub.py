import threading
from pathlib import Path
from types import SimpleNamespace as Row

from holdfast.engines.base import Reader, Scrubbed
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.testing.contracts.engine import putting

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
