"""Vector providers by name; those of sqlite-vec and pgvector.

sqlite-vec has a table for each dimension, partitioned by collection. It returns distances (l2),
from which the cosine of unit vectors is computed.
"""

import logging
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, Final, cast

import apsw
from msgspec import Struct

from holdfast.engines.base import Engine, Reader, scalar
from holdfast.engines.queries import read
from holdfast.ground.errors import InvalidInput, MissingExtra
from holdfast.ground.permissions import create_file, create_folder, create_folders
from holdfast.ground.validation import check_one_of
from holdfast.memories.longterm.cache_budget import ByteBudget
from holdfast.memories.longterm.vectors.base import (
    MOST_COMPARED,
    Near,
    Rows,
    VectorProvider,
    in_order,
    provider_call,
)
from holdfast.memories.longterm.vectors.embedder import EmbeddingFailed, Keys
from holdfast.memories.longterm.vectors.pinecone import PineconeVectors
from holdfast.memories.longterm.vectors.qdrant import QdrantVectors
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

    def cosines(
        self, collection: str, vector: Sequence[float], *, seq: int | None = None
    ) -> Mapping[str, float]:
        """Return the cosine of each of the nearest vectors of the collection, by id."""
        del seq
        return dict(self.nearest(collection, vector, MOST_COMPARED))


def schema_of_extension(engine: Engine) -> str | None:
    """Return the schema of the extension `vector`; None if it is not installed."""
    if engine.dialect != "postgres":
        return None
    return engine.first(scalar, _statements().extension)


@cache
def _statements() -> SimpleNamespace:
    text = files(QUERIES).joinpath("pgvector.sql").read_text(encoding="utf-8")
    return SimpleNamespace(**read(text, "postgres", source="pgvector.sql"))


NAMES: Final = ("sqlite", "sqlite-vec", "pgvector", "chroma", "qdrant", "pinecone")
PROVIDER: Final = "HOLDFAST_VECTOR_PROVIDER"

_CREATE: Final = "pgvector needs, in this database: create extension vector"


class ProviderChoice(Struct, frozen=True, kw_only=True):
    """A vector provider, or the reason why there is none."""

    vectors: VectorProvider | None = None
    reason: str | None = None


class Where(Struct, frozen=True, kw_only=True):
    """Storage locations of external providers.

    `database` is a path, ":memory:" or a server's target; `data` is the user's folder. `variable`
    returns the address or the key of a service by its name.
    """

    database: str
    data: Path
    variable: Keys


class VectorProviders:
    """The vector providers of one engine.

    Those that hold files or connections open are shared by all handles.
    """

    def __init__(self, room: ByteBudget) -> None:
        self.matrices = Matrices(room)
        self._lock = threading.Lock()
        self._open: dict[str, VectorProvider] = {}
        self._schema: str | None = None

    def get(
        self, name: str | None, engine: Engine, workspace: str, where: Callable[[], Where]
    ) -> ProviderChoice:
        """Return the provider *name*, None for the engine's default; *engine* is scoped.

        On PostgreSQL without the extension `vector` the default compares in process. Raise
        `InvalidInput` for an unknown name, or one that is not for this engine.
        """
        if name is not None:
            check_one_of("vector_provider", name, NAMES)
            if name in _OPENING:
                return self._apart(name, where)
        if name == "pgvector" and engine.dialect != "postgres":
            raise InvalidInput("vector_provider", "pgvector is for PostgreSQL", given=name)
        schema = None if name == "sqlite" else self._extension(engine)
        if schema is not None:
            return ProviderChoice(vectors=PgVectors(engine, workspace, schema))
        if name == "pgvector":
            return ProviderChoice(reason=_CREATE)
        return ProviderChoice(vectors=TableVectors(engine, workspace, self.matrices))

    def close(self) -> None:
        """Close all providers."""
        with self._lock:
            opened, self._open = self._open, {}
        for each in opened.values():
            each.close()
        self.matrices.clear()

    def _extension(self, engine: Engine) -> str | None:
        if self._schema is None:
            self._schema = schema_of_extension(engine)
        return self._schema

    def _apart(self, name: str, where: Callable[[], Where]) -> ProviderChoice:
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                return ProviderChoice(vectors=found)
            there = where()
            unset = [each for each in _NEEDS.get(name, ()) if not there.variable(each)]
            if unset:
                return ProviderChoice(reason=f"{name} needs {', '.join(unset)}")
            try:
                found = self._open[name] = _OPENING[name](there)
            except MissingExtra as missing:
                return ProviderChoice(reason=f"{name} needs: {missing.command}")
            except Exception as error:  # noqa: BLE001 - a provider that is down fails no call
                return ProviderChoice(reason=f"{name} could not be opened: {type(error).__name__}")
        return ProviderChoice(vectors=found)


def provider_in(variable: str | None) -> str | None:
    """Return the provider that the environment's *variable* names; None when unset."""
    word = (variable or "").strip()
    if word:
        check_one_of(PROVIDER, word, NAMES)
    return word or None


def _sqlite_vec(where: Where) -> VectorProvider:
    path = _place(where, "vec")
    if path is None:
        return SqliteVec(":memory:")
    with suppress(FileExistsError):
        create_file(path).close()
    return SqliteVec(path)


def _chroma(where: Where) -> VectorProvider:
    from holdfast.memories.longterm.vectors.chroma import ChromaVectors

    url = where.variable("CHROMA_URL") or None
    path = None if url else _place(where, "chroma")
    if path is not None:
        create_folder(path)
    return ChromaVectors(path, url=url)


def _qdrant(where: Where) -> VectorProvider:
    url, key = (where.variable(name) or "" for name in ("QDRANT_URL", "QDRANT_API_KEY"))
    return QdrantVectors(url, api_key=key or None)


def _pinecone(where: Where) -> VectorProvider:
    key, host = (where.variable(name) or "" for name in _NEEDS["pinecone"])
    return PineconeVectors(host, api_key=key)


_OPENING: Final[Mapping[str, Callable[[Where], VectorProvider]]] = {
    "sqlite-vec": _sqlite_vec,
    "chroma": _chroma,
    "qdrant": _qdrant,
    "pinecone": _pinecone,
}
"""Providers outside the database, by name."""
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "qdrant": ("QDRANT_URL",),
    "pinecone": ("PINECONE_API_KEY", "PINECONE_INDEX_HOST"),
}
"""Variables without which a provider cannot be opened, by name."""


def _place(where: Where, ending: str) -> Path | None:
    """Return the path beside the database; None in memory.

    For a server's database it is in the user's folder.
    """
    if where.database == ":memory:":
        return None
    if "://" in where.database:
        name = sha256(where.database.encode()).hexdigest()[:16]
        create_folders(where.data)
        return where.data / f"{name}.{ending}"
    return Path(f"{where.database}.{ending}")


_log: Final = logging.getLogger(__name__)


_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 600.0
"""Seconds between two tries to delete vectors: doubled after each failure."""
_DROPS_AGAIN: Final = (1.0, 4.0, 16.0)
"""Seconds after which a dropped collection is dropped again. Chroma was seen to write rows that it
had begun to write before for more than a second on a busy machine."""


class Following(Struct):
    """Deletes vectors of removed rows from an external provider.

    `ids` None stands for the whole collection, which is deleted again after `_DROPS_AGAIN`: a
    provider may still be writing what it had begun. No such vector is recalled meanwhile.
    """

    vectors: VectorProvider
    collection: str
    ids: tuple[str, ...] | None
    _wait: float = _FIRST_WAIT
    _due: float = 0.0
    _dropped_again: int = 0

    def tend(self) -> float | None:
        """Delete the vectors; return the seconds until the next try, None after the last."""
        left = self._due - monotonic()
        if left > 0:
            return left
        try:
            provider_call(self._let_go)
        except EmbeddingFailed as failed:
            wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_WAIT)
            self._due = monotonic() + wait
            _log.warning(
                "vectors of deleted rows are still stored; next try in %g s: %s",
                wait,
                failed.reason,
            )
            return wait
        if self.ids is None and self._dropped_again < len(_DROPS_AGAIN):
            wait = _DROPS_AGAIN[self._dropped_again]
            self._dropped_again, self._due = self._dropped_again + 1, monotonic() + wait
            return wait
        return None

    def _let_go(self) -> None:
        if self.ids is None:
            self.vectors.drop(self.collection)
        else:
            self.vectors.delete(self.collection, self.ids)
