"""Vectors in a table, compared through a cached numpy matrix."""

import sys
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.util import find_spec
from operator import mul
from struct import unpack_from
from typing import Any, Final, cast

from holdfast.engines.base import Dialect, Engine, Reader, Transaction, scalar
from holdfast.memories.longterm.cache_budget import VECTORS, ByteBudget, Tenant
from holdfast.memories.longterm.vectors.base import MOST_COMPARED, Near, Rows, in_order

# With numpy, if it is installed, comparing 500 vectors of 256 numbers takes a tenth of a
# millisecond; without it plain Python gives the same numbers.

PLACES: Final = 7
"""Digits of a cosine: float32 has no more, and sums in another order agree in them."""
_AT_ONCE: Final = 256
"""Rows multiplied at once: few enough that they stay in the processor's cache, and that no threads
are started, which on a busy machine wait for one another."""
_ROUGH: Final = 1e-4
"""A product of float32 is surely nearer to the exact cosine than this."""
HALF_ABOVE: Final = 50_000
"""Rows of a collection above which its vectors are cached as float16.

The cosine of a unit vector then differs by less than .0005, and 100,000 vectors of 384 numbers take
77 MB instead of 154. Without numpy they stay float32.
"""
_BLOCK: Final = 1_024
"""Rows of float16 that are converted at once."""


class Matrix:
    """Unit vectors of one dimension, one after the other, each with its id.

    *numbers* are float32, or the bits of float16 as an array of `H`.
    """

    def __init__(
        self, ids: Sequence[str], dimension: int, numbers: "array[float] | array[int]"
    ) -> None:
        self.ids, self.dimension, self.numbers = list(ids), dimension, numbers

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        return self.numbers.itemsize * len(self.numbers) + 200 * len(self.ids)

    def nearest(self, vector: Sequence[float], k: int, *, plain: bool = False) -> Near:
        """Return the *k* ids nearest to *vector*; none if it is of another dimension.

        With *plain*, numpy is not used.
        """
        if plain or not _numpy() or not 0 < k < len(self.ids) or len(vector) != self.dimension:
            return in_order(list(self._all(vector, plain=plain).items()), k)
        return ComputedCosines(self, vector).nearest(k)

    def cosines(self, vector: Sequence[float], *, plain: bool = False) -> Mapping[str, float]:
        """Return the cosine of each to *vector*, by id; none for another dimension."""
        if plain or not _numpy() or len(self.ids) <= MOST_COMPARED or len(vector) != self.dimension:
            return self._all(vector, plain=plain)
        return ComputedCosines(self, vector)

    def rough(self, vector: Sequence[float]) -> Any:
        """Return the cosine of each to *vector* within `_ROUGH`, as an array."""
        import numpy as np

        rows, query = self._rows(), np.asarray(vector, dtype=np.float32)
        step = _BLOCK if rows.dtype == np.float16 else len(rows)
        parts: Any = (rows[start : start + step] for start in range(0, len(rows), step))
        return np.concatenate(
            [np.einsum("ij,j->i", part.astype(np.float32, copy=False), query) for part in parts]
        )

    def exact(self, vector: Sequence[float], places: Any = None) -> list[float]:
        """Return the cosines of the rows at *places*, or all, equal to plain Python's."""
        import numpy as np

        rows, query = self._rows(), np.asarray(vector, dtype=np.float64)
        if places is not None:
            rows = rows[places]
        found = np.empty(len(rows))
        for start in range(0, len(rows), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            np.matmul(rows[part].astype(np.float64), query, out=found[part])
        cosines: list[float] = found.clip(-1.0, 1.0).round(PLACES).tolist()
        return cosines

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each id."""
        return {id: place for place, id in enumerate(self.ids)}

    def _all(self, vector: Sequence[float], *, plain: bool) -> Mapping[str, float]:
        if not self.ids or len(vector) != self.dimension:
            return {}
        cosines = self._plainly(vector) if plain or not _numpy() else self.exact(vector)
        return ListedCosines(self.ids, cosines)

    def _plainly(self, vector: Sequence[float]) -> list[float]:
        count, form = self.dimension, f"{self.dimension}{_FORMS[self.numbers.typecode]}"
        step, numbers = count * self.numbers.itemsize, memoryview(self.numbers).cast("B")
        query = [float(number) for number in vector]
        return [
            rounded(sum(map(mul, unpack_from(form, numbers, start), query)))
            for start in range(0, len(numbers), step)
        ]

    def _rows(self) -> Any:
        """Return the vectors as an array: `(n, dim)` float32 or float16."""
        import numpy as np

        half = self.numbers.typecode == "H"
        rows: Any = np.frombuffer(self.numbers, dtype=np.float16 if half else np.float32)
        return rows.reshape(len(self.ids), self.dimension)


class ListedCosines(Mapping[str, float]):
    """Cosines by id in the order of *ids*, one list for all vectors of a matrix."""

    def __init__(self, ids: list[str], listed: list[float]) -> None:
        self.ids, self.listed = ids, listed

    def __getitem__(self, id: str) -> float:
        return self.by_id[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def by_id(self) -> dict[str, float]:
        """The same as a dict."""
        return dict(zip(self.ids, self.listed, strict=True))


class ComputedCosines(Mapping[str, float]):
    """The cosines of the `MOST_COMPARED` rows of *matrix* nearest to *vector*, by id.

    Each is computed when it is needed.
    """

    def __init__(self, matrix: Matrix, vector: Sequence[float]) -> None:
        import numpy as np

        self._matrix, self._vector = matrix, vector
        rough: Any = matrix.rough(vector)
        self._rough, most = rough, min(MOST_COMPARED, len(rough))
        self._least: float = np.partition(rough, -most)[-most]

    def __getitem__(self, id: str) -> float:
        return self.among((id,))[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids(self._least))

    def __len__(self) -> int:
        return len(self._ids(self._least))

    def among(self, ids: Iterable[str]) -> dict[str, float]:
        """Return the cosines of those of *ids* that have one."""
        import numpy as np

        known = self._matrix.places
        places: Any = np.array([known[id] for id in ids if id in known], dtype=np.intp)
        places = places[self._rough[places] >= self._least]
        exact = self._matrix.exact(self._vector, places)
        return {self._matrix.ids[place]: each for place, each in zip(places, exact, strict=True)}

    def nearest(self, k: int) -> Near:
        """Return the *k* ids with the largest cosines."""
        import numpy as np

        most = min(k, len(self._rough))
        ids = self._ids(np.partition(self._rough, -most)[-most] - _ROUGH)
        places = [self._matrix.places[id] for id in ids]
        return in_order(list(zip(ids, self._matrix.exact(self._vector, places), strict=True)), k)

    def _ids(self, least: float) -> list[str]:
        return [self._matrix.ids[place] for place in (self._rough >= least).nonzero()[0]]


def among(cosines: Mapping[str, float], ids: Iterable[str]) -> Mapping[str, float]:
    """Return the *cosines* of those of *ids* that have one, and perhaps others."""
    if isinstance(cosines, ListedCosines):
        return cosines.by_id
    return cosines.among(ids) if isinstance(cosines, ComputedCosines) else cosines


class Matrices:
    """LRU cache of matrices by collection, within a shared byte budget."""

    def __init__(self, room: ByteBudget | None = None) -> None:
        self._room = ByteBudget() if room is None else room
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[int, Matrix]] = {}

    def at(self, name: tuple[str, str], version: int) -> Matrix | None:
        """Return the matrix of *name* as of *version*; None if it is not cached."""
        with self._lock:
            kept = self._kept.get(name)
        if kept is None or kept[0] != version:
            return None
        self._room.used(Tenant(VECTORS, name))
        return kept[1]

    def put(self, name: tuple[str, str], version: int, matrix: Matrix) -> None:
        """Cache the *matrix* of *name* as of *version*."""
        with self._lock:
            self._kept[name] = version, matrix
        self._room.take(Tenant(VECTORS, name), matrix.size_bytes, lambda: self._drop(name))

    def clear(self) -> None:
        """Evict all matrices."""
        for name in list(self._kept):
            self._drop(name)

    def _drop(self, name: tuple[str, str]) -> None:
        with self._lock:
            self._kept.pop(name, None)
        self._room.left(Tenant(VECTORS, name))


_FORMS: Final = {"f": "f", "H": "e"}
"""Formats of numbers by the type of their array."""


def matrix_of(
    rows: Iterable[tuple[str, "array[float]"]], dimension: int, *, plain: bool = False
) -> Matrix:
    """Return the matrix of *rows*, without those of another dimension.

    More than `HALF_ABOVE` are float16, but with *plain*.
    """
    ids: list[str] = []
    numbers, halves = array("f"), array("H")
    may_halve = not plain and _numpy()
    for id, vector in rows:
        if len(vector) == dimension:
            ids.append(id)
            numbers.extend(vector)
            if may_halve and len(ids) > HALF_ABOVE and not len(ids) % _BLOCK:
                halves.extend(_halved(numbers))
                numbers = array("f")
    if halves or (may_halve and len(ids) > HALF_ABOVE):
        halves.extend(_halved(numbers))
        return Matrix(ids, dimension, halves)
    return Matrix(ids, dimension, numbers)


def _halved(numbers: "array[float]") -> "array[int]":
    """Return *numbers* as the bits of float16."""
    import numpy as np

    halves = array("H")
    halves.frombytes(np.frombuffer(numbers, dtype=np.float32).astype(np.float16).tobytes())
    return halves


def rounded(cosine: float) -> float:
    """Return *cosine* within -1 to 1, to `PLACES` digits."""
    return round(max(-1.0, min(1.0, cosine)), PLACES)


@cache
def _numpy() -> bool:
    return find_spec("numpy") is not None


QUERIES: Final = "holdfast.memories.longterm.vectors"


class TableVectors:
    """Vectors in the table `ltm_vectors` of the engine; *plain* does without numpy."""

    name = "sqlite"

    def __init__(
        self, engine: Engine, workspace: str, matrices: Matrices, *, plain: bool = False
    ) -> None:
        self.engine, self._workspace = engine, workspace
        self._matrices, self._plain = matrices, plain
        self._sql = engine.queries(QUERIES)

    def upsert(self, collection: str, dimension: int, rows: Rows) -> None:
        """Store *rows*, each in place of the vector of its id."""
        self.engine.write(lambda tx: self.upsert_in(tx, collection, dimension, rows))

    def upsert_in(self, tx: Transaction, collection: str, dimension: int, rows: Rows) -> None:
        """Store *rows* if *tx* commits."""
        place = {"collection": collection, "dimension": dimension}
        dialect = self.engine.dialect
        tx.run_many(
            self._sql.put_vector,
            [{**place, "id": id, "vector": to_stored(dialect, vector)} for id, vector in rows],
        )
        tx.send(self._sql.vectors_changed, collection=collection, seq=tx.seq)

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete the vectors of *ids*; a missing one is not an error."""
        self.engine.write(lambda tx: self.delete_in(tx, collection, ids))

    def delete_in(self, tx: Transaction, collection: str, ids: Sequence[str]) -> None:
        """Delete the vectors of *ids* if *tx* commits."""
        tx.run_many(self._sql.drop_vector, [{"collection": collection, "id": id} for id in ids])
        tx.send(self._sql.vectors_changed, collection=collection, seq=tx.seq)

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids with the vectors nearest to *vector*, by exact cosine."""
        return self._matrix(collection, len(vector)).nearest(vector, k, plain=self._plain)

    def cosines(
        self, collection: str, vector: Sequence[float], *, seq: int | None = None
    ) -> Mapping[str, float]:
        """Return the cosine of each vector of the collection to *vector*, by id.

        *seq* is the number of its last change, if it is known.
        """
        return self._matrix(collection, len(vector), seq).cosines(vector, plain=self._plain)

    def _matrix(self, collection: str, dimension: int, seq: int | None = None) -> Matrix:
        name = self._workspace, collection
        if seq is None:
            seq = self.engine.first(scalar, self._sql.vector_set, collection=collection)
        if seq is None:
            return Matrix((), dimension, array("f"))
        return self._matrices.at(name, seq) or self.engine.read(
            lambda reader: self._loaded(reader, collection, dimension)
        )

    def _loaded(self, reader: Reader, collection: str, dimension: int) -> Matrix:
        place = {"collection": collection, "dimension": dimension}
        seq = reader.first(scalar, self._sql.vector_set, collection=collection)
        rows = reader.rows(self._sql.all_vectors, **place)
        vectors = ((id, from_stored(stored)) for id, stored in rows)
        matrix = matrix_of(vectors, dimension, plain=self._plain)
        if seq is not None:
            self._matrices.put((self._workspace, collection), seq, matrix)
        return matrix

    def ids(self, collection: str) -> Iterator[str]:
        """Give the id of every vector there is, in order."""
        yield from (id for (id,) in self.engine.rows(self._sql.vector_ids, collection=collection))

    def drop(self, collection: str) -> None:
        """Delete the collection."""
        self.engine.write(lambda tx: self.drop_in(tx, collection))

    def drop_in(self, tx: Transaction, collection: str) -> None:
        """Delete the collection if *tx* commits."""
        tx.send(self._sql.drop_vectors, collection=collection)
        tx.send(self._sql.drop_set, collection=collection)

    def close(self) -> None:
        """Do nothing: the engine is its owner's."""


def to_stored(dialect: Dialect, vector: Sequence[float]) -> object:
    """Return *vector* as the table has it on the engine of *dialect*."""
    if dialect == "postgres":
        return [float(number) for number in vector]
    return _little(array("f", vector)).tobytes()


def from_stored(stored: object) -> "array[float]":
    """Return the vector that the table has as *stored*, on either engine."""
    if isinstance(stored, bytes):
        vector = array("f")
        vector.frombytes(stored)
        return _little(vector)
    return array("f", cast("list[float]", stored))


def _little(vector: "array[float]") -> "array[float]":
    """Return *vector* as it is stored, or stored as it is here: the lowest byte first."""
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
