"""What the writer, the readers and the feed of one database have in common."""

import os
import threading
from collections import deque
from typing import Literal

from holdfast.engines.sqlite.connection import Connection, Role, connect
from holdfast.engines.sqlite.target import MEMORY
from holdfast.ground.clock import Clock
from holdfast.ground.errors import Corrupt, EngineFault, HoldfastError, Unavailable
from holdfast.ground.events import Event, EventBus, Fact

Inside = Literal["read", "write"]


class Database:
    """One database file, or one in memory, as this process has it open.

    `turn` is held by whoever uses the writer's connection; in memory that is the only one.
    """

    def __init__(self, path: str, *, clock: Clock, events: EventBus, read_only: bool) -> None:
        self.path, self.clock, self.events, self.read_only = path, clock, events, read_only
        self.in_memory = path == MEMORY
        self.turn = threading.Lock()
        self._inside: dict[int, Inside] = {}
        self._stopped: Unavailable | None = None
        self._noted: deque[Event] = deque()
        self._identity = None if self.in_memory else _identity(path)

    def connect(self, role: Role) -> Connection:
        """Return a new connection to the very file that was opened; Unavailable if it is gone."""
        self.look_for_file()
        if self._stopped is not None and not isinstance(self._stopped, Corrupt):
            raise self._error()
        connection = connect(self.path, role, read_only=self.read_only)
        connection.noticed = self.noticed
        return connection

    def check_outside(self) -> None:
        """Raise EngineFault when this thread is inside `work` already."""
        if self._inside and (inside := self._inside.get(threading.get_ident())):
            raise EngineFault(f"An engine was called inside a {inside}; use what work was given.")

    def check_outside_write(self) -> None:
        """Raise EngineFault when this thread is inside `work` and wants to write."""
        if self._inside and (inside := self._inside.get(threading.get_ident())):
            raise EngineFault(f"write inside a {inside}")

    def enter(self, inside: Inside) -> None:
        """Say that this thread is inside `work` from now on."""
        self._inside[threading.get_ident()] = inside

    def leave(self) -> None:
        """Say that this thread is inside `work` no longer."""
        self._inside.pop(threading.get_ident(), None)

    def check_writable(self) -> None:
        """Raise why nothing can be written: read-only, gone, damaged."""
        if self._stopped is not None:
            raise self._error()
        if self.read_only:
            raise Unavailable(
                f"{self.path} is open for reading only.",
                reason="read_only",
                next="Give write permission on the file and open it again.",
            )

    def noticed(self, error: HoldfastError) -> None:
        """Stop further writes if *error* says that the database is damaged."""
        if isinstance(error, Corrupt) and self._stopped is None:
            self._stopped = error

    def look_for_file(self) -> None:
        """Stop further writes if the file is not the one that was opened."""
        if self._stopped is None and not self.in_memory and _identity(self.path) != self._identity:
            self.stop(f"{self.path} was deleted or replaced while it was open.")

    def stop(self, message: str) -> None:
        """Let nothing be written any more, because of *message*."""
        self._stopped = Unavailable(message, reason="io", next="Open the database again.")

    def left_behind(self) -> None:
        """Note that this is a child process now; what was in memory stayed with the parent."""
        self._inside.clear()
        if self.in_memory:
            self._stopped = Unavailable(
                "A database in memory stays with the process that opened it.",
                reason="closed",
                next="Open another one after the fork.",
            )

    @property
    def stopped(self) -> str | None:
        """Why nothing is written any more, or None."""
        if self._stopped is None:
            return None
        return "corrupt" if isinstance(self._stopped, Corrupt) else self._stopped.reason

    def note(self, type: str, **data: Fact) -> None:
        """Keep an event about the engine itself until `send`: who listens may want the turn."""
        if self.events.heard:
            at = self.clock.now()
            self._noted.append(Event(type=f"engine.{type}", at=at, workspace="*", data=data))

    def send(self) -> None:
        """Send what was noted; for who does not hold the turn."""
        while self._noted:
            self.events.publish(self._noted.popleft())

    def publish(self, type: str, **data: Fact) -> None:
        """Note an event, and send it."""
        self.note(type, **data)
        self.send()

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log."""
        try:
            return os.stat(self.path + "-wal").st_size  # noqa: PTH116 - once a group; a Path costs more
        except OSError:
            return 0

    def _error(self) -> Unavailable:
        # A new one each time: threads that raise one error together mix up its traceback.
        stopped = self._stopped
        if isinstance(stopped, Corrupt):
            return Corrupt(stopped.path, stopped.findings)
        if stopped is None:
            raise EngineFault("Asked why it stopped, and it did not.")
        return Unavailable(stopped.message, reason=stopped.reason, next=stopped.next)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - a plain name is all there is
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
