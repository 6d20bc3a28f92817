"""Connections to read with: last in, first out, taken and put back without a lock."""

import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Protocol

from holdfast.engines.sqlite.connection import PATIENCE, Connection
from holdfast.engines.sqlite.database import Database
from holdfast.ground.errors import Unavailable

MOST_READERS = 16
_OLD = 1.0


class Readers(Protocol):
    """Where a connection to read with comes from, and goes back to."""

    def __len__(self) -> int: ...

    @property
    def statements(self) -> int:
        """How many statements were run on them."""
        ...

    def begin(self, connection: Connection) -> None:
        """Note that *connection* pins a moment from now on."""
        ...

    def end(self, connection: Connection) -> None:
        """Note that *connection* pins nothing any more."""
        ...

    def old(self) -> dict[str, float]:
        """Return the threads that have pinned a moment for over a second, and for how long."""
        ...

    def close(self) -> None:
        """Let nobody take one any more."""
        ...

    def hold(self, seconds: float) -> None:
        """Close those that come back within *seconds*, and open none, until `release`."""
        ...

    def release(self) -> None:
        """Let them be opened again."""
        ...

    def take(self) -> Connection:
        """Return a connection for this thread; Unavailable when there is none for 5 s."""
        ...

    def give(self, connection: Connection) -> None:
        """Put *connection* back."""
        ...


class FileReaders:
    """At most 16 connections to one file, opened as they are needed.

    A list's `pop` and `append` are whole by themselves, so only who finds none takes the lock.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._idle: list[Connection] = []
        self._all: list[Connection] = []
        self._room = threading.Condition()
        self._waiting = 0
        self._past_statements = 0
        self._closed = False
        self._since: dict[Connection, tuple[float, str]] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def statements(self) -> int:
        """How many statements they ran."""
        return self._past_statements + sum(one.statements for one in list(self._all))

    def take(self) -> Connection:
        """Return a connection for this thread; Unavailable when there is none for 5 s."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._another()

    def give(self, connection: Connection) -> None:
        """Put *connection* back."""
        self._idle.append(connection)
        if self._waiting or self._closed:
            with self._room:
                self._room.notify()
                if self._closed:
                    self._close_idle()

    def begin(self, connection: Connection) -> None:
        """Note that *connection* pins a moment from now on."""
        self._since[connection] = (monotonic(), threading.current_thread().name)

    def end(self, connection: Connection) -> None:
        """Note that *connection* pins nothing any more."""
        self._since.pop(connection, None)

    def old(self) -> dict[str, float]:
        """Return the threads that have pinned a moment for over a second, and for how long."""
        now = monotonic()
        ages = [(name, now - since) for since, name in list(self._since.values())]
        return {name: age for name, age in ages if age > _OLD}

    def close(self) -> None:
        """Close all; one in use is closed when it comes back."""
        with self._room:
            self._closed = True
            self._close_idle()
            self._room.notify_all()

    def hold(self, seconds: float) -> None:
        """Close those that come back within *seconds*, and open none, until `release`."""
        self._room.acquire()
        until = monotonic() + seconds
        self._close_idle()
        while self._all and monotonic() < until:
            sleep(0.001)
            self._close_idle()

    def release(self) -> None:
        """Let them be opened again."""
        self._room.release()

    def _another(self) -> Connection:
        until = monotonic() + PATIENCE
        with self._room:
            self._waiting += 1
            try:
                while not self._closed:
                    if self._idle:
                        return self._idle.pop()
                    if len(self._all) < MOST_READERS:
                        return self._open()
                    if not self._room.wait(until - monotonic()) and monotonic() >= until:
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
    """The one connection of a database in memory, one user at a time."""

    def __init__(self, database: Database, connection: Callable[[], Connection]) -> None:
        self._turn, self._connection = database.turn, connection
        self._closed = False

    def __len__(self) -> int:
        return 1

    @property
    def statements(self) -> int:
        """None: they are counted with the writer's, whose connection it is."""
        return 0

    def take(self) -> Connection:
        """Return the connection, which cannot write until it is given back."""
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
        """Let the next one have it."""
        connection.reading = False
        connection.do("pragma query_only = 0")
        self._turn.release()

    def _open(self) -> Connection:
        if self._closed:
            raise _closed()
        return self._connection()

    def begin(self, connection: Connection) -> None:
        """Note nothing: there is no log to pin."""

    def end(self, connection: Connection) -> None:
        """Note nothing."""

    def old(self) -> dict[str, float]:
        """Return none: there is no log to pin."""
        return {}

    def close(self) -> None:
        """Let nobody take it any more; the writer closes it."""
        self._closed = True

    def hold(self, seconds: float) -> None:
        """Do nothing: a database in memory stays with its process."""

    def release(self) -> None:
        """Do nothing."""
