"""A transaction of everybody's, used in the name of one agent after the other."""

from collections.abc import Callable, Iterable, Mapping
from typing import LiteralString, TypeVar

from holdfast.engines.base import Make, Row, Transaction
from holdfast.ground.events import Event

T = TypeVar("T")


class OnBehalf:
    """*tx*, whose statements are told that they are *agent*'s in *workspace*."""

    def __init__(self, tx: Transaction, *, workspace: str, agent: str) -> None:
        self._tx = tx
        self._seq: int | None = None
        self._owner: dict[str, object] = {"workspace": workspace, "agent": agent}

    @property
    def seq(self) -> int:
        """A number of this agent's own in the engine-wide order: others share the transaction."""
        if self._seq is None:
            self._seq = self._tx.numbers(1)[0]
        return self._seq

    def numbers(self, count: int) -> list[int]:
        """Return *count* more numbers of that order."""
        return self._tx.numbers(count)

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        return self._tx.one(make, sql, **{**self._owner, **params})

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        return self._tx.first(make, sql, **{**self._owner, **params})

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        return self._tx.all(make, sql, **{**self._owner, **params})

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as it is, its columns in their order."""
        return self._tx.rows(sql, **{**self._owner, **params})

    def run(self, sql: LiteralString, /, **params: object) -> int:
        """Return how many rows changed."""
        return self._tx.run(sql, **{**self._owner, **params})

    def send(self, sql: LiteralString, /, **params: object) -> None:
        """Run a statement whose count nobody needs."""
        self._tx.send(sql, **{**self._owner, **params})

    def run_many(self, sql: LiteralString, rows: Iterable[Mapping[str, object]], /) -> int:
        """Run one statement for each of *rows*; return how many rows changed together."""
        return self._tx.run_many(sql, ({**self._owner, **row} for row in rows))

    def note(self, event: Event) -> None:
        """Write *event* into the change feed with this transaction."""
        self._tx.note(event)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run *call* once this transaction is durable."""
        self._tx.after_commit(call)
