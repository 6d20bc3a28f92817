"""Vector providers sqlite-vec and pgvector.

sqlite-vec has a table for each dimension, partitioned by collection. It returns distances (l2),
from which the cosine of unit vectors is computed.
"""

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import apsw

from holdfast.engines.base import Engine, Reader, scalar
from holdfast.engines.queries import read
from holdfast.ground.errors import MissingExtra
from holdfast.memories.longterm.cache_budget import ByteBudget
from holdfast.memories.longterm.vectors.base import Near, Rows, in_order
from holdfast.memories.longterm.vectors.table import QUERIES, Matrices, TableVectors, rounded

MOST_NEAREST: Final = 4_096
"""Largest k of the extension's index; more are found by a plain scan."""
_BUSY: Final = 5_000
"""Milliseconds to wait for another process's write."""

_SCHEMA: Final = """
create table if not exists places (
  number integer primary key,
  collection text not null,
  id text not null,
  dimension integer not null,
  unique (collection, id)
) strict
"""


class SqliteVec:
    """Vectors in the file *path*, or in memory with ":memory:".

    Any thread may use it, one at a time.
    """

    name = "sqlite-vec"

    def __init__(self, path: Path | str) -> None:
        try:
            import sqlite_vec
        except ImportError as error:
            raise MissingExtra("sqlite-vec") from error
        self._lock = threading.RLock()
        self._raw = apsw.Connection(str(path))
        self._raw.set_busy_timeout(_BUSY)
        self._raw.enable_load_extension(True)
        self._raw.load_extension(sqlite_vec.loadable_path())
        self._raw.enable_load_extension(False)
        # The driver's own types say less than they know.
        self._execute = cast("Callable[..., Iterable[Any]]", self._raw.execute)  # pyright: ignore[reportUnknownMemberType]
        self._execute("pragma journal_mode = wal; pragma secure_delete = on")
        self._execute(_SCHEMA)

    def upsert(self, collection: str, dimension: int, rows: Rows) -> None:
        """Store *rows*, each in place of the vector of its id."""
        with self._lock, self._raw:
            self._execute(
                f"create virtual table if not exists vectors_{int(dimension)} using vec0"
                f" (collection text partition key, vector float[{int(dimension)}])"
            )
            for id, vector in rows:
                self._remove(collection, id)
                self._execute(
                    "insert into places (collection, id, dimension) values (?, ?, ?)",
                    (collection, id, dimension),
                )
                self._execute(
                    f"insert into vectors_{int(dimension)} (rowid, collection, vector)"
                    " values (?, ?, ?)",
                    (self._raw.last_insert_rowid(), collection, array("f", vector).tobytes()),
                )

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete the vectors of *ids*; a missing one is not an error."""
        with self._lock, self._raw:
            for id in ids:
                self._remove(collection, id)

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids with the vectors nearest to *vector*, by exact cosine."""
        table = f"vectors_{len(vector)}"
        blob = array("f", vector).tobytes()
        with self._lock:
            if k < 1 or not self._all("select 1 from sqlite_schema where name = ?", (table,)):
                return []
            if k <= MOST_NEAREST:
                near = (
                    f"select rowid, distance from {table}"
                    " where vector match ? and k = ? and collection = ?"
                )
                rows = self._all(near, (blob, k, collection))
            else:
                scan = f"select rowid, vec_distance_l2(vector, ?) from {table} where collection = ?"
                rows = self._all(scan, (blob, collection))
            ids = dict(
                self._all("select number, id from places where collection = ?", (collection,))
            )
        found = [
            (ids[number], rounded(1.0 - distance * distance / 2.0))
            for number, distance in rows
            if number in ids
        ]
        return in_order(found, k)

    def ids(self, collection: str) -> Iterator[str]:
        """Yield the id of every vector, in order."""
        with self._lock:
            rows = self._all(
                "select id from places where collection = ? order by id", (collection,)
            )
        yield from (id for (id,) in rows)

    def drop(self, collection: str) -> None:
        """Delete the collection."""
        with self._lock:
            self.delete(collection, list(self.ids(collection)))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._raw.close()

    def _remove(self, collection: str, id: str) -> None:
        there = self._all(
            "select number, dimension from places where collection = ? and id = ?", (collection, id)
        )
        for number, dimension in there:
            self._execute(f"delete from vectors_{int(dimension)} where rowid = ?", (number,))
            self._execute("delete from places where number = ?", (number,))

    def _all(self, sql: str, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return list(self._execute(sql, given))


# pgvector reads the same table as the comparison in process, so a server without the extension
# loses nothing but speed. The scan is exact, within the key's range of the collection.

_ALL: Final = 2**31 - 1


class PgVectors(TableVectors):
    """Vectors in the table `ltm_vectors`, compared by the server.

    *schema* is the schema of the extension.
    """

    name = "pgvector"

    def __init__(self, engine: Engine, workspace: str, schema: str) -> None:
        super().__init__(engine, workspace, Matrices(ByteBudget(0)))
        self._schema = schema

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids with the vectors nearest to *vector*, by exact cosine."""

        def work(reader: Reader) -> Near:
            reader.rows(_statements().use_extension, schema=self._schema)
            found = reader.rows(
                _statements().nearest,
                collection=collection,
                dimension=len(vector),
                vector=[float(number) for number in vector],
                k=max(0, k),
            )
            return [(id, rounded(cosine)) for id, cosine in found]

        return self.engine.read(work)

    def cosines(self, collection: str, vector: Sequence[float]) -> Mapping[str, float]:
        """Return the cosine of each vector of the collection to *vector*, by id."""
        return dict(self.nearest(collection, vector, _ALL))


def schema_of_extension(engine: Engine) -> str | None:
    """Return the schema of the extension `vector`; None if it is not installed."""
    if engine.dialect != "postgres":
        return None
    return engine.first(scalar, _statements().extension)


@cache
def _statements() -> SimpleNamespace:
    text = files(QUERIES).joinpath("pgvector.sql").read_text(encoding="utf-8")
    return SimpleNamespace(**read(text, "postgres", source="pgvector.sql"))
