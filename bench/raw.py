"""The driver alone: what calls are held against."""

from collections.abc import Sequence
from pathlib import Path

from machine import connected

ENTRIES = 800

_TABLE = """
create table raw (
  owner text not null, key text not null, category text not null, content text not null,
  created_at integer not null, updated_at integer not null,
  primary key (owner, key)
) without rowid
"""
_PUT = """
insert into raw values (?, ?, 'core', ?, ?, ?)
on conflict (owner, key) do update
set category = excluded.category, content = excluded.content, updated_at = excluded.updated_at
"""
_GET = """
select owner, key, category, content, created_at, updated_at from raw where owner = ? and key = ?
"""
_LIST = """
select owner, key, category, content, created_at, updated_at from raw where owner = ?
order by updated_at desc limit 50
"""
_OWNER = "agent_7"


class Raw:
    """The driver alone, with the same durability: one upsert, one commit, one thread."""

    def __init__(self, path: Path, text: str) -> None:
        self._text = text
        self.connection = connected(path)
        for pragma in ("journal_mode = wal", "synchronous = full", "cache_size = -65536"):
            self.connection.execute(f"pragma {pragma}").fetchall()
        self.connection.execute(_TABLE)
        self.connection.execute("create index raw_by_age on raw (owner, updated_at)")
        self.put_many(range(ENTRIES))

    def put(self, number: int) -> None:
        """Write one row, with a commit of its own."""
        row = (_OWNER, f"key_{number % ENTRIES}", self._text, number, number)
        self.connection.execute(_PUT, row).fetchall()

    def put_many(self, numbers: Sequence[int]) -> None:
        """Write a row for each of *numbers*, with one commit."""
        with self.connection:
            for number in numbers:
                self.put(number)

    def get(self, number: int) -> None:
        """Read one row by its key."""
        self.connection.execute(_GET, (_OWNER, f"key_{number % ENTRIES}")).fetchall()

    def list(self) -> None:
        """Read the fifty newest rows."""
        self.connection.execute(_LIST, (_OWNER,)).fetchall()
