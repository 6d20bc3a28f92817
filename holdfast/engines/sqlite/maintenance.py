"""Maintain a SQLite file: exclusive access, lock holders, copy, vacuum, the log."""

import os
import struct
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Literal, cast

import apsw
from msgspec import Struct

from holdfast.engines.sqlite.connection import (
    APPLICATION_ID,
    AUTOCHECKPOINT,
    PATIENCE,
    Connection,
    fault_of,
)
from holdfast.engines.sqlite.database import Database
from holdfast.ground.errors import HoldfastError, Unavailable


@contextmanager
def alone(path: Path) -> Generator[None]:
    """Hold exclusive access to the database file *path*.

    Raises Unavailable if another process has it open.

    A connection to a file with a write-ahead log holds a shared lock on it for as long as it is
    open, so the exclusive lock is free only without other connections. It is taken through
    SQLite's own file layer, so that the file may be damaged.
    """
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    try:
        file = apsw.VFSFile("", str(path), flags)
    except apsw.Error as error:
        raise fault_of(error, path=str(path)) from error
    try:
        _lock(file, path)
        yield
    finally:
        file.xUnlock(apsw.SQLITE_LOCK_NONE)
        file.xClose()


def _lock(file: apsw.VFSFile, path: Path) -> None:
    try:
        file.xLock(apsw.SQLITE_LOCK_SHARED)
        file.xLock(apsw.SQLITE_LOCK_EXCLUSIVE)
    except apsw.BusyError as error:
        raise Unavailable(
            f"{path} is open in another process.",
            reason="locked",
            next="Stop the server that uses it, then try again.",
        ) from error
    except apsw.Error as error:
        raise fault_of(error, path=str(path)) from error


_LOCKS = Path("/proc/locks")
_WRITES, _READS = 120, range(123, 128)
"""Bytes of the log's index that SQLite locks to write, and to pin a snapshot."""

Doing = Literal["open", "reads", "writes"]


class Holder(Struct, frozen=True, kw_only=True):
    """A process with the database open, and the strongest use observed."""

    pid: int
    name: str
    doing: Doing


def holders(path: str) -> list[Holder]:
    """Return the other processes that have the database at *path* open."""
    doing: dict[int, set[Doing]] = {}
    for pid, did in [*_on(path), *_on(path + "-shm")]:
        doing.setdefault(pid, set()).add(did)
    doing.pop(os.getpid(), None)
    return [Holder(pid=pid, name=_name(pid), doing=_most(did)) for pid, did in doing.items()]


def _most(doing: set[Doing]) -> Doing:
    return "writes" if "writes" in doing else "reads" if "reads" in doing else "open"


def _on(path: str) -> Iterator[tuple[int, Doing]]:
    """Yield the processes with a lock on the file *path*, and its use."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a plain name is all there is
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return
    mine = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        fields = line.split()
        if len(fields) == 8 and fields[5] == mine:  # noqa: PLR2004 - a waiting lock has one field more
            yield int(fields[4]), _doing(path, fields)


def _doing(path: str, fields: list[str]) -> Doing:
    first, last = int(fields[6]), fields[7]
    held = range(first, first + 1 if last == "EOF" else int(last) + 1)
    if not path.endswith("-shm"):
        return "open"
    if _WRITES in held:
        return "writes"
    return "reads" if any(byte in held for byte in _READS) else "open"


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


EXCLUSIVE_TIMEOUT = 30.0
"""Seconds to wait for other writers."""

# The bracket excludes the tables that show index contents: their module is fts5vocab.
_INDEXES = """
select name from sqlite_schema
where type = 'table' and replace(sql, ' ', '') like 'createvirtualtable%usingfts5(%'
"""


def rewrite(connection: Connection) -> None:
    """Merge each full-text index, and rewrite the whole file within the log.

    A copy of the database is in memory meanwhile, and another in the log; readers continue.
    Raises Unavailable: busy, full.
    """
    connection.patience.until = monotonic() + EXCLUSIVE_TIMEOUT
    for (name,) in connection.execute(_INDEXES).fetchall():
        quoted = '"' + cast("str", name).replace('"', '""') + '"'
        connection.do(f"insert into {quoted} ({quoted}) values ('optimize')")
    connection.do("vacuum")


def copy_whole(source: str, target: Path) -> None:
    """Copy one snapshot of the file *source* to *target*, which must be empty.

    Free pages are left out, so the copy has no deleted content. Raises Unavailable, Corrupt.
    """
    try:
        raw = apsw.Connection(source, flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        raise fault_of(error, path=source) from error
    try:
        connection = Connection(raw, source)
        connection.patience.span = PATIENCE
        connection.copy_into(str(target))
    finally:
        raw.close()


_CHUNK = 4 * 1_048_576
"""Bytes of a file that are searched at a time."""


def sought_files(target: str) -> list[Path]:
    """Return the existing files with rows of the database *target*; none in memory."""
    endings = ("", "-wal", "-journal")
    return [path for each in endings if (path := Path(target + each)).is_file()]


def files_with(files: Iterable[Path], marks: Collection[bytes]) -> set[bytes]:
    """Return those of *marks* that are in *files*, read through SQLite's file layer.

    A plain `open` and `close` would release the locks that this process holds on a file in use.
    """
    left = {each for each in marks if each}
    longest = max(map(len, left), default=0)
    found: set[bytes] = set()
    for path in files:
        before = b""
        for chunk in _chunks(path) if left - found else ():
            seen = before + chunk
            found |= {each for each in left - found if each in seen}
            before = seen[-longest:]
    return found


def _chunks(path: Path) -> Iterator[bytes]:
    kind = apsw.SQLITE_OPEN_WAL if path.name.endswith("-wal") else apsw.SQLITE_OPEN_MAIN_DB
    try:
        file = apsw.VFSFile("", str(path), [kind | apsw.SQLITE_OPEN_READONLY, 0])
    except apsw.Error as error:
        if not path.exists():
            # Deleted since: a checkpoint removed the log.
            return
        raise fault_of(error, path=str(path)) from error
    try:
        size = file.xFileSize()
        for start in range(0, size, _CHUNK):
            yield file.xRead(min(_CHUNK, size - start), start)
    finally:
        file.xClose()


LONG = 64 * 1024 * 1024
"""Bytes of log above which it is truncated as soon as no reader holds it."""

_ERASE_EVERY, _SHORTEN_EVERY = 0.25, 1.0


def empty(connection: Connection) -> bool:
    """Checkpoint the log and truncate it; return False if a reader holds it."""
    connection.patience.until = monotonic()
    try:
        connection.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    except apsw.Error as error:
        raise connection.fault(error) from error
    return True


_LOG_HEADER, _FRAME, _COUNTS = (struct.Struct(each) for each in (">6I8x", ">4I8x", ">HH"))
_BUMP = f"pragma application_id = {APPLICATION_ID}"
"""Writes the first page, although it stays as it is; an update to the same value writes none."""

_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
"""Bytes of the header of a page of a b-tree, by the page's first byte; others begin with a zero."""

_LARGEST_FILE = 64 * 1024**3
"""Bytes beyond which the first byte of a page that overflows is not always zero."""


ScrubStatus = Literal["done", "more", "held"]
"""Whether all is erased, more is left for the next call, or a connection prevents it."""

_SLICE = 1024
"""Pages that are zeroed at a time, so that writers wait for some ten milliseconds."""

_MOST_NOTED = 65_536
"""Pages that are noted: they take 6 MB of memory. After more, all pages are read once."""


class UnusedSpace:
    """Zeroes the space of a file's pages that no row uses.

    SQLite zeroes a row where it deletes it. When it balances pages, it leaves copies of the rows
    that it moves in their unused space: of one in 1,000 deleted rows a copy remained.

    Only pages that were written since the last time are read. They stand in the log, and before
    SQLite begins it again, with the next salt, this notes them. All pages are read when another
    connection may have written some that were not noted.
    """

    def __init__(self) -> None:
        self._connection: Connection | None = None
        """Its commits are noted: the writer's connection, once it has erased."""
        self._salt: int | None = None
        """That of the log; None when not all pages that were written are known."""
        self._version = self._length = self._read = 0
        """The connection's `data_version`; the log's pages, and how many of them were noted."""
        self._pages = set[int]()
        """What was written since it was zeroed, without the part of the log that is not read."""
        self._rest = 1
        """The first page of those that were never zeroed; 0 when there are none."""
        self._slice = _SLICE

    def _committed(self, connection: Connection, raw: apsw.Connection, _: str, length: int) -> int:
        try:
            if length < self._length:
                self._restarted(connection)
            self._length = length
            if length >= AUTOCHECKPOINT:
                self._note(connection.path)
                raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, HoldfastError):
            # The commit stands, and the next one checkpoints.
            self._salt = None
        return apsw.SQLITE_OK

    def _restarted(self, connection: Connection) -> None:
        """Go on with the next log, if all pages of the last one were noted."""
        version = connection.number("pragma data_version")
        noted = self._read == self._length and version == self._version
        self._salt = _after(self._salt) if noted else None
        self._read = 0

    def _note(self, path: str) -> None:
        if self._salt is None:
            return
        salt, pages = _log_of(path, self._read)
        self._salt = self._salt if salt == self._salt else None
        self._pages.update(pages)
        if len(self._pages) > _MOST_NOTED:
            self._salt, self._pages = None, set[int]()
        self._read = self._length

    def erase(self, connection: Connection) -> ScrubStatus:
        """Truncate the log and zero unused space, of a slice of the pages at a time."""
        try:
            return self._erase(connection)
        except (apsw.BusyError, apsw.LockedError):
            return "held"
        except apsw.Error as error:
            raise connection.fault(error) from error
        finally:
            if connection.raw.in_transaction:
                connection.execute("rollback").fetchall()

    def _erase(self, connection: Connection) -> ScrubStatus:
        version, path = connection.number("pragma data_version"), connection.path
        salt, pages = _log_of(path)
        if connection is not self._connection:
            # In place of SQLite's own, which checkpoints and no more.
            connection.raw.set_wal_hook(partial(self._committed, connection))
            self._connection, self._salt = connection, None
        if salt is None and self._salt is not None and not self._todo():
            return "done"
        if salt is not None and not empty(connection):
            return "held"
        if self._salt is None or salt not in (None, self._salt):
            self._lose()
        following = self._salt if salt is None else _after(salt)
        self._salt, self._length, self._read = None, 0, 0
        self._pages.update(pages)
        connection.execute("begin immediate").fetchall()
        if connection.number("pragma data_version") != version or _log_of(path)[1]:
            return "held"
        todo, count = self._todo(), connection.number("pragma page_count")
        written = zero(Path(path), todo) or following is None
        if written:
            # Connections of other processes drop the pages that they cached. A log that had no
            # salt yet begins with one.
            connection.execute(_BUMP).fetchall()
        connection.execute("commit").fetchall()
        if written:
            connection.execute("pragma shrink_memory").fetchall()
            following = _after(_log_of(path)[0])
            if not empty(connection):
                return "held"
        self._salt, self._version, self._length = following, version, 0
        return self._zeroed(todo, count)

    def _todo(self) -> Sequence[int]:
        """Return the pages of the next slice, which may be beyond the end of the file."""
        if self._rest:
            return range(self._rest, self._rest + self._slice)
        return sorted(self._pages)[: self._slice]

    def _zeroed(self, pages: Sequence[int], count: int) -> ScrubStatus:
        self._pages.difference_update(pages)
        if self._rest:
            self._rest = self._rest + self._slice if pages[-1] < count else 0
        if self._rest or self._pages:
            return "more"
        self._slice = _SLICE
        return "done"

    def _lose(self) -> None:
        """Begin with the first page again, in larger slices, so that this ends."""
        if self._rest > 1:
            self._slice *= 2
        self._rest, self._pages = 1, set[int]()


def _after(salt: int | None) -> int | None:
    """Return the salt of the log that follows."""
    return None if salt is None else (salt + 1) % 2**32


def _log_of(path: str, first: int = 0) -> tuple[int | None, set[int]]:
    """Return the salt of the log of *path*, None if empty, and its pages.

    Those of frames before the *first* are left out.
    """
    try:
        flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READONLY, 0]
        file = apsw.VFSFile("", f"{path}-wal", flags)
    except apsw.CantOpenError:
        if Path(f"{path}-wal").exists():
            raise
        return None, set()
    try:
        size, pages = file.xFileSize(), set[int]()
        if size < _LOG_HEADER.size:
            return None, pages
        _, _, page_size, _, *salts = _read(file, _LOG_HEADER, 0)
        step = _FRAME.size + page_size
        for start in range(_LOG_HEADER.size + first * step, size - _FRAME.size, step):
            page, _, *of_frame = _read(file, _FRAME, start)
            if of_frame != salts:
                break
            pages.add(page)
        return salts[0], pages
    finally:
        file.xClose()


def _read(file: apsw.VFSFile, form: struct.Struct, start: int) -> tuple[int, ...]:
    content = file.xRead(form.size, start)
    if len(content) < form.size:
        raise apsw.BusyError("Another connection truncated the log while it was read.")
    return form.unpack(content)


def zero(path: Path, pages: Iterable[int]) -> bool:
    """Zero the unused space of *pages*; return if any had content."""
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    # The driver's stub names a type that is missing in the oldest supported Python.
    file: Any = apsw.VFSFile("", str(path), flags)
    zeroed = False
    try:
        head = file.xRead(100, 0)
        page_size = int.from_bytes(head[16:18], "big")
        page_size = 65536 if page_size == 1 else page_size
        count = file.xFileSize() // page_size
        if count * page_size > _LARGEST_FILE:
            return False
        usable = page_size - head[20]
        for page in pages:
            start = (page - 1) * page_size
            content = file.xRead(page_size, start) if page <= count else b""
            begin, end = _unused(content, usable, 100 if page == 1 else 0)
            if content[begin:end].strip(b"\0"):
                file.xWrite(bytes(end - begin), start + begin)
                zeroed = True
        if zeroed:
            file.xSync(apsw.SQLITE_SYNC_FULL)
    finally:
        file.xClose()
    return zeroed


def _unused(content: bytes, usable: int, header: int) -> tuple[int, int]:
    """Return where the unused space of a page begins and ends; (0, 0) for none."""
    size = _HEADERS.get(content[header]) if content else None
    if size is None:
        return 0, 0
    cells, end = _COUNTS.unpack_from(content, header + 3)
    begin, end = header + size + 2 * cells, end or 65536
    return (begin, end) if begin <= end <= usable else (0, 0)


class LogKeeper:
    """Truncates the log after groups, when it is long or has content to erase."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next = 0.0
        self._held = False
        self.erasing = False
        self.unused = UnusedSpace()
        self.patience = -1.0
        """Seconds until the next check; negative for none."""

    @property
    def due(self) -> bool:
        """Whether `tend` would truncate the log now."""
        long = self.erasing or self._database.log_bytes() > LONG
        return long and monotonic() >= self._next

    def tend(self, connect: Callable[[], Connection]) -> None:
        """Truncate the log on the connection of *connect* if it is due; never blocks."""
        if self._database.in_memory:
            return
        long = self._database.log_bytes() > LONG
        if not (long or self.erasing):
            self._held, self.patience = False, -1.0
            return
        if monotonic() >= self._next:
            self._truncate(connect)
        every = max(0.0, self._next - monotonic()) if self.erasing else _SHORTEN_EVERY
        self.patience = every if self.erasing or self._held else -1.0

    def _truncate(self, connect: Callable[[], Connection]) -> None:
        self._next = monotonic() + (_ERASE_EVERY if self.erasing else _SHORTEN_EVERY)
        status: ScrubStatus = "held"
        try:
            if self.erasing:
                status = self.unused.erase(connect())
            elif empty(connect()):
                status = "done"
        except HoldfastError as error:
            self._database.noticed(error)
        if status == "more":
            self._next = 0.0
        elif status == "done" and self.erasing:
            self.erasing = False
            self._database.note("scrubbed")
        elif status == "held" and not self._held:
            self._database.note("checkpoint_held", bytes=self._database.log_bytes())
        self._held = status == "held"

    def finish(self, connection: Connection, until: float) -> None:
        """Erase what is left to erase, at most *until* then, and truncate the log."""
        while self.erasing and monotonic() < until and self.unused.erase(connection) == "more":
            pass
        empty(connection)
