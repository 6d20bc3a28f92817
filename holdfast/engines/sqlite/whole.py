"""A whole database file as it is at one moment, copied while others write."""

from pathlib import Path

import apsw

from holdfast.engines.sqlite.faults import fault_of


def copy_whole(source: str, target: Path) -> None:
    """Write what the file *source* holds at one moment to *target*, which must be empty.

    Free pages are left out, so what was deleted is not in the copy. Raises Unavailable, Corrupt.
    """
    statement = "vacuum into ?"
    connection = apsw.Connection(source, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute(statement, (str(target),)).fetchall()
    except apsw.Error as error:
        raise fault_of(error, path=source, sql=statement) from error
    finally:
        connection.close()
