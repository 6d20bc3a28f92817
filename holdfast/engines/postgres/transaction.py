"""Readers and transactions of the PostgreSQL engine, passed to `work`."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from time import perf_counter
from typing import LiteralString, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from holdfast.engines.base import EventFacts, Make, Row, cursor_at, scalar
from holdfast.engines.postgres.faults import Fault, chained, fault_of, lost
from holdfast.engines.postgres.protocol import Answers, BoundStatement, Lost, Wire, bind
from holdfast.engines.postgres.session import BEGIN, COMMIT, ROLLBACK
from holdfast.engines.queries import name_of, only
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import EngineFault
from holdfast.ground.events import Event

T = TypeVar("T")
Owner = dict[str, object]

_FATAL = ExecStatus.FATAL_ERROR
_MANY = 1000
"""Rows of `run_many` in one round trip."""
CANCELLED_WAIT = "01000"
"""A commit warns with it that its wait for a synchronous standby was cancelled."""
_PARAMETER = re.compile(r"%\(([a-z_][a-z0-9_]*)\)s", re.IGNORECASE)

# Both are requested with each round trip until they are known. The number is drawn only once this
# transaction has locked or written something, and again with each trip until it is used: so it is
# as if it were drawn at its first access, without a trip of its own.
_NUMBER_AND_XID = bind(
    """
    select case when pg_current_xact_id_if_assigned() is not null
            then nextval('holdfast.seq') end as seq,
        pg_current_xact_id_if_assigned() as xid
    """,
    {},
)
_DRAW = bind("select nextval('holdfast.seq') as seq, pg_current_xact_id() as xid", {})
_XID = bind("select pg_current_xact_id_if_assigned() as xid", {})
_NUMBERS = "select nextval('holdfast.seq') as seq from generate_series(1, %(count)s)"
_INSERT_CHANGES = """
insert into changes (seq, at, workspace, owner, type, ids, data, actor)
select coalesce(e.seq, nextval('holdfast.seq')), e.at, e.workspace, e.owner, e.type, e.ids, e.data,
    e.actor
from jsonb_to_recordset(cast(%(events)s as jsonb)) as e (seq bigint, at bigint, workspace text,
    owner text, type text, ids jsonb, data jsonb, actor jsonb)
returning seq, xid
"""


class Trouble(Exception):
    """A statement or the connection failed; nothing was written."""

    def __init__(self, fault: Fault) -> None:
        super().__init__("the transaction failed")
        self.fault = fault


class InDoubt(Exception):
    """The connection broke during the commit, so its outcome is in doubt."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("the outcome of a commit is unknown")
        self.__cause__ = cause


class Asking:
    """Statements on one connection, after those that begin their transaction."""

    def __init__(
        self, wire: Wire, begin: tuple[BoundStatement, ...], owner: Owner, target: str
    ) -> None:
        self._wire, self._begin, self._owner, self._target = wire, begin, owner, target
        self._ended = self._over = False
        self.fault: Fault | None = None
        self.writing = False
        self.statements = 0
        self.round_trips = 0
        self.slowest, self._slowest = "", 0.0

    @property
    def begun(self) -> bool:
        """Whether the transaction began on the server."""
        return not self._begin

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        return only(self.all(make, sql, **params), sql)

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        found = self.all(make, sql, **params)
        return found[0] if found else None

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        statement = self._spell(sql, params)
        return self._wire.rows(statement, self._execute(statement), make)

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as a tuple, in column order."""
        return self._wire.tuples(self._execute(self._spell(sql, params)))

    def end(self) -> None:
        """Refuse further statements, and roll back unless committed."""
        self._ended = True
        if self.begun and not (self._over or self._wire.broken):
            self._wire.leave(ROLLBACK)

    def _spell(self, sql: str, params: Mapping[str, object]) -> BoundStatement:
        self._check()
        try:
            return bind(sql, {**self._owner, **params})
        except Exception as error:
            # As with SQLite, the statement failed and not the transaction.
            fault = fault_of(error, target=self._target, name=name_of(sql))
            raise fault.error from error

    def _execute(self, statement: BoundStatement) -> PGresult:
        self.statements += 1
        return self._trip((statement,))[0]

    def _trip(self, batch: tuple[BoundStatement, ...]) -> list[PGresult]:
        """Send *batch*, beginning the transaction first if needed.

        Return its results; raise the error of a failed statement or connection.
        """
        ahead = len(self._begin)
        whole = (*self._begin, *batch)
        self._begin = ()
        self.round_trips += 1
        started = perf_counter()
        try:
            answers = self._wire.exchange(whole)
        except Lost as broken:
            self._fail(self._fault_in(broken.answers) or _lost(broken))
        if (took := perf_counter() - started) > self._slowest:
            self._slowest, self.slowest = took, batch[0].name
        if (fault := self._fault_in(answers)) is not None:
            self._fail(fault)
        return [result for result in answers.results[ahead:] if result is not None]

    def _fault_in(self, answers: Answers) -> Fault | None:
        failure = answers.failure()
        if failure is None:
            return None
        statement, error = failure
        return fault_of(error, target=self._target, name=statement.name, writing=self.writing)

    def _fail(self, fault: Fault) -> NoReturn:
        self.fault = fault
        raise fault.error

    def _check(self) -> None:
        if self._ended:
            raise EngineFault("A reader or transaction was used after its work ended.")
        if self.fault is not None:
            raise self.fault.error


class PostgresTransaction(Asking):
    """One write, on a connection of its own."""

    def __init__(self, wire: Wire, opening: BoundStatement, owner: Owner, target: str) -> None:
        super().__init__(wire, (BEGIN, opening), owner, target)
        self.writing = True
        self._queue: list[BoundStatement] = []
        self._untouched = False
        self._seq: int | None = None
        self._drawn: int | None = None
        self._xid: int | None = None
        self._noted: list[Event] = []
        self._calls: list[Callable[[], None]] = []
        self.value: object = None

    @property
    def seq(self) -> int:
        """This transaction's number in the engine-wide order, drawn at first access."""
        self._check()
        if self._seq is None:
            if self._drawn is None or self._queue:
                results = self._trip((*self._take_queue(), _DRAW))
                self._learn(_DRAW, results[-1])
            self._seq = self._drawn
        if self._seq is None:
            raise EngineFault("The server gave no number.")
        return self._seq

    def numbers(self, count: int) -> list[int]:
        """Return *count* more numbers, in one round trip.

        They rise, and are above `seq` and all drawn before.
        """
        self.seq  # noqa: B018 - drawn first, so that these come after it
        return sorted(self.all(scalar, _NUMBERS, count=count))

    @property
    def noted(self) -> list[Event]:
        """The noted events, with their numbers once committed."""
        return self._noted

    def number(self, numbers: Sequence[int]) -> None:
        """Give the noted events their *numbers*; without any, leave them."""
        if numbers:
            self._noted = [
                replace(event, seq=seq, cursor=cursor_at(self._xid or 0, seq))
                for event, seq in zip(self._noted, numbers, strict=True)
            ]

    @property
    def calls(self) -> list[Callable[[], None]]:
        """The callbacks to run after the commit."""
        return self._calls

    @property
    def xid(self) -> int | None:
        """The server's id of this transaction; None until it has written and we know."""
        return self._xid

    def run(self, sql: LiteralString, /, **params: object) -> int:
        """Run a statement; return how many rows changed."""
        return _changed(self._execute(self._spell(sql, params)))

    def send(self, sql: LiteralString, /, **params: object) -> None:
        """Queue a statement for the next round trip and discard its row count."""
        self._queue.append(self._spell(sql, params))
        self.statements += 1

    def run_many(self, sql: LiteralString, rows: Iterable[Mapping[str, object]], /) -> int:
        """Run one statement for each of *rows*, 1,000 per round trip."""
        self._check()
        changed, left = 0, iter(rows)
        while batch := tuple(self._spell(sql, row) for row in islice(left, _MANY)):
            self.statements += 1
            results = self._trip((*self._take_queue(), *batch))
            changed += sum(_changed(result) for result in results[-len(batch) :])
        return changed

    def each(self, sql: LiteralString, rows: Sequence[Row], /) -> None:
        """Run one statement for each of *rows*, values in the order of its parameters."""
        names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
        self.run_many(sql, (dict(zip(names, row, strict=True)) for row in rows))

    def tell(self, event: Event, each: Iterable[EventFacts], /) -> None:
        """Note an event like *event* for each of *each*, its ids and data."""
        for ids, data in each:
            self.note(replace(event, ids=ids, data=data))

    def note(self, event: Event) -> None:
        """Write *event* to the change feed with this transaction.

        It is published after the commit.
        """
        self._check()
        self._noted.append(event)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run *call* once this transaction is durable, in order of registration."""
        self._check()
        self._calls.append(call)

    def commit(self) -> None:
        """Send queued statements and noted events, and commit, in one round trip.

        Raises Trouble if nothing was written, InDoubt if that is unknown.
        """
        self._ended = True
        if self.fault is not None:
            raise Trouble(self.fault)
        if not (self.begun or self._queue or self._noted):
            return
        if self._untouched and not (self._queue or self._noted):
            self._over = True
            self._wire.leave(COMMIT)
            return
        last = self._changes() if self._noted else _XID
        final = (last,) if self._noted or self._xid is None else ()
        whole = (*self._begin, *self._take_queue(), *final, COMMIT)
        self._begin = ()
        self.round_trips += 1
        self._wire.warned.clear()
        try:
            answers = self._wire.exchange(whole, before_last=bool(final))
        except Lost as broken:
            self._check_commit(broken.answers)
            if not broken.sent:
                self._trouble(_lost(broken))
            raise InDoubt(broken) from broken
        self._check_commit(answers)
        ended = answers.results[-1]
        if ended is None or ended.command_status != b"COMMIT":
            self._trouble(Fault(EngineFault("The server undid the transaction at its commit.")))
        self._over = True
        if CANCELLED_WAIT in self._wire.warned:
            raise InDoubt(lost(written=None))

    def _check_commit(self, answers: Answers) -> None:
        """Read the results before the commit; raise a fault that prevented it."""
        fault = self._fault_in(answers)
        if len(answers.statements) > 1 and (result := answers.results[-2]) is not None:
            statement = answers.statements[-2]
            if result.ntuples and (self._noted or statement is _XID):
                self._learn(statement, result)
        if fault is None:
            return
        commit = answers.results[-1]
        if fault.again == "lost" and commit is not None and commit.status == _FATAL:
            raise InDoubt(fault.error)
        self._trouble(fault)

    def _trouble(self, fault: Fault) -> NoReturn:
        self.fault = fault
        raise Trouble(fault)

    def _execute(self, statement: BoundStatement) -> PGresult:
        self.statements += 1
        queue = self._take_queue()
        numbers = _NUMBER_AND_XID if self._seq is None else _XID
        missing = self._seq is None or self._xid is None
        results = self._trip((*queue, statement, *((numbers,) if missing else ())))
        if missing:
            self._learn(numbers, results[-1])
            self._untouched = self._xid is None
        return results[len(queue)]

    def _trip(self, batch: tuple[BoundStatement, ...]) -> list[PGresult]:
        self._drawn, self._untouched = None, False
        return super()._trip(batch)

    def _take_queue(self) -> list[BoundStatement]:
        queue, self._queue = self._queue, []
        return queue

    def _learn(self, statement: BoundStatement, result: PGresult) -> None:
        """Read the transaction's id and number, or those of noted events, from *result*."""
        rows = self._wire.rows(statement, result, dict[str, int | None])
        self._xid = rows[0]["xid"] or self._xid
        if self._ended and self._noted:
            self.number([row["seq"] or 0 for row in rows])
        elif self._seq is None:
            self._drawn = rows[0].get("seq")

    def _changes(self) -> BoundStatement:
        self.statements += 1
        rows = [_row_of(event, None) for event in self._noted]
        rows[0]["seq"] = self._seq
        return bind(_INSERT_CHANGES, {"events": msgspec.json.encode(rows).decode()})


def _lost(broken: Lost) -> Fault:
    return Fault(chained(lost(), broken.__cause__ or broken), "lost")


def _changed(result: PGresult) -> int:
    return result.command_tuples or 0


def _row_of(event: Event, seq: int | None) -> dict[str, object]:
    return {
        "seq": seq,
        "at": to_microseconds(event.at),
        "workspace": event.workspace,
        "owner": event.owner,
        "type": event.type,
        "ids": event.ids,
        "data": event.data,
        "actor": None if event.actor is None else event.actor.to_wire(),
    }
