"""Running `work`: once more when that can help, and to an honest end when it cannot."""

import logging
import random
from collections.abc import Callable
from time import monotonic, perf_counter, sleep
from typing import TypeVar, cast

from psycopg.pq.abc import PGresult

from holdfast.engines.base import Make, Reader, Row, Transaction
from holdfast.engines.postgres.faults import Again, Fault, chained, fault_of, lost
from holdfast.engines.postgres.pool import late
from holdfast.engines.postgres.protocol import BoundStatement, Lost, Wire, asked
from holdfast.engines.postgres.server import PostgresServer
from holdfast.engines.postgres.session import BEGIN_MOMENT, Preamble
from holdfast.engines.postgres.settling import settled
from holdfast.engines.postgres.transaction import (
    Asking,
    InDoubt,
    Owner,
    PostgresTransaction,
    Trouble,
)
from holdfast.engines.queries import name_of
from holdfast.ground.errors import HoldfastError, Unavailable

T = TypeVar("T")

MOST_TRIES = 5
READ_TIMEOUT = 30.0
_SHORTEST, _LONGEST = 0.005, 0.2
_SLOW = 0.100
_TOLD = frozenset({"busy", "full", "read_only"})
_OUTLIVED: frozenset[Again] = frozenset({"read_only", "plan"})
"""Why a connection is of no more use, though it still answers."""

_log = logging.getLogger(__name__)

Take = Callable[[Wire, BoundStatement, PGresult], list[T]]
"""How the rows of an answer are taken."""


class Attempts:
    """Statements and `work` of one owner on *server*; *counted* when they are a memory's."""

    def __init__(
        self, server: PostgresServer, opening: Preamble, owner: Owner, *, counted: bool = True
    ) -> None:
        self._server, self._opening, self._owner = server, opening, owner
        self._counted = counted

    def look(self, make: Make[T], sql: str, params: dict[str, object]) -> list[T]:
        """Return every row of one statement, in one round trip."""
        return self._look(sql, params, lambda wire, asked, result: wire.rows(asked, result, make))

    def rows(self, sql: str, params: dict[str, object]) -> list[Row]:
        """Return every row of one statement as it is, in one round trip."""
        return self._look(sql, params, lambda wire, _, result: wire.tuples(result))

    def _look(self, sql: str, params: dict[str, object], take: "Take[T]") -> list[T]:
        server = self._server
        server.check_outside()
        deadline = monotonic() + READ_TIMEOUT
        statement = self._spell(sql, params)
        for attempt in range(1, MOST_TRIES + 1):
            wire = server.pool.take(deadline)
            try:
                found = self._look_once(wire, statement, take)
            finally:
                server.pool.give(wire)
                if self._counted:
                    server.tally.made(1, 1)
            if not isinstance(found, Fault):
                return found
            self._again_or_raise(found, attempt, deadline)
        raise AssertionError

    def moment(self, work: Callable[[Reader], T]) -> T:
        """Return *work*(reader), whose statements all see one moment."""
        server = self._server
        server.check_outside()
        deadline = monotonic() + READ_TIMEOUT
        begin = (BEGIN_MOMENT, self._opening.writing)
        for attempt in range(1, MOST_TRIES + 1):
            wire = server.pool.take(deadline)
            reader = Asking(wire, begin, self._owner, server.target.shown)
            server.enter("read")
            try:
                return work(reader)
            except HoldfastError:
                fault = reader.fault
                if fault is None or fault.again is None:
                    raise
            finally:
                server.leave()
                self._give_back(reader, wire)
            self._again_or_raise(fault, attempt, deadline)
        raise AssertionError

    def write(self, work: Callable[[Transaction], T], deadline: float) -> T:
        """Return *work*(transaction) once it is durable; undo it and raise if it raises."""
        server = self._server
        server.check_outside_write()
        try:
            value, tx = self._until_written(work, deadline)
        except BaseException as error:
            unknown = isinstance(error, Unavailable) and error.written is None
            server.tally.ended("unknown" if unknown else "error")
            if isinstance(error, Unavailable) and error.reason in _TOLD:
                server.publish(error.reason)
            raise
        server.tally.ended("ok")
        self._tell(tx)
        return value

    def _until_written(
        self, work: Callable[[Transaction], T], deadline: float
    ) -> tuple[T, PostgresTransaction]:
        server, came = self._server, monotonic()
        for attempt in range(1, MOST_TRIES + 1):
            if monotonic() >= deadline:
                raise late()
            wire = server.pool.take(deadline)
            server.tally.waited(monotonic() - came)
            tx = PostgresTransaction(wire, self._opening.writing, self._owner, server.target.shown)
            try:
                return self._write_once(tx, work, wire), tx
            except Trouble as trouble:
                fault = trouble.fault
            except InDoubt as doubt:
                if settled(server, self._opening.looking, tx, deadline):
                    return cast("T", tx.value), tx
                fault = Fault(chained(lost(), doubt), "lost")
            self._again_or_raise(fault, attempt, deadline)
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
            if fault.again in _OUTLIVED:
                wire.close()
            return fault
        result = answers.results[1]
        return [] if result is None else take(wire, statement, result)

    def _write_once(
        self, tx: PostgresTransaction, work: Callable[[Transaction], T], wire: Wire
    ) -> T:
        """Run *work* and commit; raises Trouble when it was not written, InDoubt if it may be."""
        server, begun = self._server, perf_counter()
        server.enter("write")
        try:
            value = tx.value = work(tx)
            server.leave()
            ended = perf_counter()
            if ended - begun > _SLOW:
                seconds = round(ended - begun, 3)
                server.publish("slow_work", statement=tx.slowest, seconds=seconds)
            tx.commit()
            server.tally.committed(perf_counter() - ended)
        except HoldfastError:
            if tx.fault is None or tx.fault.again is None:
                raise
            raise Trouble(tx.fault) from None
        else:
            return value
        finally:
            server.leave()
            self._give_back(tx, wire)

    def _give_back(self, asking: Asking, wire: Wire) -> None:
        server = self._server
        asking.end()
        server.tally.made(asking.statements, asking.round_trips)
        if asking.fault is not None and asking.fault.again in _OUTLIVED:
            wire.close()
        server.pool.give(wire)

    def _again_or_raise(self, fault: Fault, attempt: int, deadline: float) -> None:
        pause = random.uniform(_SHORTEST, min(_LONGEST, _SHORTEST * 4**attempt))  # noqa: S311 - jitter
        if fault.again is None or attempt >= MOST_TRIES or monotonic() + pause >= deadline:
            raise fault.error
        self._server.tally.retried(fault.again)
        sleep(pause)

    def _tell(self, tx: PostgresTransaction) -> None:
        """Do what was to follow the commit."""
        for call in tx.calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - it is written; nothing after it may unsay that
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
            return asked(sql, {**self._owner, **params})
        except Exception as error:
            name = name_of(sql)
            fault = fault_of(error, target=self._server.target.shown, name=name, writing=False)
            raise fault.error from error
