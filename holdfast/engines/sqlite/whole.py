"""A whole database file as it is at one moment, copied while others write."""

from pathlib import Path

import apsw

from holdfast.engines.sqlite.connection import PATIENCE, Connection, fault_of


def copy_whole(source: str, target: Path) -> None:
    """Write what the file *source* holds at one moment to *target*, which must be empty.

    Free pages are left out, so what was deleted is not in the copy. Raises Unavailable, Corrupt.
    """
    try:
        raw = apsw.Connection(source, flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        raise fault_of(error, path=source) from error
    try:
        connection = Connection(raw, source)
        connection.patience.span = PATIENCE
        connection.run("vacuum into :target", {"target": str(target)})
    finally:
        raw.close()
