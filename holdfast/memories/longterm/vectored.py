"""The vectors of one collection within one transaction: kept, dropped, or queued to be made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.memories.longterm.background.following import Following
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.embed import Vector
from holdfast.memories.longterm.rows import numbers_text
from holdfast.memories.longterm.vectors.base import WithRows
from holdfast.memories.longterm.vectors.compare import PACKAGE, Compared, compared, one_place
from holdfast.memories.longterm.vectors.table import QUERIES

if TYPE_CHECKING:
    from holdfast.memories.longterm.transaction import CollectionTransaction


class _Turn(Struct, frozen=True):
    number: int
    id: str


class Vectored:
    """What a write does to vectors. A collection that has none, and gets none, costs nothing."""

    def __init__(self, book: "CollectionTransaction") -> None:
        self._book = book
        self._sql = book.caller.engine.queries(PACKAGE)
        found = book.found
        self._model = found.embedding_model if found else None
        self._keeper = found.vector_provider if found else None
        self._dimension: int | None = None
        self._measured = found is None or self._model is None
        self._by = compared(book.caller)
        self._due: set[int] = set()
        self._gone: list[str] = []
        self._left: list[str] = []
        self._all_due = False

    @property
    def model(self) -> str | None:
        """By whose vectors the collection is compared."""
        return self._model

    @property
    def dimension(self) -> int | None:
        """How many numbers its vectors have; None while there are none."""
        if not self._measured:
            self._measured = True
            number = self._book.number
            self._dimension = self._book.tx.one(
                _dimension, self._sql.dimension_of, collection=number
            )
        return self._dimension

    def adopt(self, by: Compared) -> None:
        """Have the collection compared by another model from now on.

        Vectors of another are dropped, and what is there is queued to be embedded.
        """
        book, tx = self._book, self._book.tx
        if isinstance(by.vectors, WithRows):
            by.vectors.drop_in(tx, book.there.id)
        tx.send(self._sql.drop_embedding_jobs, collection=book.number)
        model, keeper = by.embedder.model, by.vectors.name
        tx.send(self._sql.name_model, collection=book.number, model=model, provider=keeper)
        self._model, self._keeper = model, keeper
        self._dimension, self._measured = None, True
        if book.there.items - book.there.superseded + book.there.turns:
            self._all_due = True
            self._queue("reembed", ())

    def put(self, rows: Sequence[tuple[str, Vector]]) -> bool:
        """Keep the vectors of *rows* with them; False if that is left for the background."""
        by = self._by
        if by is None or not rows:
            return False
        if self._model is None:
            self.adopt(by)
        size = len(rows[0][1])
        if self._model != by.embedder.model or not one_place(self._keeper, by.vectors.name):
            return False
        if self.dimension not in (None, size) or not isinstance(by.vectors, WithRows):
            return False
        self.measure(size)
        by.vectors.upsert_in(self._book.tx, self._book.there.id, size, rows)
        return True

    def measure(self, size: int) -> None:
        """Note how many numbers a vector has, if none was seen before."""
        if self.dimension is None:
            number = self._book.number
            self._book.tx.send(self._sql.set_dimension, collection=number, dimension=size)
            self._dimension = size

    def due(self, *numbers: int) -> None:
        """Have the rows *numbers* embedded in the background."""
        self._due.update(numbers)

    def made(self, number: int) -> None:
        """Note that the row *number* has its vector."""
        self._due.discard(number)

    def drop(self, id: str, *, anew: bool = False) -> None:
        """Let go of the vector of a row, which is made *anew* or which went."""
        if self._model is None:
            return
        self._gone.append(id)
        if not anew:
            # Another vector takes a place in the keeper; to empty it might come after that.
            self._left.append(id)

    def drop_after(self, number: int) -> None:
        """Have the turn after that of *number*, in whose vector it is, embedded again."""
        if self._model is None:
            return
        book = self._book
        after = book.tx.first(_Turn, self._sql.turn_after, collection=book.number, number=number)
        if after is not None:
            self.drop(after.id, anew=True)
            self.due(after.number)

    def close(self) -> None:
        """Write what was noted."""
        book, tx = self._book, self._book.tx
        if self._gone:
            sql = book.caller.engine.queries(QUERIES)
            place = {"collection": book.there.id}
            tx.run_many(sql.drop_vector, [{**place, "id": id} for id in self._gone])
            tx.send(sql.vectors_changed, seq=tx.seq, **place)
            if self._left:
                self._have_followed()
        if not self._due:
            return
        if self._by is not None and self._model is None:
            self.adopt(self._by)
        if self._model is not None and not self._all_due:
            self._queue("embed", sorted(self._due))
        if self._by is not None:
            tx.after_commit(book.caller.tend)

    def _have_followed(self) -> None:
        """Have a keeper that is not beside the rows let go of what went."""
        caller, collection, gone = self._book.caller, self._book.there.id, tuple(self._left)
        keeper, seq = self._keeper, self._book.tx.seq
        self._book.tx.after_commit(lambda: follow(caller, keeper, collection, seq, gone))

    def _queue(self, kind: str, numbers: Sequence[int]) -> None:
        book = self._book
        book.tx.send(
            book.sql.queue_job,
            number=book.numbers(1)[0],
            collection=book.number,
            kind=kind,
            about=numbers_text(list(numbers)),
            model=None,
            now=book.now,
        )


def follow(
    caller: CollectionContext,
    keeper: str | None,
    collection: str,
    seq: int,
    ids: tuple[str, ...] | None,
) -> None:
    """Have a *keeper* that is not beside the rows let go of *ids*, or of all with None."""
    vectors = caller.apart(keeper)
    if vectors is not None:
        key = ("following", collection, seq)
        caller.shared.worker.wake(key, Following(vectors, collection, ids))


def _dimension(*, dimension: int | None) -> int | None:
    return dimension
