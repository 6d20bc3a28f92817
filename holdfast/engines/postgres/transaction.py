"""What `work` is handed: statements on one connection, and the numbers and notes of a write."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from time import perf_counter
from typing import LiteralString, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from holdfast.engines.base import Make, Row
from holdfast.engines.postgres.faults import Fault, chained, fault_of, lost
from holdfast.engines.postgres.feed import cursor_at
from holdfast.engines.postgres.protocol import Answers, BoundStatement, Lost, Wire, asked
from holdfast.engines.postgres.session import BEGIN, COMMIT, ROLLBACK
from holdfast.engines.queries import name_of
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import EngineFault
from holdfast.ground.events import Event

T = TypeVar("T")
Owner = dict[str, object]

_FATAL = ExecStatus.FATAL_ERROR
_MANY = 1000
"""Rows of `run_many` that go in one round trip."""

# Both are asked for with each round trip until they are known. The number is drawn only once
# this transaction has locked or written something, and anew with each trip until it is used: so
# it is as if it were drawn at the moment it is asked for, without a trip of its own.
_MARKS = asked(
    """
    select case when pg_current_xact_id_if_assigned() is not null
            then nextval('holdfast.seq') end as seq,
        pg_current_xact_id_if_assigned() as xid
    """,
    {},
)
_DRAW = asked("select nextval('holdfast.seq') as seq, pg_current_xact_id() as xid", {})
_XID = asked("select pg_current_xact_id_if_assigned() as xid", {})
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
    """A statement failed, or the connection did; nothing was written."""

    def __init__(self, fault: Fault) -> None:
        super().__init__("the transaction failed")
        self.fault = fault


class InDoubt(Exception):
    """The connection broke while the commit was under way."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("the outcome of a commit is unknown")
        self.__cause__ = cause


class Asking:
    """Statements on one connection, after what begins their transaction."""

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
        """Whether the server heard of this transaction."""
        return not self._begin

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        found = self.all(make, sql, **params)
        if len(found) != 1:
            name = name_of(sql)
            raise EngineFault(f"{name!r} gave {len(found)} rows, not one.", statement=name)
        return found[0]

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        found = self.all(make, sql, **params)
        return found[0] if found else None

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        statement = self._spell(sql, params)
        return self._wire.rows(statement, self._ask(statement), make)

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as it is, its columns in their order."""
        return self._wire.tuples(self._ask(self._spell(sql, params)))

    def end(self) -> None:
        """Refuse every further statement, and undo what was not committed."""
        self._ended = True
        if self.begun and not (self._over or self._wire.broken):
            self._wire.leave(ROLLBACK)

    def _spell(self, sql: str, params: Mapping[str, object]) -> BoundStatement:
        self._check()
        try:
            return asked(sql, {**self._owner, **params})
        except Exception as error:
            # As with SQLite, the statement failed and not the transaction.
            fault = fault_of(error, target=self._target, name=name_of(sql))
            raise fault.error from error

    def _ask(self, statement: BoundStatement) -> PGresult:
        self.statements += 1
        return self._trip((statement,))[0]

    def _trip(self, batch: tuple[BoundStatement, ...]) -> list[PGresult]:
        """Send *batch*, begun if it has to be, and return its results; raises what went wrong."""
        ahead = len(self._begin)
        whole = (*self._begin, *batch)
        self._begin = ()
        self.round_trips += 1
        asked_at = perf_counter()
        try:
            answers = self._wire.exchange(whole)
        except Lost as broken:
            self._fail(self._fault_in(broken.answers) or _lost(broken))
        if (took := perf_counter() - asked_at) > self._slowest:
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
        """This transaction's number in the engine-wide order; drawn when first asked for."""
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
        """Return *count* more numbers, in one round trip: rising, above `seq` and all before."""
        self.seq  # noqa: B018 - drawn first, so that these come after it
        return sorted(self.all(_number, _NUMBERS, count=count))

    @property
    def noted(self) -> list[Event]:
        """What was noted, numbered once it is committed."""
        return self._noted

    @property
    def calls(self) -> list[Callable[[], None]]:
        """What to run once it is durable."""
        return self._calls

    @property
    def xid(self) -> int | None:
        """The server's number of this transaction, once it wrote something and we know."""
        return self._xid

    def run(self, sql: LiteralString, /, **params: object) -> int:
        """Return how many rows changed."""
        return _changed(self._ask(self._spell(sql, params)))

    def send(self, sql: LiteralString, /, **params: object) -> None:
        """Run a statement whose count nobody needs, with the next round trip."""
        self._queue.append(self._spell(sql, params))
        self.statements += 1

    def run_many(self, sql: LiteralString, rows: Iterable[Mapping[str, object]], /) -> int:
        """Run one statement for each of *rows*, a thousand to a round trip."""
        self._check()
        changed, left = 0, iter(rows)
        while batch := tuple(self._spell(sql, row) for row in islice(left, _MANY)):
            self.statements += 1
            results = self._trip((*self._take_queue(), *batch))
            changed += sum(_changed(result) for result in results[-len(batch) :])
        return changed

    def note(self, event: Event) -> None:
        """Write *event* into the change feed with this transaction; send it after the commit."""
        self._check()
        self._noted.append(event)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run *call* once this transaction is durable, in the order asked for."""
        self._check()
        self._calls.append(call)

    def commit(self) -> None:
        """Send what waits, write down what was noted, and commit, in one round trip.

        Raises Trouble when nothing was written, InDoubt when that is not known.
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
        telling = (last,) if self._noted or self._xid is None else ()
        whole = (*self._begin, *self._take_queue(), *telling, COMMIT)
        self._begin = ()
        self.round_trips += 1
        try:
            answers = self._wire.exchange(whole, before_last=bool(telling))
        except Lost as broken:
            self._judge(broken.answers)
            if not broken.sent:
                self._trouble(_lost(broken))
            raise InDoubt(broken) from broken
        self._judge(answers)
        ended = answers.results[-1]
        if ended is None or ended.command_status != b"COMMIT":
            self._trouble(Fault(EngineFault("The server undid the transaction at its commit.")))
        self._over = True

    def _judge(self, answers: Answers) -> None:
        """Take what came back before the commit; raise what is certain to have prevented it."""
        fault = self._fault_in(answers)
        if len(answers.asked) > 1 and (told := answers.results[-2]) is not None:
            statement = answers.asked[-2]
            if told.ntuples and (self._noted or statement is _XID):
                self._learn(statement, told)
        if fault is None:
            return
        commit = answers.results[-1]
        if fault.again == "lost" and commit is not None and commit.status == _FATAL:
            raise InDoubt(fault.error)
        self._trouble(fault)

    def _trouble(self, fault: Fault) -> NoReturn:
        self.fault = fault
        raise Trouble(fault)

    def _ask(self, statement: BoundStatement) -> PGresult:
        self.statements += 1
        queue = self._take_queue()
        marks = _MARKS if self._seq is None else _XID
        wanted = self._seq is None or self._xid is None
        results = self._trip((*queue, statement, *((marks,) if wanted else ())))
        if wanted:
            self._learn(marks, results[-1])
            self._untouched = self._xid is None
        return results[len(queue)]

    def _trip(self, batch: tuple[BoundStatement, ...]) -> list[PGresult]:
        self._drawn, self._untouched = None, False
        return super()._trip(batch)

    def _take_queue(self) -> list[BoundStatement]:
        queue, self._queue = self._queue, []
        return queue

    def _learn(self, statement: BoundStatement, result: PGresult) -> None:
        """Take the transaction's id and number, or those of what was noted, from *result*."""
        rows = self._wire.rows(statement, result, dict[str, int | None])
        self._xid = rows[0]["xid"] or self._xid
        if self._ended and self._noted:
            self._noted = [
                replace(event, seq=row["seq"], cursor=cursor_at(row["xid"] or 0, row["seq"] or 0))
                for event, row in zip(self._noted, rows, strict=True)
            ]
        elif self._seq is None:
            self._drawn = rows[0].get("seq")

    def _changes(self) -> BoundStatement:
        self.statements += 1
        rows = [_row_of(event, None) for event in self._noted]
        rows[0]["seq"] = self._seq
        return asked(_INSERT_CHANGES, {"events": msgspec.json.encode(rows).decode()})


def _number(*, seq: int) -> int:
    return seq


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
