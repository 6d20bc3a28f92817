"""Vector providers by name, and re-embedding after a change of model."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.errors import InvalidInput, MissingExtra
from holdfast.ground.permissions import create_file, create_folder, create_folders
from holdfast.ground.validation import check_one_of
from holdfast.memories.longterm.cache_budget import ByteBudget
from holdfast.memories.longterm.vectors.base import VectorProvider, asked
from holdfast.memories.longterm.vectors.embedder import EmbeddingFailed
from holdfast.memories.longterm.vectors.extensions import PgVectors, schema_of_extension
from holdfast.memories.longterm.vectors.table import Matrices, TableVectors

NAMES: Final = ("sqlite", "sqlite-vec", "pgvector", "chroma")
PROVIDER: Final = "HOLDFAST_VECTOR_PROVIDER"

_CREATE: Final = "pgvector needs, in this database: create extension vector"


class ProviderChoice(Struct, frozen=True, kw_only=True):
    """A vector provider, or the reason why there is none."""

    vectors: VectorProvider | None = None
    reason: str | None = None


class Where(Struct, frozen=True, kw_only=True):
    """Storage locations of external providers.

    `database` is a path, ":memory:" or a server's target; `data` is the user's folder.
    """

    database: str
    data: Path
    chroma_url: str | None = None


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
        if name in {"sqlite-vec", "chroma"}:
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
        opening = _sqlite_vec if name == "sqlite-vec" else _chroma
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                return ProviderChoice(vectors=found)
            try:
                found = self._open[name] = opening(where())
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
    from holdfast.memories.longterm.vectors.extensions import SqliteVec

    path = _place(where, "vec")
    if path is None:
        return SqliteVec(":memory:")
    with suppress(FileExistsError):
        create_file(path).close()
    return SqliteVec(path)


def _chroma(where: Where) -> VectorProvider:
    from holdfast.memories.longterm.vectors.chroma import ChromaVectors

    path = None if where.chroma_url else _place(where, "chroma")
    if path is not None:
        create_folder(path)
    return ChromaVectors(path, url=where.chroma_url)


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


class Following(Struct):
    """Deletes vectors of removed rows from an external provider.

    `ids` None stands for the whole collection, which is deleted again a second later: a provider
    may still be writing what it had begun. No such vector is recalled meanwhile.
    """

    vectors: VectorProvider
    collection: str
    ids: tuple[str, ...] | None
    _wait: float = _FIRST_WAIT
    _due: float = 0.0
    _again: bool = True

    def tend(self) -> float | None:
        """Delete the vectors; return the seconds until the next try, None after the last."""
        left = self._due - monotonic()
        if left > 0:
            return left
        try:
            asked(self._let_go)
        except EmbeddingFailed as failed:
            wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_WAIT)
            self._due = monotonic() + wait
            _log.warning(
                "vectors of deleted rows are still stored; next try in %g s: %s",
                wait,
                failed.reason,
            )
            return wait
        if self.ids is None and self._again:
            self._again, self._due = False, monotonic() + _FIRST_WAIT
            return _FIRST_WAIT
        return None

    def _let_go(self) -> None:
        if self.ids is None:
            self.vectors.drop(self.collection)
        else:
            self.vectors.delete(self.collection, self.ids)
