"""Readers and transactions of the SQLite engine, passed to `work`."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from time import perf_counter
from typing import LiteralString, NoReturn, TypeVar, cast

import msgspec
from msgspec.structs import replace

from holdfast.engines.base import CURSOR_PREFIX, Make, Row
from holdfast.engines.queries import name_of
from holdfast.engines.sqlite.connection import Connection, Params
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import EngineFault, HoldfastError
from holdfast.ground.events import Event
from holdfast.ground.scope import Actor

T = TypeVar("T")
R = TypeVar("R")
Owner = dict[str, object]

_INSERT_CHANGE = """
insert into changes (seq, at, workspace, owner, type, ids, data, actor)
values (:seq, :at, :workspace, :owner, :type, :ids, :data, :actor)
"""


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
    """One write of a group.

    `used` is how many numbers after `base` it drew, `bound` how many bytes and characters it bound
    to writing statements, `calls` run after the commit.
    """

    __slots__ = (
        "_base",
        "_connection",
        "_longest",
        "_owner",
        "_slowest",
        "bound",
        "calls",
        "noted",
        "used",
    )

    def __init__(self, connection: Connection, owner: Owner, base: int) -> None:
        self._connection, self._owner, self._base = connection, owner, base
        self.used, self.bound = 0, 0
        self.noted: list[Event] = []
        self.calls: list[Callable[[], None]] = []
        self._slowest, self._longest = "", 0.0

    @property
    def slowest(self) -> str:
        """The name of the statement with the longest duration."""
        return name_of(self._slowest)

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
        return self._timed(self._connection.one, sql, self._owner | params, make)

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        return self._timed(self._connection.first, sql, self._owner | params, make)

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        return self._timed(self._connection.all, sql, self._owner | params, make)

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as a tuple, in column order."""
        return self._timed(self._connection.rows, sql, self._owner | params)

    def run(self, sql: LiteralString, /, **params: object) -> int:
        """Run a statement; return how many rows changed."""
        return self._timed(self._connection.run, sql, self._weighed(self._owner, params))

    def send(self, sql: LiteralString, /, **params: object) -> None:
        """Run a statement and discard its row count."""
        self._timed(self._connection.run, sql, self._weighed(self._owner, params))

    def run_many(self, sql: LiteralString, rows: Iterable[Mapping[str, object]], /) -> int:
        """Run one statement for each of *rows*; return the total of changed rows."""
        each = map(partial(self._weighed, self._owner), rows)
        return self._timed(self._connection.run_each, sql, each)

    def note(self, event: Event) -> None:
        """Write *event* to the change feed with this transaction.

        It is published after the commit.
        """
        self._check()
        self.used += 1 if self.noted or not self.used else 0
        seq = self._base + self.used
        self.noted.append(replace(event, seq=seq, cursor=f"{CURSOR_PREFIX}{seq}"))

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run *call* once this transaction is durable, in order of registration."""
        self._check()
        self.calls.append(call)

    def finish(self) -> None:
        """Write the noted events, and refuse further use.

        Raises the error with which SQLite ended the transaction, even if `work` suppressed it.
        """
        if self.noted:
            each = map(self._weighed, map(_row_of, self.noted))
            self._timed(self._connection.run_each, _INSERT_CHANGE, each)
        self._check()
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

    def _timed(
        self,
        call: Callable[..., R],
        sql: str,
        given: Params | Iterable[Params],
        *make: Make[object],
    ) -> R:
        begun = perf_counter()
        try:
            return call(*make, sql, given)
        except HoldfastError as error:
            if not isinstance(self._connection, _Ended) and not self._connection.raw.in_transaction:
                self._connection = cast("Connection", _Ended(error))
            raise
        finally:
            took = perf_counter() - begun
            if took > self._longest:
                self._longest, self._slowest = took, sql


def _row_of(event: Event) -> Params:
    return {
        "seq": event.seq,
        "at": to_microseconds(event.at),
        "workspace": event.workspace,
        "owner": event.owner,
        "type": event.type,
        "ids": _encode(event.ids).decode() if event.ids else _NO_IDS,
        "data": _encode(event.data).decode(),
        "actor": None if event.actor is None else _actor(event.actor),
    }


@lru_cache(maxsize=256)
def _actor(actor: Actor) -> str:
    return _encode(actor.to_wire()).decode()
