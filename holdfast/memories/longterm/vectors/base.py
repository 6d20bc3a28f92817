"""The port of vector providers.

Vectors are of unit length, and the cosine is exact, also if a provider computes another distance
inside. A collection is named by its id alone, and its vectors are all of one dimension.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar, runtime_checkable

from holdfast.engines.base import Transaction
from holdfast.memories.longterm.vectors.embedder import EmbeddingFailed

T = TypeVar("T")

Rows = Sequence[tuple[str, Sequence[float]]]
"""Ids, each with its vector."""
Near = list[tuple[str, float]]
"""Ids with their cosines, the largest first; of equal ones the older id first."""
MOST_COMPARED: Final = 5_000
"""Rows with a cosine in a recall, the nearest first, where vectors are compared elsewhere."""


class VectorProvider(Protocol):
    """Storage for vectors by collection and id."""

    name: str

    def upsert(self, collection: str, dimension: int, rows: Rows) -> None:
        """Store *rows*, each in place of the vector of its id."""
        ...

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete the vectors of *ids*; a missing one is not an error."""
        ...

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids with the vectors nearest to *vector*, by exact cosine."""
        ...

    def ids(self, collection: str) -> Iterator[str]:
        """Yield the id of every vector, in order."""
        ...

    def drop(self, collection: str) -> None:
        """Delete the collection."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...


@runtime_checkable
class WithRows(Protocol):
    """A provider that writes in the transaction of the rows.

    External ones follow: the row is committed first, and they may be behind.
    """

    def upsert_in(self, tx: Transaction, collection: str, dimension: int, rows: Rows) -> None:
        """Store *rows* if *tx* commits."""
        ...

    def delete_in(self, tx: Transaction, collection: str, ids: Sequence[str]) -> None:
        """Delete the vectors of *ids* if *tx* commits."""
        ...

    def drop_in(self, tx: Transaction, collection: str) -> None:
        """Delete the collection if *tx* commits."""
        ...


@runtime_checkable
class TellsAll(Protocol):
    """A provider that returns all cosines at once, in no order."""

    def cosines(
        self, collection: str, vector: Sequence[float], *, seq: int | None = None
    ) -> Mapping[str, float]:
        """Return the cosine of each vector of the collection to *vector*, by id.

        A provider that compares elsewhere returns those of the `MOST_COMPARED` nearest alone. *seq*
        is the number of the last change of the collection's vectors, if it is known.
        """
        ...


def provider_call(what: Callable[[], T]) -> T:
    """Call *what*, which queries a provider; raise `EmbeddingFailed` if it fails."""
    try:
        return what()
    except EmbeddingFailed:
        raise
    except Exception as error:
        # Code and servers of others: any exception counts as a provider that is down.
        raise EmbeddingFailed(f"the vector provider raised {type(error).__name__}") from error


def in_order(found: Near, k: int) -> Near:
    """Return the first *k* of *found*, in order."""
    return sorted(found, key=lambda each: (-each[1], each[0]))[: max(0, k)]
