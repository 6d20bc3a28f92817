"""Erase dead rows from PostgreSQL's table files."""

import threading
from contextlib import closing
from math import inf
from time import monotonic
from typing import Any

import psycopg
from psycopg import sql

from holdfast.engines.base import Scrubbed
from holdfast.engines.postgres.faults import fault_of
from holdfast.engines.postgres.server import PostgresServer

BEYOND_US = ("the server's log until it is recycled", "archives", "base backups", "standbys")
"""Copies of deleted content that only the server's owner can clear."""

_EVERY, _LATER_EVERY = 0.05, 1.0
_LATER_AT_MOST_EVERY = 60.0
"""Seconds. Entries expire all the time, and a vacuum reads every index it cleans."""

_MARK = "select cast(pg_snapshot_xmax(pg_current_snapshot()) as text)"
_PINNED = """
select count(*) from pg_stat_activity
where pid <> pg_backend_pid() and datname = current_database()
    and (age(backend_xmin) > age(cast(cast(%(mark)s as xid8) as xid))
        or age(backend_xid) > age(cast(cast(%(mark)s as xid8) as xid)))
"""
_TABLES = """
select relname, pg_has_role(current_user, relowner, 'USAGE') from pg_class
where relnamespace = cast('holdfast' as regnamespace) and relkind = 'r' order by relname
"""
# Dead index entries are removed however few they are, and no table is locked for truncation.
_VACUUM = "vacuum (index_cleanup on, truncate off) {}"


def scrub(server: PostgresServer, timeout: float) -> Scrubbed:
    """Vacuum our tables; wait up to *timeout* seconds for older snapshots to end.

    After that a thread does the rest, within seconds of the last reader's end.
    """
    until = monotonic() + timeout
    if not server.upkeep.acquire(timeout=timeout):
        return Scrubbed(done=False, pending=("rows that another scrub is at",))
    try:
        with closing(_connect(server)) as connection:
            mark = _value(connection, _MARK)
            pinned = _wait(connection, mark, until)
            strange = _vacuum(connection)
    except psycopg.Error as error:
        raise fault_of(error, target=server.target.shown, name="scrub").error from error
    finally:
        server.upkeep.release()
    if pinned:
        _finish_later(server, monotonic())
    pending = (("rows that a reader still sees",) if pinned else ()) + strange
    if not pending:
        server.publish("scrubbed")
    return Scrubbed(done=not pending, pending=pending)


def scrub_later(server: PostgresServer) -> None:
    """Scrub in a thread now, or a minute after its last scrub."""
    _finish_later(server, server.erasure.done_at + _LATER_AT_MOST_EVERY)


def scrub_full(server: PostgresServer) -> Scrubbed:
    """Rewrite our tables without deleted content, and start a new log segment.

    Each table is locked while it is rewritten. `pending` names the places out of our reach.
    """
    out_of_reach: list[str] = []
    try:
        with server.upkeep, closing(_connect(server)) as connection:
            ours, strange = _tables(connection)
            for table in ours:
                connection.execute(sql.SQL("vacuum (full, analyze) {}").format(table))
            for statement in ("checkpoint", "select pg_switch_wal()"):
                try:
                    connection.execute(statement)
                except psycopg.errors.InsufficientPrivilege:
                    out_of_reach.append(f"{statement!r}, which this login may not do")
    except psycopg.Error as error:
        raise fault_of(error, target=server.target.shown, name="scrub").error from error
    server.publish("scrubbed")
    return Scrubbed(done=not strange, pending=(*strange, *out_of_reach, *BEYOND_US))


def _connect(server: PostgresServer) -> "psycopg.Connection[Any]":
    connection = server.connect()
    connection.execute("set statement_timeout = 0")
    connection.execute("set lock_timeout = '5s'")
    return connection


def _wait(connection: "psycopg.Connection[Any]", mark: object, until: float) -> bool:
    """Wait until no snapshot is older than *mark*; return whether one still is."""
    pause = threading.Event()
    while _value(connection, _PINNED, {"mark": mark}):
        if monotonic() >= until:
            return True
        pause.wait(_EVERY)
    return False


def _vacuum(connection: "psycopg.Connection[Any]") -> tuple[str, ...]:
    ours, strange = _tables(connection)
    if ours:
        connection.execute(sql.SQL(_VACUUM).format(sql.SQL(", ").join(ours)))
    return strange


def _tables(
    connection: "psycopg.Connection[Any]",
) -> tuple[list[sql.Identifier], tuple[str, ...]]:
    """Return our tables, and descriptions of those that the login may not vacuum."""
    rows = connection.execute(_TABLES).fetchall()
    ours = [sql.Identifier("holdfast", name) for name, may in rows if may]
    return ours, tuple(
        f"the table {name}, which another login owns" for name, may in rows if not may
    )


def _finish_later(server: PostgresServer, due_at: float) -> None:
    """Scrub in a thread at *due_at*, or sooner if another caller requests that."""
    erasure = server.erasure
    with erasure.lock:
        erasure.requests += 1
        erasure.due_at = min(erasure.due_at, due_at)
        if erasure.pending:
            return
        erasure.pending = True
    threading.Thread(target=_finish, args=(server,), name="holdfast-scrub", daemon=True).start()


def _finish(server: PostgresServer) -> None:
    pause, erasure = threading.Event(), server.erasure
    mark, requests = None, 0
    while not server.closed:
        if mark is None:
            if (left := erasure.due_at - monotonic()) > 0:
                pause.wait(min(left, _LATER_EVERY))
                continue
            with erasure.lock:
                requests, erasure.due_at = erasure.requests, inf
        try:
            with server.upkeep, closing(_connect(server)) as connection:
                mark = _value(connection, _MARK) if mark is None else mark
                if _wait(connection, mark, monotonic() + _LATER_EVERY):
                    continue
                _vacuum(connection)
        except psycopg.Error:
            # The server is unreachable; the scrub is retried.
            with erasure.lock:
                erasure.due_at = min(erasure.due_at, monotonic() + _LATER_EVERY)
            pause.wait(_LATER_EVERY)
            continue
        mark = None
        with erasure.lock:
            erasure.done_at = monotonic()
            erasure.pending = erasure.requests != requests
        if not erasure.pending:
            server.publish("scrubbed")
            return


def _value(
    connection: "psycopg.Connection[Any]", statement: str, params: dict[str, object] | None = None
) -> Any:
    row = connection.execute(statement.encode(), params).fetchone()
    return row[0] if row else None
