"""What the writer, the readers and the feed of one database have in common."""

import os
import threading
from collections import deque
from time import monotonic
from typing import Literal

import apsw

from holdfast.engines.sqlite.connection import Connection, Role, connect
from holdfast.engines.sqlite.target import MEMORY
from holdfast.ground.clock import Clock
from holdfast.ground.errors import Corrupt, EngineFault, HoldfastError, Unavailable
from holdfast.ground.events import Event, EventBus, Fact

Inside = Literal["read", "write"]

CHECK_SECONDS = 1.0
"""Seconds at least between two checks of a file in which damage was met."""

_CHECK_SHARE = 20
"""How many times as long as a check took, at least, until the next one."""


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
        self._next_check = 0.0
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
        """Raise why nothing can be written: read-only, deleted, damaged.

        A file in which damage was met passes when it is due to be checked.
        """
        if not self._check_due:
            self.check_sound()
        if self.read_only:
            raise Unavailable(
                f"{self.path} is open for reading only.",
                reason="read_only",
                next="Give write permission on the file and open it again.",
            )

    def check_sound(self) -> None:
        """Raise why writing was stopped: damage, or a file that was deleted or replaced."""
        if self._stopped is not None:
            raise self._error()

    def noticed(self, error: HoldfastError) -> None:
        """Stop further writes if *error* says that the database is damaged.

        A disk that fails one read looks the same, so `recheck` decides before a write is refused.
        """
        if isinstance(error, Corrupt) and self._stopped is None:
            self._stopped = error
            if self.in_memory or isinstance(error.__cause__, UnicodeDecodeError):
                # No other connection sees it, or SQLite does not check it.
                self._next_check = float("inf")

    def recheck(self) -> None:
        """Check a file in which damage was met, if it is time to; for who holds the turn.

        The check reads the whole file on a new connection, which holds no page of the failed
        read. A sound file is written again.
        """
        if not self._check_due:
            return
        begun = monotonic()
        sound = self._is_sound()
        now = monotonic()
        self._next_check = now + max(CHECK_SECONDS, _CHECK_SHARE * (now - begun))
        if sound:
            self._stopped = None
            self.note("recovered", writes=0)

    def look_for_file(self) -> None:
        """Stop further writes if the file is not the one that was opened."""
        if (
            (self._stopped is None or isinstance(self._stopped, Corrupt))
            and not self.in_memory
            and _identity(self.path) != self._identity
        ):
            self._stopped = Unavailable(
                f"{self.path} was deleted or replaced while it was open.",
                reason="replaced",
                next="Open the database again.",
            )

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

    @property
    def _check_due(self) -> bool:
        return isinstance(self._stopped, Corrupt) and monotonic() >= self._next_check

    def _is_sound(self) -> bool:
        try:
            # Not through `noticed`: what the check meets is its result.
            connection = connect(self.path, "reader", read_only=self.read_only)
        except HoldfastError:
            return False
        try:
            return connection.execute("pragma quick_check(1)").fetchall() == [("ok",)]
        except apsw.Error:
            return False
        finally:
            connection.raw.close(force=True)

    def _error(self) -> Unavailable:
        # A new one each time: threads that raise one error together mix up its traceback.
        stopped = self._stopped
        if isinstance(stopped, Corrupt):
            return Corrupt(stopped.path, stopped.findings)
        if stopped is None:
            raise EngineFault("The engine was not stopped, so it has no reason.")
        return Unavailable(stopped.message, reason=stopped.reason, next=stopped.next)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - a plain name is all there is
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
