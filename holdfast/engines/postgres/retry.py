"""Retries of failed transactions, and commits in doubt."""

import logging
import random
from collections.abc import Callable
from threading import get_ident
from time import monotonic, perf_counter, sleep
from typing import TypeVar, cast

import msgspec
from psycopg.pq.abc import PGresult

from holdfast.engines.base import Make, Reader, Row, Transaction, check_outside
from holdfast.engines.postgres.faults import Again, Fault, chained, fault_of, lost
from holdfast.engines.postgres.pool import late
from holdfast.engines.postgres.protocol import BoundStatement, Lost, Wire, bind
from holdfast.engines.postgres.server import PostgresServer
from holdfast.engines.postgres.session import BEGIN_MOMENT, Preamble
from holdfast.engines.postgres.transaction import (
    CANCELLED_WAIT,
    Asking,
    InDoubt,
    Owner,
    PostgresTransaction,
    Trouble,
)
from holdfast.engines.queries import name_of
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import HoldfastError, Unavailable

# A crashed server may lose which transaction ids it assigned, and assign them again at once; its
# start time may stay the same. So "committed" may be another transaction's status: only a noted
# change, with its own ids, proves that it is this one's. "aborted" is right of either.
_CHANGES = """
select seq from changes
where xid = cast(%(xid)s as xid8) and exists (
    select 1 from changes
    where xid = cast(%(xid)s as xid8) and seq = coalesce(cast(%(seq)s as bigint), seq)
        and type = %(type)s and at = %(at)s and ids = cast(%(ids)s as jsonb))
order by seq
"""
_STATUS = "select pg_xact_status(cast(%(xid)s as xid8)) as status"
# Its own commit waits until the synchronous standbys have all that was committed before it: a
# commit whose wait for them was cut short is visible, and yet could be lost with the primary.
_CONFIRM = bind("select pg_logical_emit_message(true, 'holdfast', '')", {})
_FUTURE = "22023"
_STEP = 0.05


def settled(
    server: PostgresServer, looking: BoundStatement, tx: PostgresTransaction, deadline: float
) -> bool:
    """Resolve a commit in doubt: return whether *tx* was committed.

    Raises Unavailable with `written` None if that remains unknown.
    """
    if tx.xid is None:
        raise lost(written=None)
    queries = (looking, bind(_STATUS, {"xid": str(tx.xid)}), *_proof(tx), _CONFIRM)
    while True:
        try:
            wire = server.pool.take(deadline)
        except HoldfastError as error:
            heals = isinstance(error, Unavailable) and error.reason != "closed"
            if heals and monotonic() < deadline:
                continue
            raise lost(written=None) from error
        try:
            numbers = _query(wire, queries)
        finally:
            server.pool.give(wire)
        if numbers is not None:
            tx.number(numbers)
            return bool(numbers)
        if monotonic() + _STEP >= deadline:
            raise lost(written=None)
        sleep(_STEP)


def _proof(tx: PostgresTransaction) -> tuple[BoundStatement, ...]:
    if not tx.noted:
        return ()
    event = tx.noted[0]
    row = {
        "xid": str(tx.xid),
        "seq": event.seq or None,  # unknown if the connection broke before it came
        "type": event.type,
        "at": to_microseconds(event.at),
        "ids": msgspec.json.encode(event.ids).decode(),
    }
    return (bind(_CHANGES, row),)


def _query(wire: Wire, queries: tuple[BoundStatement, ...]) -> list[int] | None:
    """Return the numbers of the committed changes: none if it was rolled back.

    None while that cannot be known; Unavailable if it never can.
    """
    wire.warned.clear()
    try:
        answers = wire.exchange(queries)
    except Lost:
        return None
    if (failure := answers.failure()) is not None:
        _, error = failure
        return [] if error.sqlstate == _FUTURE else None
    if CANCELLED_WAIT in wire.warned:
        return None
    _, status, *changes, _ = [wire.tuples(each) for each in answers.results if each is not None]
    match status, changes:
        case [("in progress",)], _:
            return None
        case _, [rows]:
            return [row[0] for row in rows]
        case [("aborted",)], _:
            return []
        case _:
            raise lost(written=None)


T = TypeVar("T")

MOST_TRIES = 5
READ_TIMEOUT = 30.0
_SHORTEST, _LONGEST = 0.005, 0.2
_SLOW = 0.100
_PUBLISHED_REASONS = frozenset({"busy", "full", "read_only"})
_UNUSABLE_AFTER: frozenset[Again] = frozenset({"read_only", "plan"})
"""Faults after which a connection is useless, though it still responds."""

_log = logging.getLogger(__name__)

Take = Callable[[Wire, BoundStatement, PGresult], list[T]]
"""Function that decodes the rows of a result."""


class Attempts:
    """Run statements and `work` of one owner on *server*, with retries.

    *counted* adds the statements to the counters, for those of a memory.
    """

    def __init__(
        self, server: PostgresServer, opening: Preamble, owner: Owner, *, counted: bool = True
    ) -> None:
        self._server, self._opening, self._owner = server, opening, owner
        self._counted = counted

    def look(self, make: Make[T], sql: str, params: dict[str, object]) -> list[T]:
        """Return every row of one statement, in one round trip."""
        return self._look(sql, params, lambda wire, bound, result: wire.rows(bound, result, make))

    def rows(self, sql: str, params: dict[str, object]) -> list[Row]:
        """Return every row of one statement as a tuple, in one round trip."""
        return self._look(sql, params, lambda wire, _, result: wire.tuples(result))

    def _look(self, sql: str, params: dict[str, object], take: "Take[T]") -> list[T]:
        server = self._server
        check_outside(server.inside)
        deadline = monotonic() + READ_TIMEOUT
        statement = self._spell(sql, params)
        for attempt in range(1, MOST_TRIES + 1):
            wire = server.pool.take(deadline)
            try:
                found = self._look_once(wire, statement, take)
            finally:
                server.pool.give(wire)
                if self._counted:
                    server.statements.add()
                    server.round_trips.add()
            if not isinstance(found, Fault):
                return found
            self._retry_or_raise(found, attempt, deadline)
        raise AssertionError

    def moment(self, work: Callable[[Reader], T]) -> T:
        """Run *work* with a reader that sees one snapshot, and return its result."""
        server = self._server
        check_outside(server.inside)
        deadline = monotonic() + READ_TIMEOUT
        begin = (BEGIN_MOMENT, self._opening.writing)
        for attempt in range(1, MOST_TRIES + 1):
            wire = server.pool.take(deadline)
            reader = Asking(wire, begin, self._owner, server.target.shown)
            server.inside[get_ident()] = "read"
            try:
                return work(reader)
            except HoldfastError:
                fault = reader.fault
                if fault is None or fault.again is None:
                    raise
            finally:
                server.inside.pop(get_ident(), None)
                self._give_back(reader, wire)
            self._retry_or_raise(fault, attempt, deadline)
        raise AssertionError

    def write(self, work: Callable[[Transaction], T], deadline: float, *, writes: int = 1) -> T:
        """Run *work* in a transaction; return its result once the commit is durable.

        Roll back and raise if *work* raises. *writes* is how many it does together.
        """
        server = self._server
        check_outside(server.inside, write=True)
        try:
            value, tx = self._until_written(work, deadline, writes)
        except BaseException as error:
            unknown = isinstance(error, Unavailable) and error.written is None
            server.metrics.writes.add("unknown" if unknown else "error")
            if isinstance(error, Unavailable) and error.reason in _PUBLISHED_REASONS:
                server.publish(error.reason)
            raise
        server.metrics.writes.add("ok", by=writes)
        self._complete(tx)
        return value

    def _until_written(
        self, work: Callable[[Transaction], T], deadline: float, writes: int
    ) -> tuple[T, PostgresTransaction]:
        server, came = self._server, monotonic()
        for attempt in range(1, MOST_TRIES + 1):
            if monotonic() >= deadline:
                raise late()
            wire = server.pool.take(deadline)
            server.metrics.waits.observe(monotonic() - came)
            tx = PostgresTransaction(wire, self._opening.writing, self._owner, server.target.shown)
            try:
                return self._write_once(tx, work, wire, writes), tx
            except Trouble as trouble:
                fault = trouble.fault
            except InDoubt as doubt:
                if settled(server, self._opening.looking, tx, deadline):
                    return cast("T", tx.value), tx
                fault = Fault(chained(lost(), doubt), "lost")
            self._retry_or_raise(fault, attempt, deadline)
        raise AssertionError

    def _look_once(self, wire: Wire, statement: BoundStatement, take: "Take[T]") -> list[T] | Fault:
        shown = self._server.target.shown
        try:
            answers = wire.exchange((self._opening.looking, statement))
        except Lost as broken:
            answers = broken.answers
            if answers.failure() is None:
                return Fault(chained(lost(), broken.__cause__ or broken), "lost")
        if (failure := answers.failure()) is not None:
            failed, error = failure
            fault = fault_of(error, target=shown, name=failed.name, writing=False)
            self._discard(wire, fault)
            return fault
        result = answers.results[1]
        return [] if result is None else take(wire, statement, result)

    def _write_once(
        self, tx: PostgresTransaction, work: Callable[[Transaction], T], wire: Wire, writes: int
    ) -> T:
        """Run *work* and commit.

        Raises Trouble if nothing was written, InDoubt if that is unknown.
        """
        server, begun = self._server, perf_counter()
        server.inside[get_ident()] = "write"
        try:
            value = tx.value = work(tx)
            server.inside.pop(get_ident(), None)
            ended = perf_counter()
            if ended - begun > _SLOW:
                seconds = round(ended - begun, 3)
                server.publish("slow_work", statement=tx.slowest, seconds=seconds)
            tx.commit()
            server.metrics.committed(perf_counter() - ended, writes=writes)
        except HoldfastError:
            if tx.fault is None or tx.fault.again is None:
                raise
            raise Trouble(tx.fault) from None
        else:
            return value
        finally:
            server.inside.pop(get_ident(), None)
            self._give_back(tx, wire)

    def _give_back(self, asking: Asking, wire: Wire) -> None:
        server = self._server
        if asking.fault is not None:
            self._discard(wire, asking.fault)
        asking.end()
        server.statements.add(by=asking.statements)
        server.round_trips.add(by=asking.round_trips)
        server.pool.give(wire)

    def _discard(self, wire: Wire, fault: Fault) -> None:
        """Close *wire* if *fault* makes it useless, or use it without prepared statements."""
        if fault.again in _UNUSABLE_AFTER:
            wire.close()
        if fault.again == "unprepared":
            wire.stop_preparing()
            self._server.stop_preparing()

    def _retry_or_raise(self, fault: Fault, attempt: int, deadline: float) -> None:
        pause = random.uniform(_SHORTEST, min(_LONGEST, _SHORTEST * 4**attempt))  # noqa: S311 - jitter
        if fault.again is None or attempt >= MOST_TRIES or monotonic() + pause >= deadline:
            raise fault.error
        self._server.metrics.retries.add(fault.again)
        sleep(pause)

    def _complete(self, tx: PostgresTransaction) -> None:
        """Run the callbacks registered for after the commit; publish noted events."""
        for call in tx.calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - the write is durable
                _log.exception("a call after a commit failed")
        if not tx.noted:
            return
        server = self._server
        for event in tx.noted:
            server.events.publish(event)
        server.listener.tell()
        server.notifier.tell({event.workspace for event in tx.noted})

    def _spell(self, sql: str, params: dict[str, object]) -> BoundStatement:
        try:
            return bind(sql, {**self._owner, **params})
        except Exception as error:
            name = name_of(sql)
            fault = fault_of(error, target=self._server.target.shown, name=name, writing=False)
            raise fault.error from error
