"""From a target to a database of ours with this release's schema, or a reason why not."""

import logging
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast.engines.base import Dialect
from holdfast.engines.migrate import AppliedMigration, Migration, known, migrate, release
from holdfast.engines.sqlite.connection import APPLICATION_ID, Connection, use_log
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.target import (
    RISKY,
    SQLiteTarget,
    absent,
    examine,
    file_system,
    make_file,
    somebody_elses,
)
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import InvalidInput, TooNew, Unavailable
from holdfast.ground.events import EventBus

_COPY_UNDER = 1024**3
"""Bytes of a database that is still copied before it is migrated."""

_log = logging.getLogger(__name__)

_HAS_MIGRATIONS = "select count(*) from sqlite_schema where name = 'migrations'"
_RECORDED = "select number, name, sha256 from migrations order by number"
_RECORD = "insert into migrations (number, name, sha256, at, release) values (?, ?, ?, ?, ?)"


def open_database(
    target: SQLiteTarget,
    *,
    clock: Clock,
    events: EventBus,
    migrations: bool,
    read_only: bool,
    create: bool = True,
) -> tuple[Database, Connection]:
    """Return the database *target*, made and migrated if need be, and a connection to write with.

    A file that may not be written is opened for reading only. Raises InvalidInput for another
    program's file, NotFound without *create* where there is no database, Corrupt, TooNew, and
    Unavailable with the reason.
    """
    if not target.in_memory:
        read_only = _prepare(target, read_only=read_only, create=create)
    database = Database(target.path, clock=clock, events=events, read_only=read_only)
    try:
        connection = database.connect("writer")
    except Unavailable as error:
        raise _without_folder(error, target) from error
    try:
        if not read_only:
            _claim(connection)
        ground = SQLiteGround(connection, clock)
        _refuse_newer(connection)
        applied = migrate(ground, allowed=migrations and not read_only)
    except Unavailable as error:
        connection.raw.close(force=True)
        raise _without_folder(error, target) from error
    except BaseException:
        connection.raw.close(force=True)
        raise
    if applied:
        database.publish("migrated", applied=len(applied), schema=applied[-1].number)
    _warn(database, target)
    database.publish("opened", read_only=read_only)
    return database, connection


def _prepare(target: SQLiteTarget, *, read_only: bool, create: bool) -> bool:
    path = Path(target.path)
    if not path.exists():
        if not create:
            raise absent(target.path)
        if read_only:
            raise InvalidInput("target", "must exist to be read", given=target.path)
        make_file(target)
    if examine(target.path) == "new" and not create:
        raise absent(target.path)
    return read_only or not os.access(path, os.W_OK)


def _claim(connection: Connection) -> None:
    """Mark a new file as ours, before there is anything else in it."""
    if connection.path != ":memory:":
        connection.do("begin")
        owner = connection.number("pragma application_id")
        tables = connection.number("select count(*) from sqlite_schema")
        connection.do("commit")
        if owner not in (0, APPLICATION_ID) or (owner == 0 and tables):
            raise somebody_elses(connection.path)
        if owner == 0:
            connection.do(f"pragma application_id = {APPLICATION_ID}")
        use_log(connection)


def _refuse_newer(connection: Connection) -> None:
    newest = max(one.number for one in known("sqlite"))
    if (found := connection.number("pragma user_version")) > newest:
        raise TooNew(found, newest)


def _without_folder(error: Unavailable, target: SQLiteTarget) -> Unavailable:
    """Say what is really wrong when it is the folder that may not be written."""
    folder = Path(target.path).parent
    if error.reason not in ("io", "read_only") or target.in_memory or os.access(folder, os.W_OK):
        return error
    return Unavailable(
        f"{target.path} cannot be opened: its folder cannot be written, and a database keeps its"
        " log beside it.",
        reason="read_only",
        next="Copy the file to a folder that you may write to, and open the copy.",
    )


def _warn(database: Database, target: SQLiteTarget) -> None:
    if target.in_memory:
        return
    kind = file_system(target.path)
    if kind in RISKY:
        _log.warning("%s is on %s, where machines must not share it", target.path, kind)
        database.publish("risky_filesystem", file_system=kind)


class SQLiteGround:
    """A SQLite database, as the migrations see it."""

    dialect: Dialect = "sqlite"

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection, self._clock = connection, clock

    def recorded(self) -> list[AppliedMigration]:
        """Return the steps it has taken; none when it is new."""
        if not self._connection.number(_HAS_MIGRATIONS):
            return []
        return self._connection.all(AppliedMigration, _RECORDED, {})

    @contextmanager
    def locked(self) -> Generator[None]:
        """Return a transaction that nobody else writes beside; an error undoes it."""
        self._connection.do("begin immediate")
        try:
            yield
            self._connection.do("commit")
        except BaseException:
            if self._connection.raw.in_transaction:
                self._connection.do("rollback")
            raise

    def execute(self, statement: str) -> None:
        """Run one statement within `locked`."""
        self._connection.do(statement)

    def record(self, migration: Migration) -> None:
        """Write down, within `locked`, that *migration* was applied."""
        now = to_microseconds(self._clock.now())
        row = (migration.number, migration.name, migration.sha256, now, release())
        self._connection.execute(_RECORD, row).fetchall()
        self._connection.do(f"pragma user_version = {migration.number}")

    def keep_copy(self, number: int) -> None:
        """Copy a used file to `<file>.before-<number>`, if it is small enough and there is room."""
        path = self._connection.path
        if path == ":memory:" or not self.recorded():
            return
        copy, part = Path(f"{path}.before-{number}"), Path(f"{path}.before-{number}.{os.getpid()}")
        size = Path(path).stat().st_size
        if size >= _COPY_UNDER or shutil.disk_usage(copy.parent).free < 2 * size:
            _log.warning("%s is migrated without a copy: %d bytes are too many", path, size)
            return
        os.close(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600))
        try:
            self._connection.execute("vacuum into ?", (str(part),)).fetchall()
            part.replace(copy)
        finally:
            part.unlink(missing_ok=True)
