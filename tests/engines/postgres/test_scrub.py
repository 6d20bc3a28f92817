"""Forgetting: dead rows leave tables and indexes as soon as nobody sees them."""

import subprocess
import threading
from collections.abc import Callable
from types import SimpleNamespace as Row

import psycopg

from holdfast.engines.base import Reader, Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import PostgresServer

MARKER = "needle-in-the-haystack"


def place(engine: PostgresEngine, sql: Row) -> str:
    """Return where a new row lands: the first place is free only if the dead are gone."""
    engine.write(lambda tx: tx.run(sql.put_new, key="new", number=1))
    where = engine.one(Row, "select cast(ctid as text) as place from scratch where key = 'new'")
    return where.place


def put_and_delete(engine: PostgresEngine, sql: Row) -> None:
    engine.write(lambda tx: tx.run(sql.put_new, key=MARKER, number=1))
    engine.write(lambda tx: tx.run(sql.delete, key=MARKER))


def test_a_deleted_row_is_gone_from_its_table(engine: PostgresEngine, sql: Row) -> None:
    put_and_delete(engine, sql)

    scrubbed = engine.scrub()

    assert (scrubbed.done, scrubbed.pending) == (True, ())
    assert place(engine, sql) == "(0,1)"


def test_what_a_reader_still_sees_is_pending_and_goes_when_it_ends(
    engine: PostgresEngine, sql: Row
) -> None:
    engine.write(lambda tx: tx.run(sql.put_new, key=MARKER, number=1))
    looked, ended = threading.Event(), threading.Event()

    def work(reader: Reader) -> int:
        reader.one(Row, sql.count)
        looked.set()
        ended.wait(60)
        return reader.one(Row, sql.count).n

    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.append(engine.read(work)))
    reader.start()
    looked.wait(60)
    engine.write(lambda tx: tx.run(sql.delete, key=MARKER))
    scrubbed = engine.scrub(timeout=0.1)
    pending = engine.status().metrics["erasure_pending"]
    told = threading.Event()
    engine.events.subscribe(lambda _: told.set(), types=("engine.scrubbed",))
    ended.set()
    reader.join()

    assert (scrubbed.done, pending, seen) == (False, 1, [1])
    assert told.wait(60)
    assert engine.status().metrics["erasure_pending"] == 0
    assert place(engine, sql) == "(0,1)"


def test_what_is_left_to_a_thread_is_gone_once_it_reports(engine: PostgresEngine, sql: Row) -> None:
    scrubbed = threading.Event()
    engine.events.subscribe(lambda _: scrubbed.set(), types=("engine.scrubbed",))
    engine.write(lambda tx: tx.run(sql.put_new, key=MARKER, number=1))

    def work(tx: Transaction) -> None:
        tx.run(sql.delete, key=MARKER)
        tx.after_commit(engine.scrub_later)

    engine.write(work)

    assert scrubbed.wait(60)
    assert engine.status().metrics["erasure_pending"] == 0
    assert place(engine, sql) == "(0,1)"


def test_many_may_scrub_at_once(engine: PostgresEngine, sql: Row) -> None:
    put_and_delete(engine, sql)
    done: list[bool] = []
    threads = [
        threading.Thread(target=lambda: done.append(engine.scrub(timeout=60).done))
        for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert done == [True] * 4


def test_a_full_scrub_leaves_nothing_in_the_tables_files_and_says_what_it_cannot_reach(
    engine: PostgresEngine, sql: Row, postgres_server: PostgresServer
) -> None:
    marker = "nowhere-" * 4
    engine.write(lambda tx: tx.run(sql.put_new, key=marker, number=1))
    engine.write(lambda tx: tx.run(sql.delete, key=marker))

    scrubbed = engine.scrub_full()

    found = subprocess.run(
        ["grep", "-rl", marker, str(postgres_server.folder / "data" / "base")],
        capture_output=True,
        check=False,
        text=True,
    )
    assert found.stdout == ""
    assert scrubbed.done
    assert "base backups" in scrubbed.pending


def test_a_login_that_owns_no_tables_says_which_it_could_not_scrub(
    postgres_server: PostgresServer,
    fresh_postgres_url: str,
    admin: psycopg.Connection,
    opened: Callable[[str], PostgresEngine],
) -> None:
    opened("").close()
    postgres_server.execute(
        "drop role if exists guest",
        "create role guest login",
        "grant holdfast_app to guest with inherit false, set true",
    )
    for statement in (
        "grant usage on schema holdfast to guest",
        "grant select on holdfast.migrations to guest",
    ):
        admin.execute(statement.encode())

    engine = PostgresEngine.open(
        fresh_postgres_url.replace("postgres@", "guest@"), clock=FrozenClock()
    )
    scrubbed = engine.scrub()
    engine.close()

    assert not scrubbed.done
    assert any("changes" in pending for pending in scrubbed.pending)
