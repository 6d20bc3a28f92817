"""Readers and transactions of the SQLite engine, passed to `work`."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from time import perf_counter
from typing import LiteralString, NoReturn, TypeVar, cast

import msgspec
from msgspec.structs import replace

from holdfast.engines.base import CURSOR_PREFIX, EventFacts, Make, Row
from holdfast.engines.queries import name_of
from holdfast.engines.sqlite.connection import Connection, Params
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import EngineFault, HoldfastError
from holdfast.ground.events import Event
from holdfast.ground.scope import Actor

T = TypeVar("T")
Owner = dict[str, object]

INSERT_CHANGE = """
insert into changes (seq, at, workspace, owner, type, ids, data, actor)
values (?, ?, ?, ?, ?, ?, ?, ?)
"""
"""Inserts a row of `feed`."""


_NO_IDS = "{}"
"""Encoded form of no ids."""
_encode = msgspec.json.Encoder().encode


class _Ended:
    """Replaces the connection once `work` has returned, or *why* ended it."""

    def __init__(self, why: HoldfastError | None = None) -> None:
        self._why = why

    def __getattr__(self, name: str) -> object:
        self.refuse()

    def refuse(self) -> NoReturn:
        """Raise the error that ended the work, or EngineFault."""
        raise self._why or EngineFault("A reader or transaction was used after its work ended.")


_RETURNED = cast("Connection", _Ended())


class SQLiteReader:
    """Statements on one snapshot."""

    __slots__ = ("_connection", "_owner")

    def __init__(self, connection: Connection, owner: Owner) -> None:
        self._connection, self._owner = connection, owner

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        return self._connection.one(make, sql, self._owner | params)

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        return self._connection.first(make, sql, self._owner | params)

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        return self._connection.all(make, sql, self._owner | params)

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as a tuple, in column order."""
        return self._connection.rows(sql, self._owner | params)

    def end(self) -> None:
        """Refuse further use."""
        self._connection = _RETURNED


class SQLiteTransaction:
    """One write of a group, or one batch.

    `used` is how many numbers after `base` it drew, `bound` how many bytes and characters it bound
    to writing statements, `calls` run after the commit. `feed` has the rows of noted events, once
    the work has ended: they are written with those of the whole group.
    """

    __slots__ = (
        "_base",
        "_connection",
        "_last",
        "_longest",
        "_noted",
        "_owner",
        "_slowest",
        "bound",
        "calls",
        "feed",
        "used",
    )

    def __init__(self, connection: Connection, owner: Owner, base: int) -> None:
        self._connection, self._owner, self._base = connection, owner, base
        self.used, self.bound = 0, 0
        self._noted: list[tuple[Event, EventFacts, int]] = []
        self.feed: list[Row] = []
        self.calls: list[Callable[[], None]] = []
        self._slowest, self._longest, self._last = "", 0.0, perf_counter()

    @property
    def slowest(self) -> str:
        """The name of the statement with the longest duration."""
        return name_of(self._slowest)

    def events(self) -> Iterator[Event]:
        """Return the noted events, each with its number."""
        for event, (ids, data), seq in self._noted:
            yield replace(event, ids=ids, data=data, seq=seq, cursor=f"{CURSOR_PREFIX}{seq}")

    @property
    def seq(self) -> int:
        """This transaction's number in the engine-wide order."""
        self._check()
        self.used = self.used or 1
        return self._base + 1

    def numbers(self, count: int) -> list[int]:
        """Return *count* more numbers.

        They rise, and are above `seq` and all drawn before.
        """
        self._check()
        first = self._base + max(self.used, 1) + 1
        self.used = max(self.used, 1) + count
        return list(range(first, first + count))

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        try:
            return self._connection.one(make, sql, self._owner | params)
        finally:
            self._ran(sql)

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        try:
            return self._connection.first(make, sql, self._owner | params)
        finally:
            self._ran(sql)

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        try:
            return self._connection.all(make, sql, self._owner | params)
        finally:
            self._ran(sql)

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as a tuple, in column order."""
        try:
            return self._connection.rows(sql, self._owner | params)
        finally:
            self._ran(sql)

    def run(self, sql: LiteralString, /, **params: object) -> int:
        """Run a statement; return how many rows changed."""
        try:
            return self._connection.run(sql, self._weighed(self._owner, params))
        finally:
            self._ran(sql)

    def send(self, sql: LiteralString, /, **params: object) -> None:
        """Run a statement and discard its row count."""
        try:
            self._connection.run(sql, self._weighed(self._owner, params))
        finally:
            self._ran(sql)

    def run_many(self, sql: LiteralString, rows: Iterable[Mapping[str, object]], /) -> int:
        """Run one statement for each of *rows*; return the total of changed rows."""
        each = map(partial(self._weighed, self._owner), rows)
        try:
            return self._connection.run_each(sql, each)
        finally:
            self._ran(sql)

    def each(self, sql: LiteralString, rows: Sequence[Row], /) -> None:
        """Run one statement for each of *rows*, values in the order of its parameters."""
        for row in rows:
            for value in row:
                if type(value) is str or type(value) is bytes:
                    self.bound += len(value)
        try:
            self._connection.run_tuples(sql, rows)
        finally:
            self._ran(sql)

    def note(self, event: Event) -> None:
        """Write *event* to the change feed with this transaction.

        It is published after the commit.
        """
        self.tell(event, ((event.ids, event.data),))

    def tell(self, event: Event, each: Iterable[EventFacts], /) -> None:
        """Note an event like *event* for each of *each*, its ids and data."""
        self._check()
        for facts in each:
            self.used += 1 if self._noted or not self.used else 0
            self._noted.append((event, facts, self._base + self.used))

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run *call* once this transaction is durable, in order of registration."""
        self._check()
        self.calls.append(call)

    def finish(self) -> None:
        """Refuse further use, and make the rows of noted events.

        Raises the error with which SQLite ended the transaction, even if `work` suppressed it.
        """
        self._check()
        self.feed = [_row_of(*noted) for noted in self._noted]
        self._connection = _RETURNED

    def end(self) -> None:
        """Refuse further use."""
        self._connection = _RETURNED

    def _check(self) -> None:
        if isinstance(self._connection, _Ended):
            self._connection.refuse()

    def _weighed(self, *given: Params) -> Params:
        """Return *given* joined, and count the text and bytes of the last."""
        # Called for each row of each write; `isinstance` takes twice as long.
        for value in given[-1].values():
            if type(value) is str or type(value) is bytes:
                self.bound += len(value)
        return {**given[0], **given[-1]}

    def _ran(self, sql: str) -> None:
        """Note how long *sql* took; end the work if SQLite ended the transaction."""
        # One reading for a statement: the end of the last one is the beginning of this one.
        now = perf_counter()
        if now - self._last > self._longest:
            self._longest, self._slowest = now - self._last, sql
        self._last = now
        error = sys.exception()
        if (
            isinstance(error, HoldfastError)
            and not isinstance(self._connection, _Ended)
            # It may be one that a handler around this statement has caught.
            and not self._connection.raw.in_transaction
        ):
            self._connection = cast("Connection", _Ended(error))


def _row_of(event: Event, facts: EventFacts, seq: int) -> Row:
    ids, data = facts
    return (
        seq,
        to_microseconds(event.at),
        event.workspace,
        event.owner,
        event.type,
        _encode(ids).decode() if ids else _NO_IDS,
        _encode(data).decode(),
        None if event.actor is None else _actor(event.actor),
    )


@lru_cache(maxsize=256)
def _actor(actor: Actor) -> str:
    return _encode(actor.to_wire()).decode()
