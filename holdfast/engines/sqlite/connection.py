"""Connections to SQLite through apsw, with its errors mapped to ours.

A statement is fetched to its end before a call returns: an unfinished one would pin a snapshot,
the log would grow without bound, and later writes would fail.
"""

import errno
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeVar, cast

import apsw

from holdfast.engines.base import Make, Row
from holdfast.engines.queries import name_of, only
from holdfast.ground.errors import Corrupt, EngineFault, HoldfastError, Reason, Unavailable

SPOKEN = (apsw.Error, KeyError, TypeError, ValueError, OverflowError)
"""Errors of running a statement: SQLite's, and Python's about bound values."""

_REASONS: tuple[tuple[type[apsw.Error], Reason, str], ...] = (
    (apsw.BusyError, "busy", "Another program holds the database's lock."),
    (apsw.ProtocolError, "busy", "Too many programs reach for the database's lock."),
    (apsw.LockedError, "locked", "A table is locked."),
    (apsw.FullError, "full", "The disk or the quota is full."),
    (apsw.ReadOnlyError, "read_only", "The database cannot be written."),
    (apsw.PermissionsError, "read_only", "The database's files may not be opened."),
    (apsw.IOError, "io", "Reading or writing the database's files failed."),
    (apsw.CantOpenError, "io", "The database's files cannot be opened."),
    (apsw.NoMemError, "overloaded", "There is not enough memory."),
    (apsw.InterruptError, "timeout", "The statement was interrupted."),
)
_NEXT: dict[Reason, str] = {
    "full": "Free some space; the next write then succeeds by itself.",
    "read_only": "Give write permission on the file and its folder, or only read.",
    "io": "Check the disk and the file, then open the database again.",
}


FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errnos of a full disk and of a full quota."""

_GROWTH = (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_CANTOPEN)


def fault_of(error: Exception, *, path: str, sql: str = "", number: int = 0) -> HoldfastError:
    """Return our error for *error*, raised by *sql* in the database at *path*.

    *number* is the system's errno, if it is known: SQLite reports a full quota as an I/O error.
    An error that neither the environment nor a damaged file explains is a bug: EngineFault. The
    caller raises it `from` *error*.
    """
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError)):
        return Corrupt(path, str(error))
    full = number in FULL and getattr(error, "extendedresult", 0) in _GROWTH
    raised = apsw.FullError if full else type(error)
    for kind, reason, message in _REASONS:
        if issubclass(raised, kind):
            return Unavailable(
                f"{message} ({error})",
                reason=reason,
                retry_after=1.0 if reason in ("busy", "locked") else None,
                next=_NEXT.get(reason, "Try again in a moment."),
            )
    name = name_of(sql)
    what = f"no value for :{error.args[0]}" if isinstance(error, KeyError) else str(error)
    return EngineFault(f"The statement {name!r} failed: {what}.", statement=name)


T = TypeVar("T")
Params = Mapping[str, object]
Value = str | int | float | bytes | None
Role = Literal["writer", "reader"]

PATIENCE = 5.0
"""Seconds that a reader, or opening a database, waits for a lock."""

APPLICATION_ID = 0x484F4C44
AUTOCHECKPOINT = 4000
"""Pages of log after which a commit also checkpoints."""

# KiB. Four times as much was no faster on a file of 400 MB, and took hours to fill.
_CACHE = {"writer": -16384, "reader": -4096}
_STEPS = (0.001, 0.002, 0.005, 0.010, 0.015)
_CACHED_STATEMENTS = 256


class StatementRows(Protocol):
    """Result of a statement: the part of the driver's cursor that is used."""

    def fetchall(self) -> list[tuple[Value, ...]]:
        """Return the rows not fetched yet."""
        ...

    def get_description(self) -> tuple[tuple[str, str | None], ...]:
        """Return each column's name and declared type, while there are rows."""
        ...


class Execute(Protocol):
    """The driver's call to run a statement."""

    def __call__(
        self, sql: str, params: Params | tuple[Value, ...] | None = None, /
    ) -> StatementRows:
        """Run *sql* up to its first row."""
        ...


class ExecuteEach(Protocol):
    """The driver's call to run a statement for each of many rows."""

    def __call__(self, sql: str, rows: Sequence[Row], /) -> StatementRows:
        """Run *sql* for each of *rows*."""
        ...


class Patience:
    """Busy handler: wait for a lock with backoff, until a deadline or for a span.

    `until` is a time of the monotonic clock, `span` is in seconds. Each step has 50 % jitter, so
    that processes that collided once do not keep colliding. `meanwhile` is called before each
    step.
    """

    def __init__(self) -> None:
        self.until = 0.0
        self.span = 0.0
        self.meanwhile: Callable[[], None] | None = None

    def __call__(self, attempt: int) -> bool:
        """Sleep before the next attempt, or return False after the deadline."""
        if self.meanwhile is not None:
            self.meanwhile()
        if self.span and attempt == 0:
            self.until = time.monotonic() + self.span
        left = self.until - time.monotonic()
        if left <= 0:
            return False
        step = _STEPS[attempt] if attempt < len(_STEPS) else min(0.020 + attempt / 1000, 0.050)
        time.sleep(min(left, step * random.uniform(0.5, 1.5)))  # noqa: S311 - jitter, no secret
        return True


class Connection:
    """A connection for one thread at a time.

    It raises our errors, with the driver's as their cause.
    """

    __slots__ = (
        "_names",
        "execute",
        "execute_each",
        "noticed",
        "path",
        "patience",
        "raw",
        "reading",
        "statements",
    )

    def __init__(self, raw: apsw.Connection, path: str) -> None:
        self.raw, self.path = raw, path
        # The driver's stub names a type that is missing in the oldest supported Python.
        self.execute = cast("Execute", raw.execute)  # pyright: ignore[reportUnknownMemberType]
        self.execute_each = cast("ExecuteEach", raw.executemany)  # pyright: ignore[reportUnknownMemberType]
        self.patience = Patience()
        raw.set_busy_handler(self.patience)
        self._names: dict[str, tuple[str, ...]] = {}
        self.statements = 0
        self.reading = False
        self.noticed: Callable[[HoldfastError], None] | None = None

    def all(self, make: Make[T], sql: str, params: Params) -> list[T]:
        """Return every row of *sql*, each made by *make*."""
        self.statements += 1
        try:
            cursor = self.execute(sql, params)
            names = self._names.get(sql) or self._learn(sql, cursor)
            rows = cursor.fetchall()
        except SPOKEN as error:
            raise self.fault(error, sql) from error
        return [make(**dict(zip(names, row, strict=True))) for row in rows]

    def rows(self, sql: str, params: Params) -> list[Row]:
        """Return every row of *sql* as a tuple."""
        self.statements += 1
        try:
            return self.execute(sql, params).fetchall()
        except SPOKEN as error:
            raise self.fault(error, sql) from error

    def first(self, make: Make[T], sql: str, params: Params) -> T | None:
        """Return the first row of *sql*, or None."""
        self.statements += 1
        try:
            cursor = self.execute(sql, params)
            names = self._names.get(sql) or self._learn(sql, cursor)
            rows = cursor.fetchall()
        except SPOKEN as error:
            raise self.fault(error, sql) from error
        return make(**dict(zip(names, rows[0], strict=True))) if rows else None

    def one(self, make: Make[T], sql: str, params: Params) -> T:
        """Return the only row of *sql*; another number of rows is EngineFault."""
        return only(self.all(make, sql, params), sql)

    def run(self, sql: str, params: Params) -> int:
        """Run *sql*; return how many rows it changed."""
        self.statements += 1
        try:
            self.execute(sql, params).fetchall()
            return self.raw.changes()
        except SPOKEN as error:
            raise self.fault(error, sql) from error

    def run_each(self, sql: str, given: Iterable[Params]) -> int:
        """Run *sql* with each of *given*; return the total of changed rows.

        It counts as one statement for any number of rows, as it is one round trip on PostgreSQL.
        """
        self.statements += 1
        execute, changes, changed = self.execute, self.raw.changes, 0
        try:
            for params in given:
                execute(sql, params).fetchall()
                changed += changes()
        except SPOKEN as error:
            raise self.fault(error, sql) from error
        return changed

    def run_tuples(self, sql: str, rows: Sequence[Row]) -> None:
        """Run *sql* with each of *rows*, values in the order of its parameters.

        It counts as one statement.
        """
        self.statements += 1
        try:
            self.execute_each(sql, rows).fetchall()
        except SPOKEN as error:
            raise self.fault(error, sql) from error

    def copy_into(self, target: str) -> None:
        """Copy the database, without free pages, to the empty file *target*."""
        try:
            self.run("vacuum into :target", {"target": target})
        except Unavailable as error:
            if error.reason == "read_only":
                raise _sealed(target) from error
            raise

    def number(self, sql: str) -> int:
        """Return the number that *sql*, internal upkeep, selects; 0 without a row."""
        try:
            rows = self.execute(sql).fetchall()
        except SPOKEN as error:
            raise self.fault(error, sql) from error
        return cast("int", rows[0][0]) if rows else 0

    def do(self, sql: str) -> None:
        """Run *sql*, internal upkeep."""
        try:
            self.execute(sql).fetchall()
        except SPOKEN as error:
            raise self.fault(error, sql) from error

    def fault(self, error: Exception, sql: str = "") -> HoldfastError:
        """Return our error for *error*, after passing it to `noticed`."""
        if self.reading and getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY:
            name = name_of(sql)
            return EngineFault(f"{name!r} writes where only reading is done.", statement=name)
        fault = fault_of(error, path=self.path, sql=sql, number=self.raw.system_errno)
        fault.__cause__ = error
        if self.noticed is not None:
            self.noticed(fault)
        return fault

    def _learn(self, sql: str, cursor: StatementRows) -> tuple[str, ...]:
        try:
            names = tuple(column[0] for column in cursor.get_description())
        except apsw.ExecutionCompleteError:  # no row, so no names are needed either
            return ()
        self._names[sql] = names
        return names


def connect(path: str, role: Role, *, read_only: bool = False) -> Connection:
    """Return a new connection to *path* (`:memory:` for none), with every pragma set.

    Raises Unavailable and Corrupt.
    """
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    if path == ":memory:":
        flags |= apsw.SQLITE_OPEN_CREATE
    try:
        raw = apsw.Connection(path, flags, statementcachesize=_CACHED_STATEMENTS)
    except apsw.Error as error:
        raise fault_of(error, path=path) from error
    connection = Connection(raw, path)
    connection.patience.until = time.monotonic() + PATIENCE
    connection.patience.span = PATIENCE if role == "reader" else 0.0
    connection.reading = role == "reader"
    try:
        _set_up(connection, role, read_only=read_only)
        if role == "writer" and not read_only:
            _check_writable(connection)
    except BaseException:
        raw.close(force=True)
        raise
    return connection


def _set_up(connection: Connection, role: Role, *, read_only: bool) -> None:
    connection.raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    # Otherwise SQLite plans a join again whenever its parameters change, at three times the cost
    # of running it.
    connection.raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    settings: dict[str, int] = {
        "mmap_size": 0,
        "temp_store": 2,
        "trusted_schema": 0,
        "foreign_keys": 1,
        "cache_size": _CACHE[role],
        "synchronous": 2,
    }
    if role == "writer" and not read_only:
        settings |= {"secure_delete": 1, "wal_autocheckpoint": AUTOCHECKPOINT}
    elif connection.path != ":memory:":
        settings["query_only"] = 1
    for name, value in settings.items():
        connection.do(f"pragma {name} = {value}")
    for name in ("synchronous", "foreign_keys"):
        if connection.number(f"pragma {name}") != settings[name]:
            raise EngineFault(f"SQLite did not take the setting {name}.")


def _check_writable(connection: Connection) -> None:
    """Raise Unavailable if SQLite has opened the files for reading only.

    It does so, for as long as they are open, when it cannot open them for writing for any reason.
    """
    sealed, cause = connection.raw.readonly("main"), None
    try:
        if not sealed:
            connection.execute("begin immediate").fetchall()
            connection.execute("rollback").fetchall()
    except apsw.BusyError:
        # Another process writes, so this one may.
        return
    except apsw.ReadOnlyError as error:
        sealed, cause = True, error
    except apsw.Error as error:
        raise connection.fault(error) from error
    if sealed:
        raise _sealed(connection.path) from cause


def _sealed(path: str) -> Unavailable:
    """Return the error of a file that SQLite has opened for reading only."""
    reason: Reason = "io" if os.access(path, os.W_OK) else "read_only"
    message = f"{path} could not be opened for writing."
    return Unavailable(message, reason=reason, next=_NEXT[reason])


def use_log(connection: Connection) -> None:
    """Enable the write-ahead log permanently; Unavailable if that is impossible.

    SQLite does not call the busy handler for this, so this function waits.
    """
    attempt = 0
    while True:
        try:
            mode = connection.execute("pragma journal_mode = wal").fetchall()[0][0]
        except apsw.BusyError as error:
            if not connection.patience(attempt):
                raise connection.fault(error) from error
            attempt += 1
            continue
        except apsw.Error as error:
            raise connection.fault(error) from error
        if mode != "wal":
            raise Unavailable(
                f"{connection.path} cannot keep a write-ahead log here; its mode stayed {mode}.",
                reason="io",
                next="Put the database on a local file system.",
            )
        return
