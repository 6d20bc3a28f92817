"""The write-ahead log: kept short, and emptied when what was deleted must be unreadable."""

from collections.abc import Callable
from time import monotonic

import apsw

from holdfast.engines.sqlite.connection import Connection
from holdfast.engines.sqlite.database import Database
from holdfast.ground.errors import HoldfastError

LONG = 64 * 1024 * 1024
"""Bytes of log beyond which it is emptied as soon as no reader holds it."""

_ERASE_EVERY, _SHORTEN_EVERY = 0.25, 1.0


def empty(connection: Connection) -> bool:
    """Copy the log into the database and cut it to nothing; False when a reader holds it."""
    connection.patience.until = monotonic()
    try:
        connection.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    except apsw.Error as error:
        raise connection.fault(error) from error
    return True


class LogKeeper:
    """Empties the log after groups, when it is long or holds what must go."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next = 0.0
        self._held = False
        self.erasing = False

    @property
    def patience(self) -> float:
        """Seconds until it wants to look again; negative for no hurry."""
        if self.erasing:
            return _ERASE_EVERY
        return _SHORTEN_EVERY if self._held else -1

    def tend(self, connect: Callable[[], Connection]) -> None:
        """Empty the log, on the connection of *connect*, if it is time to; waits for nobody."""
        if self._database.in_memory:
            return
        long = self._database.log_bytes() > LONG
        if not (long or self.erasing):
            self._held = False
            return
        now = monotonic()
        if now < self._next:
            return
        self._next = now + (_ERASE_EVERY if self.erasing else _SHORTEN_EVERY)
        try:
            emptied = empty(connect())
        except HoldfastError as error:
            self._database.noticed(error)
            emptied = False
        if emptied and self.erasing:
            self.erasing = False
            self._database.note("scrubbed")
        if not emptied and not self._held:
            self._database.note("checkpoint_held", bytes=self._database.log_bytes())
        self._held = not emptied
