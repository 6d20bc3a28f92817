"""What SQLite says went wrong, in our words."""

import errno

import apsw

from holdfast.engines.queries import name_of
from holdfast.ground.errors import Corrupt, EngineFault, HoldfastError, Reason, Unavailable

SPOKEN = (apsw.Error, KeyError, TypeError, ValueError, OverflowError)
"""What running a statement may raise: SQLite's errors, and Python's about what was bound."""

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

_GROWTH = (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE)


def fault_of(error: Exception, *, path: str, sql: str = "", number: int = 0) -> HoldfastError:
    """Return our error for *error*, which *sql* met in the database at *path*.

    *number* is the system's errno, if it is known: SQLite reports a full quota as an I/O error.
    What is neither the world's fault nor a damaged file is a bug, and so EngineFault. The caller
    raises it `from` *error*.
    """
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError)):
        return Corrupt(path, str(error))
    full = number in FULL and getattr(error, "extendedresult", 0) in _GROWTH
    met = apsw.FullError if full else type(error)
    for kind, reason, message in _REASONS:
        if issubclass(met, kind):
            return Unavailable(
                f"{message} ({error})",
                reason=reason,
                retry_after=1.0 if reason in ("busy", "locked") else None,
                next=_NEXT.get(reason, "Try again in a moment."),
            )
    name = name_of(sql)
    what = f"no value for :{error.args[0]}" if isinstance(error, KeyError) else str(error)
    return EngineFault(f"The statement {name!r} failed: {what}.", statement=name)
