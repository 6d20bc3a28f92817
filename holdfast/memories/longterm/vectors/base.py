"""What every keeper of vectors promises.

Vectors are of unit length, and the cosine is the true one, whatever distance a keeper speaks of
inside. A collection is named by its id alone, and its vectors are all of one dimension.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from holdfast.engines.base import Transaction
from holdfast.memories.longterm.vectors.embedder import EmbeddingFailed

T = TypeVar("T")

Rows = Sequence[tuple[str, Sequence[float]]]
"""Ids, each with its vector."""
Near = list[tuple[str, float]]
"""Ids with their cosines, the largest first; of equal ones the older id first."""


class VectorProvider(Protocol):
    """Keeps vectors by collection and id."""

    name: str

    def upsert(self, collection: str, dimension: int, rows: Rows) -> None:
        """Keep *rows*, each instead of the vector that its id had."""
        ...

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Let go of the vectors of *ids*; one that is not there is no error."""
        ...

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids whose vectors are nearest to *vector*, by true cosine."""
        ...

    def ids(self, collection: str) -> Iterator[str]:
        """Give the id of every vector there is, in order."""
        ...

    def drop(self, collection: str) -> None:
        """Let go of the collection."""
        ...

    def close(self) -> None:
        """Let go of what it holds open."""
        ...


@runtime_checkable
class WithRows(Protocol):
    """A keeper beside the rows, which writes in their transaction.

    The others follow: the row is committed first, and they may be behind.
    """

    def upsert_in(self, tx: Transaction, collection: str, dimension: int, rows: Rows) -> None:
        """Keep *rows* if *tx* commits."""
        ...

    def delete_in(self, tx: Transaction, collection: str, ids: Sequence[str]) -> None:
        """Let go of the vectors of *ids* if *tx* commits."""
        ...

    def drop_in(self, tx: Transaction, collection: str) -> None:
        """Let go of the collection if *tx* commits."""
        ...


@runtime_checkable
class TellsAll(Protocol):
    """A keeper that tells at once how near every vector is, in no order."""

    def cosines(self, collection: str, vector: Sequence[float]) -> Mapping[str, float]:
        """Return the cosine of each vector of the collection to *vector*, by id."""
        ...


def asked(what: Callable[[], T]) -> T:
    """Return what *what*, which asks a keeper of vectors, returns; else EmbeddingFailed."""
    try:
        return what()
    except Exception as error:
        # Anybody's code and anybody's server: down is down, whatever it raises.
        raise EmbeddingFailed(f"the vectors' keeper raised {type(error).__name__}") from error


def in_order(found: Near, k: int) -> Near:
    """Return the first *k* of *found*, in order."""
    return sorted(found, key=lambda each: (-each[1], each[0]))[: max(0, k)]
