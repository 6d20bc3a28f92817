"""Pools of read connections: last in, first out, without a lock when idle."""

import threading
from collections.abc import Callable
from time import monotonic, sleep

from holdfast.engines.sqlite.connection import PATIENCE, Connection
from holdfast.engines.sqlite.database import Database
from holdfast.ground.errors import Unavailable

MOST_READERS = 16


class FileReaders:
    """Pool of at most 16 connections to one file, opened on demand.

    A list's `pop` and `append` are atomic, so the lock is taken only when no connection is idle.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._idle: list[Connection] = []
        self._all: list[Connection] = []
        self._returned = threading.Condition()
        self._waiting = 0
        self._past_statements = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    @property
    def statements(self) -> int:
        """Number of statements run on them."""
        return self._past_statements + sum(one.statements for one in list(self._all))

    def take(self) -> Connection:
        """Return a connection for this thread; Unavailable after 5 s without one."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._another()

    def give(self, connection: Connection) -> None:
        """Return *connection* to the pool."""
        self._idle.append(connection)
        if self._waiting or self._closed:
            with self._returned:
                self._returned.notify()
                if self._closed:
                    self._close_idle()

    def close(self) -> None:
        """Close all connections; one in use is closed when it is returned."""
        with self._returned:
            self._closed = True
            self._close_idle()
            self._returned.notify_all()

    def hold(self, seconds: float) -> None:
        """Close connections returned within *seconds*; open none until `release`."""
        self._returned.acquire()
        until = monotonic() + seconds
        self._close_idle()
        while self._all and monotonic() < until:
            sleep(0.001)
            self._close_idle()

    def release(self) -> None:
        """Allow connections to be opened again."""
        self._returned.release()

    def _another(self) -> Connection:
        until = monotonic() + PATIENCE
        with self._returned:
            self._waiting += 1
            try:
                while not self._closed:
                    if self._idle:
                        return self._idle.pop()
                    if len(self._all) < MOST_READERS:
                        return self._open()
                    if not self._returned.wait(until - monotonic()) and monotonic() >= until:
                        raise Unavailable(
                            f"All {MOST_READERS} readers are in use.", reason="busy", retry_after=1
                        )
            finally:
                self._waiting -= 1
        raise _closed()

    def _open(self) -> Connection:
        connection = self._database.connect("reader")
        self._all.append(connection)
        return connection

    def _close_idle(self) -> None:
        while self._idle:
            connection = self._idle.pop()
            self._all.remove(connection)
            self._past_statements += connection.statements
            connection.raw.close(force=True)


def _closed() -> Unavailable:
    return Unavailable("The engine is closed.", reason="closed", next="Open it again.")


class MemoryReader:
    """The single connection of a database in memory, for one user at a time."""

    def __init__(self, database: Database, connection: Callable[[], Connection]) -> None:
        self._turn, self._connection = database.turn, connection
        self._closed = False

    def __len__(self) -> int:
        return 1

    @property
    def statements(self) -> int:
        """0: statements are counted by the writer, which has the same connection."""
        return 0

    def take(self) -> Connection:
        """Return the connection, read-only until it is returned."""
        if not self._turn.acquire(timeout=PATIENCE):
            raise Unavailable("The database is in use.", reason="busy", retry_after=1)
        try:
            connection = self._open()
            connection.do("pragma query_only = 1")
            connection.reading = True
        except BaseException:
            self._turn.release()
            raise
        return connection

    def give(self, connection: Connection) -> None:
        """Release the connection to the next user."""
        connection.reading = False
        connection.do("pragma query_only = 0")
        self._turn.release()

    def _open(self) -> Connection:
        if self._closed:
            raise _closed()
        return self._connection()

    def close(self) -> None:
        """Refuse further `take`s; the writer closes the connection."""
        self._closed = True


Readers = FileReaders | MemoryReader
