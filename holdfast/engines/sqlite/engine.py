"""The engine's face: what a memory calls, and where it leads."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, LiteralString, TypeVar, cast

from holdfast.engines import queries
from holdfast.engines.base import Dialect, EngineStatus, Make, Reader, Row, Scrubbed, Transaction
from holdfast.engines.sqlite.core import SQLiteCore
from holdfast.engines.sqlite.feed import SQLiteFeed
from holdfast.engines.sqlite.log import empty
from holdfast.engines.sqlite.opening import open_database
from holdfast.engines.sqlite.rewriting import rewrite
from holdfast.engines.sqlite.status import status_of
from holdfast.engines.sqlite.target import resolve
from holdfast.engines.sqlite.transaction import Owner, SQLiteReader
from holdfast.engines.sqlite.write_queue import Chore, EventLoop, Slot, refusal
from holdfast.ground.clock import Clock
from holdfast.ground.events import EventBus
from holdfast.ground.scope import Scope

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds that a write may wait for its turn, unless it says otherwise."""

_SCRUB_EVERY = 0.05


class SQLiteEngine:
    """Rows in a SQLite file, or in memory: one writer with group commit, many readers.

    Made by `SQLiteEngine.open`. An engine never closed is closed when it is let go of, or when
    the interpreter ends.
    """

    dialect: Dialect = "sqlite"

    def __init__(self, core: SQLiteCore, scope: Scope | None = None) -> None:
        self.core, self._scope = core, scope
        self._owner: Owner = (
            {}
            if scope is None
            else {
                "workspace": scope.workspace,
                "agent": scope.agent,
                "user": scope.user,
                "credential": scope.credential,
            }
        )
        self.events: EventBus = core.database.events

    @classmethod
    def open(
        cls,
        target: str | Path | None,
        *,
        clock: Clock,
        migrate: bool = True,
        read_only: bool = False,
        create: bool = True,
        events: EventBus | None = None,
    ) -> "SQLiteEngine":
        """Return an engine on *target*: a path, `sqlite:PATH`, `:memory:`, None for the user's.

        Without *migrate* a database that lacks migrations is Unavailable, and without *create*
        one that does not exist is NotFound. Raises InvalidInput for another program's file,
        Corrupt, TooNew, and Unavailable with the reason.
        """
        database, connection = open_database(
            resolve(target),
            clock=clock,
            events=events or EventBus(),
            migrations=migrate,
            read_only=read_only,
            create=create,
        )
        return cls(SQLiteCore(database, connection))

    def queries(self, package: str) -> SimpleNamespace:
        """Return the statements of *package*'s `queries.sql`, as this engine spells them."""
        return queries.load(package, self.dialect)

    def scoped(self, scope: Scope) -> "SQLiteEngine":
        """Return this engine with every statement carrying *scope*'s owner.

        A value that a statement is given explicitly stands before the scope's.
        """
        return SQLiteEngine(self.core, scope)

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        connection = self.core.take()
        try:
            return connection.one(make, sql, self._owner | params)
        finally:
            self.core.readers.give(connection)

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        connection = self.core.take()
        try:
            return connection.first(make, sql, self._owner | params)
        finally:
            self.core.readers.give(connection)

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        connection = self.core.take()
        try:
            return connection.all(make, sql, self._owner | params)
        finally:
            self.core.readers.give(connection)

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as it is, its columns in their order."""
        connection = self.core.take()
        try:
            return connection.rows(sql, self._owner | params)
        finally:
            self.core.readers.give(connection)

    def read(self, work: Callable[[Reader], T]) -> T:
        """Return *work*(reader), whose statements all see one moment."""
        with self.core.moment() as connection:
            reader = SQLiteReader(connection, self._owner)
            try:
                return work(reader)
            finally:
                reader.end()

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> T:
        """Return *work*(transaction) once it is durable; undo it and raise if it raises."""
        gate = threading.Lock()
        gate.acquire()
        slot = Slot(work, self._owner, _seconds(timeout), lambda _: gate.release())
        queue = self.core.writer.queue
        try:
            self.core.put_and_wait(slot)
            arrived = gate.acquire(timeout=max(0.0, slot.deadline - monotonic()))
            if not arrived:
                if queue.withdraw(slot):
                    raise refusal("busy" if slot.at_the_door else "timeout")
                gate.acquire()
        except KeyboardInterrupt:
            queue.withdraw(slot)
            raise
        return _outcome(slot)

    def submit(
        self, work: Callable[[Transaction], T], *, timeout: float | None = None
    ) -> "Future[T]":
        """Hand in *work* as `write` does; cancelling the future withdraws it if it can."""
        future: Future[T] = Future()

        def finish(slot: Slot) -> None:
            if slot.error is not None:
                future.set_exception(slot.error)
            else:
                future.set_result(cast("T", slot.value))

        claimed = future.set_running_or_notify_cancel
        self.core.put(Slot(work, self._owner, _seconds(timeout), finish, claimed=claimed))
        return future

    def submit_to_loop(
        self,
        loop: EventLoop,
        work: Callable[[Transaction], object],
        finish: Callable[[object, BaseException | None], None],
        *,
        timeout: float | None = None,
    ) -> Callable[[], bool]:
        """Hand in *work*; call *finish*(value, error) on *loop*, woken once for a whole group.

        Returns what withdraws the work, and says whether it could.
        """
        slot = Slot(
            work,
            self._owner,
            _seconds(timeout),
            lambda done: finish(done.value, done.error),
            loop=loop,
        )
        self.core.put(slot)
        return lambda: self.core.writer.queue.withdraw(slot)

    def feed(self, after: str | None = None) -> SQLiteFeed:
        """Follow the changes after the cursor *after*, or from now; CursorExpired if too old.

        A scoped engine follows its workspace's changes, an unscoped one all.
        """
        named = self._scope is not None and self._scope.workspace != "*"
        workspace = self._scope.workspace if self._scope and named else None
        return SQLiteFeed(self.core, after, workspace)

    def scrub(self, *, timeout: float = 5.0) -> Scrubbed:
        """Make what was deleted unreadable in the database's files.

        Deleted rows are zeroed as they are deleted; what is left is the log, which is emptied
        here. While a reader holds it that is tried again, up to *timeout* seconds, and after
        that by the writer, until the reader has ended.
        """
        if self.core.database.in_memory:
            return Scrubbed(done=True)
        until = monotonic() + timeout
        pause = threading.Event()
        while not self._empty_log(until):
            if monotonic() >= until:
                self.scrub_later()
                return Scrubbed(done=False, pending=("log",))
            pause.wait(_SCRUB_EVERY)
        self.core.database.publish("scrubbed")
        return Scrubbed(done=True)

    def scrub_later(self) -> None:
        """Have the writer empty the log after its group, or as soon as no reader holds it."""
        if self.core.database.in_memory:
            return
        self.core.writer.log.erasing = True
        if not self.core.writer.on_its_thread:
            self.core.put(Chore(lambda _: None, {}, TIMEOUT, lambda _: None))

    def scrub_full(self) -> Scrubbed:
        """Write the file anew as well; that takes long, and the room of another copy."""
        if self.core.database.in_memory:
            return Scrubbed(done=True)
        gate = threading.Lock()
        gate.acquire()
        chore = Chore(rewrite, {}, TIMEOUT, lambda _: gate.release())
        self.core.put_and_wait(chore)
        gate.acquire()
        _outcome(chore)
        return self.scrub()

    def status(self) -> EngineStatus:
        """Say how the engine is."""
        return status_of(self.core)

    @property
    def statements(self) -> int:
        """How many statements memories had it run, its own bookkeeping apart."""
        return self.core.statements

    def close(self, *, timeout: float = 10.0) -> None:
        """Finish what waits, within *timeout* seconds, and let go of everything."""
        self.core.close(timeout)

    def _empty_log(self, until: float) -> bool:
        gate = threading.Lock()
        gate.acquire()
        chore = Chore(empty, {}, TIMEOUT, lambda _: gate.release())
        self.core.put_and_wait(chore)
        if not gate.acquire(timeout=max(_SCRUB_EVERY, until - monotonic())):
            return False
        return bool(_outcome(chore))


def _seconds(timeout: float | None) -> float:
    return TIMEOUT if timeout is None else timeout


def _outcome(slot: Slot) -> Any:
    if slot.error is not None:
        raise slot.error
    return slot.value
