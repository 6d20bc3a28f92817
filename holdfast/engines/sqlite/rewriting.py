"""The file written anew, so that nothing which was deleted is anywhere in it."""

from time import monotonic
from typing import cast

from holdfast.engines.sqlite.connection import Connection

EXCLUSIVE_TIMEOUT = 30.0
"""Seconds to wait for other writers."""

# The bracket tells them from the tables that show what is in them, whose module is fts5vocab.
_INDEXES = """
select name from sqlite_schema
where type = 'table' and replace(sql, ' ', '') like 'createvirtualtable%usingfts5(%'
"""


def rewrite(connection: Connection) -> None:
    """Merge each full-text index, and write the whole file anew, within the log.

    A copy of the database is in memory meanwhile, and another in the log; readers go on.
    Raises Unavailable: busy, full.
    """
    connection.patience.until = monotonic() + EXCLUSIVE_TIMEOUT
    for (name,) in connection.execute(_INDEXES).fetchall():
        quoted = '"' + cast("str", name).replace('"', '""') + '"'
        connection.do(f"insert into {quoted} ({quoted}) values ('optimize')")
    connection.do("vacuum")
