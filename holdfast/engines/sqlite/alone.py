"""Whether anybody else has a database file open."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

from holdfast.engines.sqlite.connection import fault_of
from holdfast.ground.errors import Unavailable


@contextmanager
def alone(path: Path) -> Generator[None]:
    """Keep everybody else out of the database file *path*; Unavailable if somebody is in it.

    A connection to a file with a write-ahead log holds a shared lock on it for as long as it is
    open, so the exclusive one is to be had only by who is alone. It is taken through SQLite's own
    file layer, so that what is in the file does not matter.
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
