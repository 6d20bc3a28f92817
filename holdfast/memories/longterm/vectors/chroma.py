"""Vectors in Chroma: a folder of its own beside the database, or a server."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from holdfast.ground.errors import MissingExtra, Unavailable
from holdfast.memories.longterm.vectors.base import Near, Rows, in_order
from holdfast.memories.longterm.vectors.table import PLACES

_PORT: Final = 8000
_AT_ONCE: Final = 1_000
"""Rows in one call."""
_DATABASE: Final = "chroma.sqlite3"
"""Chroma's file in its folder. It names the subfolders in use, its segments, by their ids."""
_BUSY: Final = 5
"""Seconds to wait for a write of Chroma's."""
_VACUUM: Final = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=float(sys.argv[2]), isolation_level=None)
print(*(row[0] for row in database.execute("select id from segments")))
database.execute("vacuum")
database.close()
"""
"""Prints the segments in use, and vacuums. It runs in a process of its own: Chroma brings a SQLite
library of its own, and two libraries in one process do not see each other's locks on a file
(sqlite.org/howtocorrupt.html, 2.2.1)."""


class ChromaVectors:
    """Vectors in the folder *path*, or at the server *url*.

    A collection is named by its id. Chroma receives vectors and ids alone: no text, and no
    embedding function of its own.
    """

    name = "chroma"

    def __init__(self, path: Path | None = None, *, url: str | None = None) -> None:
        try:
            import chromadb
            from chromadb.config import Settings
        except ImportError as error:
            raise MissingExtra("chroma") from error
        settings = Settings(anonymized_telemetry=False)
        self._folder = None if url else path
        self._client: Any
        if url:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            self._client = chromadb.HttpClient(
                host=parts.hostname or "localhost",
                port=parts.port or _PORT,
                ssl=parts.scheme == "https",
                settings=settings,
            )
        elif path:
            self._client = chromadb.PersistentClient(path=str(path), settings=settings)
        else:
            self._client = chromadb.EphemeralClient(settings=settings)

    def upsert(self, collection: str, dimension: int, rows: Rows) -> None:
        """Store *rows*, each in place of the vector of its id."""
        del dimension
        made = self._client.get_or_create_collection(
            collection,
            configuration={"hnsw": {"space": "cosine"}},
            embedding_function=None,
        )
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            made.upsert(
                ids=[id for id, _ in part],
                embeddings=[[float(number) for number in vector] for _, vector in part],
            )

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete the vectors of *ids*; a missing one is not an error."""
        there = self._there(collection)
        if there is not None and ids:
            there.delete(ids=list(ids))

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids with the vectors nearest to *vector*, by exact cosine."""
        there = self._there(collection)
        count = there.count() if there is not None else 0
        if there is None or not count or k < 1:
            return []
        found = there.query(
            query_embeddings=[[float(number) for number in vector]],
            n_results=min(k, count),
            include=["distances"],
        )
        pairs = zip(found["ids"][0], found["distances"][0], strict=True)
        return in_order(
            [(id, round(max(-1.0, min(1.0, 1.0 - float(far))), PLACES)) for id, far in pairs], k
        )

    def ids(self, collection: str) -> Iterator[str]:
        """Yield the id of every vector, in order."""
        there = self._there(collection)
        if there is not None:
            yield from sorted(there.get(include=[])["ids"])

    def drop(self, collection: str) -> None:
        """Delete the collection, and its bytes from the folder.

        A server manages its own files.
        """
        if self._there(collection) is not None:
            self._client.delete_collection(collection)
        if self._folder is not None:
            # Two deletions at once would find each other's folders half deleted.
            with _ERASING:
                _erase(self._folder)

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _there(self, collection: str) -> Any:
        from chromadb.errors import NotFoundError

        try:
            return self._client.get_collection(collection, embedding_function=None)
        except NotFoundError:
            return None
        except ValueError as error:
            raise Unavailable("Chroma cannot be reached.", reason="io") from error


_ERASING: Final = Lock()


def _erase(folder: Path) -> None:
    """Erase what Chroma leaves of deleted collections: free pages and subfolders."""
    # Listed first: a subfolder is made after the row that names it.
    segments = [each for each in folder.iterdir() if each.is_dir() and _is_id(each.name)]
    command = (sys.executable, "-I", "-c", _VACUUM, str(folder / _DATABASE), str(_BUSY))
    vacuumed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if vacuumed.returncode:
        reason = vacuumed.stderr.strip().rpartition("\n")[2]
        raise Unavailable(f"Chroma's file cannot be vacuumed: {reason}.", reason="io")
    used = vacuumed.stdout.split()
    for each in segments:
        if each.name not in used:
            shutil.rmtree(each)


def _is_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
