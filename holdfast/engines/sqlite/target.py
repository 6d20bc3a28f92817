"""Resolve the file that a SQLite engine opens, and check whose database it is."""

import errno
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

import apsw
from msgspec import Struct
from platformdirs import user_data_dir

from holdfast.engines.sqlite.connection import APPLICATION_ID, FULL, fault_of
from holdfast.ground.errors import (
    SHOWN,
    Corrupt,
    HoldfastError,
    InvalidInput,
    NotFound,
    Unavailable,
)
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
        raise unmade(path, error) from error
    return True


_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def unmade(path: Path, error: OSError) -> Unavailable:
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
