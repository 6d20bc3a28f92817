"""The storage port on SQLite."""

import os
import shutil
import threading
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from types import SimpleNamespace
from typing import LiteralString, TypeVar, cast

import apsw

from holdfast.engines import queries
from holdfast.engines.base import (
    WRITES,
    ChangeFeed,
    Dialect,
    EngineStatus,
    Make,
    Reader,
    Row,
    Scrubbed,
    Transaction,
    check_outside,
)
from holdfast.engines.sqlite.connection import Connection, Params
from holdfast.engines.sqlite.database import Database, open_database
from holdfast.engines.sqlite.feed import CommitWatcher
from holdfast.engines.sqlite.maintenance import LONG, ScrubStatus, rewrite
from holdfast.engines.sqlite.readers import FileReaders, MemoryReader, Readers
from holdfast.engines.sqlite.target import file_system, resolve
from holdfast.engines.sqlite.transaction import Owner, SQLiteReader
from holdfast.engines.sqlite.write_queue import Chore, EventLoop, Slot, refusal
from holdfast.engines.sqlite.writer import Writer
from holdfast.ground.clock import Clock
from holdfast.ground.errors import EngineFault, HoldfastError, Unavailable
from holdfast.ground.events import Event, EventBus
from holdfast.ground.scope import Scope

# Before a fork, connections are closed as far as running work ends in time: SQLite counts a
# process's file locks in memory, and a child that inherits the count believes it holds locks that
# it does not. Parent and child each open their own at the next use. The child never touches a
# connection that could not be closed, not even to close it.

T = TypeVar("T")

_OLD = 1.0

_living: "weakref.WeakSet[SQLiteCore]" = weakref.WeakSet()
_paused: list["SQLiteCore"] = []
_inherited: list[object] = []


class SQLiteCore:
    """State that all scoped views of one engine share, and the source of its feeds."""

    order, longest_wait = ("seq",), 10.0

    def __init__(self, database: Database, connection: Connection) -> None:
        self.database = database
        self._begin(connection)
        _living.add(self)

    def _begin(self, connection: Connection | None) -> None:
        database = self.database
        self.watcher = CommitWatcher(
            None if database.in_memory else lambda: database.connect("reader")
        )
        self.writer = Writer(database, self.watcher, connection)
        self.pins: dict[Connection, tuple[float, str]] = {}
        self.readers: Readers = (
            MemoryReader(database, self.writer.group.connection)
            if database.in_memory
            else FileReaders(database)
        )
        self._end = weakref.finalize(self, _close, self.watcher, self.readers, self.writer)

    @property
    def statements(self) -> int:
        """Number of statements run for callers."""
        return self.writer.group.statements + self.readers.statements

    def take(self) -> Connection:
        """Return a connection to read with; EngineFault inside `work`."""
        if self.database.inside:
            check_outside(self.database.inside)
        return self.readers.take()

    @contextmanager
    def moment(self) -> Generator[Connection]:
        """Return a connection with all statements in one snapshot."""
        connection = self.take()
        self.database.inside[threading.get_ident()] = "read"
        self.pins[connection] = (monotonic(), threading.current_thread().name)
        try:
            connection.do("begin")
            yield connection
        finally:
            self.database.inside.pop(threading.get_ident(), None)
            self.pins.pop(connection, None)
            try:
                if connection.raw.in_transaction:
                    connection.do("rollback")
            finally:
                self.readers.give(connection)

    def put(self, slot: Slot, *, waits: bool = False, here: bool = False) -> bool:
        """Queue *slot* for the writer; raises at once if it cannot run.

        With *waits* the caller waits for it: EngineFault on the writer's thread. With *here* it
        runs on this thread if no other write waits or runs; returns whether it did.
        """
        if waits and self.writer.on_its_thread:
            raise EngineFault("write inside a write: the writer would wait for itself")
        if self.database.inside:
            check_outside(self.database.inside, write=True)
        self.database.check_writable()
        if here and self.writer.run_here(slot):
            return True
        self.writer.put(slot)
        return False

    def look(self, sql: str, params: Params) -> list[SimpleNamespace]:
        """Return every row of one statement, of all owners."""
        connection = self.take()
        try:
            return connection.all(SimpleNamespace, sql, params)
        finally:
            self.readers.give(connection)

    def delivered(self, newest: Event) -> None:
        """Do nothing: no running transaction holds a change back."""

    def listen(self, wake: threading.Event) -> None:
        """Set *wake* whenever something may have changed, until `unlisten`."""
        self.watcher.listen(wake)

    def unlisten(self, wake: threading.Event) -> None:
        """Stop setting *wake*."""
        self.watcher.unlisten(wake)

    def close(self, timeout: float) -> None:
        """Finish pending writes within *timeout* seconds, then close all; once."""
        if self._end.detach() is not None:
            _close(self.watcher, self.readers, self.writer, timeout=timeout)
            self.database.publish("closed")

    def pause(self) -> None:
        """Close what can be closed, and block reopening until `resume`."""
        self.has_turn = self.database.turn.acquire(timeout=1.0)
        if not isinstance(self.readers, FileReaders):
            return
        self.watcher.rest()
        self.readers.hold(1.0)
        if self.has_turn and (connection := self.writer.group.drop()):
            connection.raw.close(force=True)

    def resume(self) -> None:
        """Continue after `pause`."""
        if isinstance(self.readers, FileReaders):
            self.readers.release()
            self.watcher.resume()
        if self.has_turn:
            self.database.turn.release()

    def begin_anew(self) -> None:
        """Abandon all connections to the parent process, and start with new ones."""
        ended = self._end.detach() is None
        _inherited.append((self.watcher, self.readers, self.writer))
        self.database.turn = Lock()
        self.database.left_behind()
        self._begin(None)
        if ended:
            self.close(0.0)


def _close(watcher: CommitWatcher, readers: Readers, writer: Writer, timeout: float = 10.0) -> None:
    watcher.close()
    readers.close()
    writer.close(timeout)


def _before_fork() -> None:
    for core in list(_living):
        core.pause()
        _paused.append(core)


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().resume()


def _after_fork_in_child() -> None:
    _paused.clear()
    for core in list(_living):
        core.begin_anew()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


Detail = str | int | float | bool | None


def status_of(core: SQLiteCore) -> EngineStatus:
    """Return the status of *core*; checks the file and reads one number."""
    database = core.database
    database.look_for_file()
    _recheck(database)
    schema, reason = 0, database.stopped
    if core.writer.queue.closed:
        reason = "closed"
    else:
        try:
            schema = _schema(core)
        except HoldfastError as error:
            reason = reason or getattr(error, "reason", "io")
    return EngineStatus(
        dialect="sqlite",
        target=database.path,
        ready=reason is None,
        reason=reason,
        schema=schema,
        details=_details(core),
        metrics=_metrics(core),
    )


def _recheck(database: Database) -> None:
    """Check a file that showed damage, unless the writer is about to."""
    if database.stopped == "corrupt" and database.turn.acquire(blocking=False):
        try:
            database.recheck()
        finally:
            database.turn.release()
        database.send()


def _schema(core: SQLiteCore) -> int:
    connection = core.take()
    try:
        return connection.number("pragma user_version")
    finally:
        core.readers.give(connection)


def _details(core: SQLiteCore) -> dict[str, Detail]:
    database = core.database
    details: dict[str, Detail] = {
        "sqlite": apsw.sqlite_lib_version(),
        "read_only": database.read_only,
        "in_memory": database.in_memory,
    }
    for thread, age in _pinned(core).items():
        details[f"pinned_by_{thread}_seconds"] = round(age, 1)
    if not database.in_memory:
        log = database.log_bytes()
        details |= {
            "log_bytes": log,
            "log_long": log > LONG,
            "file_system": file_system(database.path),
        }
        if os.path.exists(database.path):  # noqa: PTH110 - a plain name is all there is
            details["file_bytes"] = os.path.getsize(database.path)  # noqa: PTH202 - the same
            details["free_bytes"] = shutil.disk_usage(os.path.dirname(database.path)).free  # noqa: PTH120 - the same
    return details


def _pinned(core: SQLiteCore) -> dict[str, float]:
    """Return each thread with a snapshot pinned for over a second, and its age.

    Ages are in seconds, by thread name. A database in memory has no log to pin.
    """
    now = monotonic()
    ages = [(name, now - since) for since, name in list(core.pins.values())]
    return {name: age for name, age in ages if age > _OLD and not core.database.in_memory}


def _metrics(core: SQLiteCore) -> dict[str, float]:
    database = core.database
    return {
        **core.writer.group.metrics.flat(),
        "queue": len(core.writer.queue),
        "readers": len(core.readers),
        "wal_bytes": 0 if database.in_memory else database.log_bytes(),
        "pool_in_use": 0,
        "erasure_pending": int(core.writer.log.erasing),
    }


_SCRUB_EVERY = 0.05


class SQLiteEngine:
    """Storage port on a SQLite file, or in memory: one writer, many readers.

    Opened by `SQLiteEngine.open`. An engine that was not closed is closed when it is collected, or
    when the interpreter ends.
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
        """Open an engine on *target*: a path, `sqlite:PATH`, `:memory:`, or None.

        None is the user's own database.

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
        """Return the statements of *package*'s `queries.sql` in this dialect."""
        return queries.load(package, self.dialect)

    def scoped(self, scope: Scope) -> "SQLiteEngine":
        """Return this engine with *scope*'s owner in every statement.

        A parameter passed explicitly to a statement overrides the scope's.
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
        """Return every row as a tuple, in column order."""
        connection = self.core.take()
        try:
            return connection.rows(sql, self._owner | params)
        finally:
            self.core.readers.give(connection)

    def read(self, work: Callable[[Reader], T]) -> T:
        """Run *work* with a reader that sees one snapshot, and return its result."""
        with self.core.moment() as connection:
            reader = SQLiteReader(connection, self._owner)
            try:
                return work(reader)
            finally:
                reader.end()

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> T:
        """Run *work* in a transaction; return its result once the commit is durable.

        Roll back and raise if *work* raises.
        """
        gate = threading.Lock()
        gate.acquire()
        if (wrap := WRITES.get()) is not None:
            work = wrap(work, self)
        slot = Slot(work, self._owner, timeout, gate.release)
        queue = self.core.writer.queue
        try:
            if not (
                self.core.put(slot, waits=True, here=True)
                or gate.acquire(timeout=max(0.0, slot.deadline - monotonic()))
            ):
                if queue.withdraw(slot):
                    raise refusal("busy" if slot.at_the_door else "timeout")
                gate.acquire()
        except KeyboardInterrupt:
            queue.withdraw(slot)
            raise
        if slot.error is not None:
            raise slot.error
        return cast("T", slot.value)

    def submit(
        self, work: Callable[[Transaction], T], *, timeout: float | None = None
    ) -> "Future[T]":
        """Queue *work* as `write` does; cancelling the future withdraws it if it can."""
        future: Future[T] = Future()

        def finish() -> None:
            if slot.error is not None:
                future.set_exception(slot.error)
            else:
                future.set_result(cast("T", slot.value))

        claimed = future.set_running_or_notify_cancel
        slot = Slot(work, self._owner, timeout, finish, claimed=claimed)
        self.core.put(slot)
        return future

    def submit_to_loop(
        self,
        loop: EventLoop,
        work: Callable[[Transaction], object],
        finish: Callable[[object, BaseException | None], None],
        *,
        timeout: float | None = None,
    ) -> Callable[[], bool]:
        """Queue *work*; call *finish*(value, error) on *loop*.

        The loop is woken once for a whole group. Returns a function that withdraws the work and
        returns whether it could.
        """
        done = lambda: finish(slot.value, slot.error)  # noqa: E731 - one expression
        slot = Slot(work, self._owner, timeout, done, loop=loop)
        self.core.put(slot)
        return lambda: self.core.writer.queue.withdraw(slot)

    def feed(self, after: str | None = None) -> ChangeFeed:
        """Return the feed of changes after the cursor *after*; None: from now on.

        Raises CursorExpired if changes after the cursor were trimmed.

        A scoped engine follows its workspace's changes, an unscoped one follows all.
        """
        return ChangeFeed(self.core, self.queries("holdfast.engines"), after, self._scope)

    def scrub(self, *, timeout: float = 5.0) -> Scrubbed:
        """Make deleted content unreadable in the database's files.

        Rows are zeroed when they are deleted. Here the log is truncated and unused space zeroed, a
        slice of the pages at a time, so that writers do not wait for all of it. What is not done
        within *timeout* seconds, or while a reader holds the log, the writer does. A disk that
        fails leaves it to the writer too: the caller has committed, so an error would deny that.
        """
        if self.core.database.in_memory:
            return Scrubbed(done=True)
        until = monotonic() + timeout
        pause = threading.Event()
        while (erased := self._erase(until)) in ("held", "more") and monotonic() < until:
            if erased == "held":
                pause.wait(_SCRUB_EVERY)
        if erased != "done":
            self.scrub_later()
            return Scrubbed(done=False, pending=("log",))
        self.core.database.publish("scrubbed")
        return Scrubbed(done=True)

    def _erase(self, until: float) -> ScrubStatus | None:
        """Erase what was deleted, or a slice of it; None if that failed."""
        try:
            erase = self.core.writer.log.unused.erase
            return self._do(erase, timeout=max(_SCRUB_EVERY, until - monotonic()))
        except Unavailable as error:
            if error.reason == "closed" or self.core.database.read_only:
                raise
            return None

    def scrub_later(self) -> None:
        """Make the writer truncate the log after its group, or once no reader holds it."""
        if self.core.database.in_memory:
            return
        self.core.writer.log.erasing = True
        if not self.core.writer.on_its_thread:
            # The writer does it after its next group, too, and at the end.
            with suppress(Unavailable):
                self.core.put(Chore(lambda _: None, {}, None, lambda: None))

    def scrub_full(self) -> Scrubbed:
        """Scrub and rewrite the file: slow, and needs disk space for a copy."""
        if self.core.database.in_memory:
            return Scrubbed(done=True)
        self._do(rewrite)
        return self.scrub()

    def status(self) -> EngineStatus:
        """Return the engine's status."""
        return status_of(self.core)

    @property
    def statements(self) -> int:
        """Number of statements run for memories, without internal upkeep."""
        return self.core.statements

    def close(self, *, timeout: float = 10.0) -> None:
        """Finish pending writes within *timeout* seconds, then release all resources."""
        self.core.close(timeout)

    def _do(self, work: Callable[[Connection], T], *, timeout: float = -1) -> T | None:
        """Return the result of *work* on the writer's thread; None after *timeout* s."""
        gate = threading.Lock()
        gate.acquire()
        chore = Chore(work, {}, None, gate.release)
        self.core.put(chore, waits=True)
        if not gate.acquire(timeout=timeout):
            return None
        if chore.error is not None:
            raise chore.error
        return cast("T", chore.value)
