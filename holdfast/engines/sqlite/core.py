"""One open database: its writer, its readers, its watcher, and their common life.

Before a fork all its connections are closed, as far as what is under way ends in time: SQLite
counts a process's file locks in memory, and a child that inherits the count believes it holds
locks that it does not. Parent and child each open their own at the next use. A connection that
could not be closed is never touched by the child, not even to close it.
"""

import os
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Lock
from typing import TypeVar

from holdfast.engines.sqlite.connection import Connection, Params
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.feed import CommitWatcher
from holdfast.engines.sqlite.readers import FileReaders, MemoryReader, Readers
from holdfast.engines.sqlite.write_queue import Slot
from holdfast.engines.sqlite.writer import Writer
from holdfast.ground.errors import EngineFault

T = TypeVar("T")

_living: "weakref.WeakSet[SQLiteCore]" = weakref.WeakSet()
_paused: list["SQLiteCore"] = []
_inherited: list[object] = []


class SQLiteCore:
    """What all the faces of one engine share."""

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
        self.readers: Readers = (
            MemoryReader(database, self.writer.group.connection)
            if database.in_memory
            else FileReaders(database)
        )
        self._end = weakref.finalize(self, _close, self.watcher, self.readers, self.writer)

    @property
    def statements(self) -> int:
        """How many statements were run for callers."""
        return self.writer.group.statements + self.readers.statements

    def take(self) -> Connection:
        """Return a connection to read with; EngineFault inside `work`."""
        self.database.check_outside()
        return self.readers.take()

    @contextmanager
    def moment(self) -> Generator[Connection]:
        """Return a connection whose statements all see one moment."""
        connection = self.take()
        self.database.enter("read")
        self.readers.begin(connection)
        try:
            connection.do("begin")
            yield connection
        finally:
            self.database.leave()
            self.readers.end(connection)
            try:
                if connection.raw.in_transaction:
                    connection.do("rollback")
            finally:
                self.readers.give(connection)

    def put(self, slot: Slot) -> None:
        """Let *slot* wait for the writer; raises at once when it cannot be run."""
        self.database.check_outside_write()
        self.database.check_writable()
        self.writer.put(slot)

    def put_and_wait(self, slot: Slot) -> None:
        """Like `put`, for who will wait: EngineFault on the writer's own thread."""
        if self.writer.on_its_thread:
            raise EngineFault("write inside a write: the writer would wait for itself")
        self.put(slot)

    def all(self, make: Callable[..., T], sql: str, params: Params) -> list[T]:
        """Return every row of one statement."""
        connection = self.take()
        try:
            return connection.all(make, sql, params)
        finally:
            self.readers.give(connection)

    def listen(self, wake: Event) -> None:
        """Set *wake* whenever something may have changed, until `unlisten`."""
        self.watcher.listen(wake)

    def unlisten(self, wake: Event) -> None:
        """Leave *wake* alone."""
        self.watcher.unlisten(wake)

    def close(self, timeout: float) -> None:
        """Write what waits within *timeout* seconds, then close everything; once."""
        if self._end.detach() is not None:
            _close(self.watcher, self.readers, self.writer, timeout=timeout)
            self.database.publish("closed")

    def pause(self) -> None:
        """Close what can be closed, and let nobody open it, until `resume`."""
        self.has_turn = self.database.turn.acquire(timeout=1.0)
        if self.database.in_memory:
            return
        self.watcher.rest()
        self.readers.hold(1.0)
        if self.has_turn and (connection := self.writer.group.drop()):
            connection.raw.close(force=True)

    def resume(self) -> None:
        """Go on after `pause`."""
        if not self.database.in_memory:
            self.readers.release()
            self.watcher.resume()
        if self.has_turn:
            self.database.turn.release()

    def begin_anew(self) -> None:
        """Leave all to the parent process, and begin without it."""
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
