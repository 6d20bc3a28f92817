"""Open and check one SQLite database file."""

import errno
import logging
import os
import re
import shutil
import threading
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Literal

import apsw
from msgspec import Struct
from platformdirs import user_data_dir

from holdfast.engines.base import Dialect, Inside
from holdfast.engines.migrate import AppliedMigration, Migration, known, migrate, release
from holdfast.engines.sqlite.connection import (
    APPLICATION_ID,
    FULL,
    Connection,
    Role,
    connect,
    fault_of,
    use_log,
)
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import (
    SHOWN,
    Corrupt,
    EngineFault,
    HoldfastError,
    InvalidInput,
    NotFound,
    TooNew,
    Unavailable,
)
from holdfast.ground.events import Event, EventBus, Fact
from holdfast.ground.permissions import create_folders
from holdfast.ground.text import nearest

# Bytes are read through SQLite's own file layer only: a plain `open` and `close` of a file that is
# in use would release the locks that this process holds on it.

MEMORY = ":memory:"
RISKY = frozenset({"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ceph", "lustre"})
"""File systems between machines, where a write-ahead log does not work."""

MOST_FILES = 1_000
"""Files of a folder that are examined to suggest another database."""

JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""First bytes of a rollback journal once it is on disk."""

_JOURNAL_HEADER = 28
_MAGIC = b"SQLite format 3\0"
_FRACTIONS = bytes((64, 32, 32))
"""Bytes 21 to 23 of every SQLite database."""

_LEAST = 512
"""Bytes of the smallest page."""

_LEAF = 0x0D
_OCTAL = re.compile(r"\\([0-7]{3})")


class SQLiteTarget(Struct, frozen=True, kw_only=True):
    """A database file, or none for one in memory."""

    path: str
    default: bool = False

    @property
    def in_memory(self) -> bool:
        """Whether the database is in memory and ends with the engine."""
        return self.path == MEMORY


def resolve(target: str | Path | None) -> SQLiteTarget:
    """Resolve *target*: a path, `sqlite:PATH`, `:memory:`; None: the user's own.

    A symbolic link is followed, so that two names of one file are one path. Nothing in a path
    is special: a `?` is a question mark. Raises InvalidInput when its folder does not exist.
    """
    if target is None:
        path = Path(user_data_dir("holdfast", appauthor=False)) / "holdfast.db"
        return SQLiteTarget(path=os.path.realpath(path), default=True)
    text = str(target)
    if isinstance(target, str):
        text = text.removeprefix("sqlite:")
        if text == MEMORY:
            return SQLiteTarget(path=MEMORY)
    if not text or "\0" in text:
        raise InvalidInput("target", "must be a path, sqlite:PATH or :memory:", given=target)
    path = Path(os.path.realpath(text))
    if not path.parent.is_dir():
        raise InvalidInput("target", "must be in a folder that exists", given=text)
    if path.is_dir():
        raise InvalidInput("target", "must be a file, and this is a folder", given=text)
    return SQLiteTarget(path=str(path))


def make_file(target: SQLiteTarget) -> bool:
    """Create *target*'s file with mode 0600 if missing; return whether it did."""
    path = Path(target.path)
    try:
        if target.default:
            create_folders(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise _unmade(path, error) from error
    return True


_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def _unmade(path: Path, error: OSError) -> Unavailable:
    """Return our error for *error*, raised where the file *path* is created."""
    message = f"{path} cannot be made: {error.strerror}."
    if error.errno in FULL:
        return Unavailable(message, reason="full", next="Free some space, then open it again.")
    if error.errno in _FORBIDDEN:
        return Unavailable(
            message, reason="read_only", next="Choose a folder that you may write to."
        )
    return Unavailable(message, reason="io", next="Check the disk, then open it again.")


Found = Literal["new", "ours"]


def examine(path: str) -> Found:
    """Check the first page of the file at *path*: is it new or ours?

    Raises Corrupt when it is no database, InvalidInput when it is another program's. Nothing is
    written.
    """
    size = os.stat(path).st_size  # noqa: PTH116 - beside the calls of SQLite's own file layer
    if size == 0:
        return "new"
    page = _bytes(path, min(size, _LEAST))
    if len(page) < _LEAST or page[: len(_MAGIC)] != _MAGIC or page[21:24] != _FRACTIONS:
        before = _page_before(path)
        if before == b"":
            return "new"
        page = before or page
    if page[: len(_MAGIC)] != _MAGIC:
        raise Corrupt(path, "it does not begin as a database does")
    if len(page) < _LEAST:
        raise Corrupt(path, "it is shorter than one page")
    owner = int.from_bytes(page[68:72], "big")
    if owner == APPLICATION_ID:
        return "ours"
    empty = page[100] == _LEAF and page[103:105] == b"\0\0"
    if owner == 0 and empty:
        return "new"
    raise somebody_elses(path)


def absent(path: str) -> NotFound:
    """Return the error for a missing database at *path*, naming the nearest one."""
    place = Path(path)
    near = nearest(place.name, _databases(place.parent))
    return NotFound(
        "database",
        path if len(path) <= SHOWN else f"…{path[1 - SHOWN :]}",
        next=(f"The nearest is {near!r}." if near else "Its folder holds no other.")
        + " Only holdfast serve, mount and commands that write create one.",
    )


def _databases(folder: Path) -> Iterator[str]:
    """Yield the names of the databases among the first files of *folder*."""
    try:
        files = [each for each in islice(folder.iterdir(), MOST_FILES) if each.is_file()]
    except OSError:
        return
    for file in files:
        try:
            ours = examine(str(file)) == "ours"
        except (HoldfastError, OSError):
            continue
        if ours:
            yield file.name


def somebody_elses(path: str) -> InvalidInput:
    """Return the error for another program's database at *path*."""
    return InvalidInput(
        "target",
        "is another program's database; it was not touched",
        given=path,
        next="Choose another file.",
    )


def _page_before(path: str) -> bytes | None:
    """Return the first page before a write that a crash interrupted.

    b"" if the file had no page then.

    The rollback journal beside the file has it, and SQLite restores it at the next open. None if
    there is no such journal.
    """
    journal = path + "-journal"
    try:
        size = os.stat(journal).st_size  # noqa: PTH116 - beside the calls of SQLite's own file layer
    except OSError:
        return None
    header = _bytes(journal, min(size, _JOURNAL_HEADER))
    if len(header) < _JOURNAL_HEADER or not header.startswith(JOURNAL_MAGIC):
        return None
    pages, sector = (int.from_bytes(header[start : start + 4], "big") for start in (16, 20))
    if pages == 0:
        return b""
    if size < sector + 4 + _LEAST:
        return None
    record = _bytes(journal, 4 + _LEAST, offset=sector)
    return record[4:] if int.from_bytes(record[:4], "big") == 1 else None


def _bytes(path: str, size: int, *, offset: int = 0) -> bytes:
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    try:
        file = apsw.VFSFile("", path, flags)
        try:
            return file.xRead(size, offset)
        finally:
            file.xClose()
    except apsw.Error as error:
        raise fault_of(error, path=path) from error


def file_system(path: str) -> str:
    """Return the type of the file system of *path*, or "" if unknown."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    best, kind = "", ""
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        mount = _OCTAL.sub(lambda found: chr(int(found[1], 8)), before.split()[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, after.split()[0]
    return kind


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
            raise _unmade(copy, error) from error
        finally:
            part.unlink(missing_ok=True)
