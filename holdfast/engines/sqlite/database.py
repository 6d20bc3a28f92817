"""Open and check one SQLite database file."""

import logging
import os
import shutil
import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import monotonic

import apsw

from holdfast.engines.base import Dialect, Inside
from holdfast.engines.migrate import AppliedMigration, Migration, known, migrate, release
from holdfast.engines.sqlite.connection import (
    APPLICATION_ID,
    Connection,
    Role,
    connect,
    use_log,
)
from holdfast.engines.sqlite.target import (
    MEMORY,
    RISKY,
    SQLiteTarget,
    absent,
    examine,
    file_system,
    make_file,
    somebody_elses,
    unmade,
)
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import (
    Corrupt,
    EngineFault,
    HoldfastError,
    InvalidInput,
    TooNew,
    Unavailable,
)
from holdfast.ground.events import Event, EventBus, Fact

CHECK_SECONDS = 1.0
"""Least seconds between two checks of a file that showed damage."""

_CHECK_SHARE = 20
"""Least pause until the next check, in durations of the last one."""


class Database:
    """One database file, or one in memory, opened by this process.

    `turn` is the lock of the writer's connection; in memory that is the only connection.
    """

    def __init__(self, path: str, *, clock: Clock, events: EventBus, read_only: bool) -> None:
        self.path, self.clock, self.events, self.read_only = path, clock, events, read_only
        self.in_memory = path == MEMORY
        self.turn = threading.Lock()
        self.inside: dict[int, Inside] = {}
        self._stopped: Unavailable | None = None
        self._next_check = 0.0
        self._noted: deque[Event] = deque()
        self._identity = None if self.in_memory else _identity(path)

    def connect(self, role: Role) -> Connection:
        """Return a new connection to the opened file; Unavailable if it was replaced."""
        self.look_for_file()
        if self._stopped is not None and not isinstance(self._stopped, Corrupt):
            raise self._error()
        connection = connect(self.path, role, read_only=self.read_only)
        connection.noticed = self.noticed
        return connection

    def check_writable(self) -> None:
        """Raise the reason why writes are refused: read-only, deleted, damaged.

        A file that showed damage passes when it is due to be checked.
        """
        if self._stopped is not None and not self._check_due:
            raise self._error()
        if self.read_only:
            raise Unavailable(
                f"{self.path} is open for reading only.",
                reason="read_only",
                next="Give write permission on the file and open it again.",
            )

    def check_sound(self) -> None:
        """Raise the reason why writes stopped: damage, or a deleted or replaced file."""
        if self._stopped is not None:
            raise self._error()

    def noticed(self, error: HoldfastError) -> None:
        """Stop further writes if *error* reports damage.

        A disk that fails one read raises the same error, so `recheck` decides before a write is
        refused.
        """
        if isinstance(error, Corrupt) and self._stopped is None:
            self._stopped = error
            if self.in_memory or isinstance(error.__cause__, UnicodeDecodeError):
                # No other connection sees it, or SQLite does not check it.
                self._next_check = float("inf")

    def recheck(self) -> None:
        """Check a file that showed damage, if it is due; the caller holds the turn.

        The check reads the whole file on a new connection, which has no page of the failed read
        in its cache. Writes resume if the file is sound.
        """
        if self._stopped is None or not self._check_due:
            return
        begun = monotonic()
        sound = self._is_sound()
        now = monotonic()
        self._next_check = now + max(CHECK_SECONDS, _CHECK_SHARE * (now - begun))
        if sound:
            self._stopped = None
            self.note("recovered", writes=0)

    def look_for_file(self) -> bool:
        """Stop further writes if the file is not the one that was opened.

        Return whether writes may go on.
        """
        if (
            (self._stopped is None or isinstance(self._stopped, Corrupt))
            and not self.in_memory
            and _identity(self.path) != self._identity
        ):
            self._stopped = Unavailable(
                f"{self.path} was deleted or replaced while it was open.",
                reason="replaced",
                next="Open the database again.",
            )
        return self._stopped is None

    def left_behind(self) -> None:
        """Adapt to a fork in the child: a database in memory stays with the parent."""
        self.inside.clear()
        if self.in_memory:
            self._stopped = Unavailable(
                "A database in memory stays with the process that opened it.",
                reason="closed",
                next="Open another one after the fork.",
            )

    @property
    def stopped(self) -> str | None:
        """The reason why writes stopped, or None."""
        if self._stopped is None:
            return None
        return "corrupt" if isinstance(self._stopped, Corrupt) else self._stopped.reason

    def note(self, type: str, **data: Fact) -> None:
        """Queue an event about the engine until `send`: a listener may need the turn."""
        if self.events.heard:
            at = self.clock.now()
            self._noted.append(Event(type=f"engine.{type}", at=at, workspace="*", data=data))

    def send(self) -> None:
        """Publish the queued events; the caller must not hold the turn."""
        while self._noted:
            self.events.publish(self._noted.popleft())

    def publish(self, type: str, **data: Fact) -> None:
        """Queue an event, and publish all."""
        self.note(type, **data)
        self.send()

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log."""
        try:
            return os.stat(self.path + "-wal").st_size  # noqa: PTH116 - once a group; a Path costs more
        except OSError:
            return 0

    @property
    def _check_due(self) -> bool:
        return isinstance(self._stopped, Corrupt) and monotonic() >= self._next_check

    def _is_sound(self) -> bool:
        try:
            # Not through `noticed`: an error of the check is its result.
            connection = connect(self.path, "reader", read_only=self.read_only)
        except HoldfastError:
            return False
        try:
            return connection.execute("pragma quick_check(1)").fetchall() == [("ok",)]
        except apsw.Error:
            return False
        finally:
            connection.raw.close(force=True)

    def _error(self) -> Unavailable:
        # A new one each time: threads that raise one error object mix up its traceback.
        stopped = self._stopped
        if isinstance(stopped, Corrupt):
            return Corrupt(stopped.path, stopped.findings)
        if stopped is None:
            raise EngineFault("The engine was not stopped, so it has no reason.")
        return Unavailable(stopped.message, reason=stopped.reason, next=stopped.next)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - a plain name is all there is
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


_COPY_UNDER = 1024**3
"""Size in bytes below which a database is copied before it is migrated."""

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
    """Open the database *target*, created and migrated if needed.

    Return it with a connection to write with.

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
        if target.in_memory and migrations and not read_only:
            applied = ground.copy_schema()
        else:
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
    """Mark a new file as ours before anything else is written."""
    if connection.path == MEMORY:
        return
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
    """Return the actual error when the folder is not writable, else *error*."""
    folder = Path(target.path).parent
    if error.reason not in ("io", "read_only") or target.in_memory or os.access(folder, os.W_OK):
        return error
    return Unavailable(
        f"{target.path} cannot be opened: its folder cannot be written, and a database keeps its"
        " log beside it.",
        reason="read_only",
        next="Copy the file to a folder that you may write to, and open the copy.",
    )


@cache
def _migrated() -> bytes:
    """Return the bytes of a new database that was migrated."""
    connection = connect(MEMORY, "writer")
    migrate(SQLiteGround(connection, SystemClock()))
    image = connection.raw.serialize("main")
    connection.raw.close()
    return image


def _warn(database: Database, target: SQLiteTarget) -> None:
    if target.in_memory:
        return
    kind = file_system(target.path)
    if kind in RISKY:
        _log.warning("%s is on %s, where machines must not share it", target.path, kind)
        database.publish("risky_filesystem", file_system=kind)


class SQLiteGround:
    """A SQLite database for the migrations."""

    dialect: Dialect = "sqlite"

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection, self._clock = connection, clock

    def copy_schema(self) -> tuple[Migration, ...]:
        """Copy this release's schema into a new database in memory; faster than `migrate`."""
        source = apsw.Connection(MEMORY)
        source.deserialize("main", _migrated())  # pyright: ignore[reportUnknownMemberType] - untyped
        with self._connection.raw.backup("main", source, "main") as copy:
            copy.step()
        source.close()
        self._connection.do(f"update migrations set at = {to_microseconds(self._clock.now())}")
        return known("sqlite")

    def recorded(self) -> list[AppliedMigration]:
        """Return the applied migrations; none for a new database."""
        if not self._connection.number(_HAS_MIGRATIONS):
            return []
        return self._connection.all(AppliedMigration, _RECORDED, {})

    @contextmanager
    def locked(self) -> Generator[None]:
        """Return a write transaction; an error rolls it back."""
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
        """Record, within `locked`, that *migration* was applied."""
        now = to_microseconds(self._clock.now())
        row = (migration.number, migration.name, migration.sha256, now, release())
        self._connection.run_tuples(_RECORD, [row])
        self._connection.do(f"pragma user_version = {migration.number}")

    def keep_copy(self, number: int) -> None:
        """Copy a file with migrations to `<file>.before-<number>`.

        A file of 1 GiB or more, or without twice its size free on disk, is not copied.
        """
        path = self._connection.path
        if path == ":memory:" or not self.recorded():
            return
        copy, part = Path(f"{path}.before-{number}"), Path(f"{path}.before-{number}.{os.getpid()}")
        size = Path(path).stat().st_size
        if size >= _COPY_UNDER or shutil.disk_usage(copy.parent).free < 2 * size:
            _log.warning("%s is migrated without a copy: %d bytes are too many", path, size)
            return
        try:
            os.close(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600))
            self._connection.copy_into(str(part))
            part.replace(copy)
        except OSError as error:
            raise unmade(copy, error) from error
        finally:
            part.unlink(missing_ok=True)
