"""Whether anybody else has a database file open."""

from pathlib import Path

import apsw

from holdfast.ground.errors import Unavailable


def require_alone(path: Path) -> None:
    """Return if nobody has the file *path* open; else Unavailable.

    A connection to a file with a write-ahead log holds a shared lock on it for as long as it is
    open, so an exclusive lock is to be had only by who is alone.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("pragma locking_mode = exclusive").fetchall()
        connection.execute("begin exclusive").fetchall()
        connection.execute("rollback").fetchall()
    except apsw.BusyError as error:
        raise Unavailable(
            f"{path} is open in another process.",
            reason="locked",
            next="Stop the server that uses it, then try again.",
        ) from error
    finally:
        connection.close()
