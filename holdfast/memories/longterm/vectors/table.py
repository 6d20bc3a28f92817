"""Vectors in a plain table beside the rows, compared in this process."""

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from holdfast.engines.base import Dialect, Engine, Reader, Transaction
from holdfast.memories.longterm.vectors.base import Near, Rows
from holdfast.memories.longterm.vectors.matrix import Matrices, Matrix, matrix_of

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
        """Keep *rows*, each instead of the vector that its id had."""
        self.engine.write(lambda tx: self.upsert_in(tx, collection, dimension, rows))

    def upsert_in(self, tx: Transaction, collection: str, dimension: int, rows: Rows) -> None:
        """Keep *rows* if *tx* commits."""
        place = {"collection": collection, "dimension": dimension}
        dialect = self.engine.dialect
        tx.run_many(
            self._sql.put_vector,
            [{**place, "id": id, "vector": to_stored(dialect, vector)} for id, vector in rows],
        )
        tx.send(self._sql.vectors_changed, collection=collection, seq=tx.seq)

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Let go of the vectors of *ids*; one that is not there is no error."""
        self.engine.write(lambda tx: self.delete_in(tx, collection, ids))

    def delete_in(self, tx: Transaction, collection: str, ids: Sequence[str]) -> None:
        """Let go of the vectors of *ids* if *tx* commits."""
        tx.run_many(self._sql.drop_vector, [{"collection": collection, "id": id} for id in ids])
        tx.send(self._sql.vectors_changed, collection=collection, seq=tx.seq)

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids whose vectors are nearest to *vector*, by true cosine."""
        return self._matrix(collection, len(vector)).nearest(vector, k, plain=self._plain)

    def cosines(self, collection: str, vector: Sequence[float]) -> Mapping[str, float]:
        """Return the cosine of each vector of the collection to *vector*, by id."""
        return self._matrix(collection, len(vector)).cosines(vector, plain=self._plain)

    def _matrix(self, collection: str, dimension: int) -> Matrix:
        def work(reader: Reader) -> Matrix:
            seq = reader.first(_seq, self._sql.vector_set, collection=collection)
            if seq is None:
                return Matrix((), dimension, array("f"))

            def load() -> Matrix:
                place = {"collection": collection, "dimension": dimension}
                rows = reader.rows(self._sql.all_vectors, **place)
                return matrix_of(((id, from_stored(stored)) for id, stored in rows), dimension)

            return self._matrices.get((self._workspace, collection), seq, load)

        return self.engine.read(work)

    def ids(self, collection: str) -> Iterator[str]:
        """Give the id of every vector there is, in order."""
        yield from (id for (id,) in self.engine.rows(self._sql.vector_ids, collection=collection))

    def drop(self, collection: str) -> None:
        """Let go of the collection."""
        self.engine.write(lambda tx: self.drop_in(tx, collection))

    def drop_in(self, tx: Transaction, collection: str) -> None:
        """Let go of the collection if *tx* commits."""
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


def _seq(*, seq: int) -> int:
    return seq
