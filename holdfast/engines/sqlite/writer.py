"""The writer thread of a SQLite database, and its log."""

import logging
import threading
from collections.abc import Callable
from time import monotonic

import apsw

from holdfast.engines.sqlite.connection import Connection
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.feed import CommitWatcher
from holdfast.engines.sqlite.group_commit import GroupCommit
from holdfast.engines.sqlite.write_queue import Chore, Slot, WriteQueue, deliver, refusal
from holdfast.ground.errors import EngineFault, HoldfastError, Unavailable

LONG = 64 * 1024 * 1024
"""Bytes of log above which it is truncated as soon as no reader holds it."""

_ERASE_EVERY, _SHORTEN_EVERY = 0.25, 1.0


def empty(connection: Connection) -> bool:
    """Checkpoint the log and truncate it; return False if a reader holds it."""
    connection.patience.until = monotonic()
    try:
        connection.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    except apsw.Error as error:
        raise connection.fault(error) from error
    return True


class LogKeeper:
    """Truncates the log after groups, when it is long or has content to erase."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next = 0.0
        self._held = False
        self.erasing = False

    @property
    def patience(self) -> float:
        """Seconds until the next check; negative for none."""
        if self.erasing:
            return _ERASE_EVERY
        return _SHORTEN_EVERY if self._held else -1

    def tend(self, connect: Callable[[], Connection]) -> None:
        """Truncate the log on the connection of *connect* if it is due; never blocks."""
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


_PUBLISHED_REASONS = ("busy", "full", "read_only")
"""Reasons that are also published as events."""

_log = logging.getLogger(__name__)


class Writer:
    """Writer thread: applies pending writes in groups; started by the first write."""

    def __init__(
        self, database: Database, watcher: CommitWatcher, connection: Connection | None = None
    ) -> None:
        self._database, self._watcher = database, watcher
        self._thread: threading.Thread | None = None
        self._began = False
        self._starting = threading.Lock()
        self.queue = WriteQueue()
        self.group = GroupCommit(database, self.queue, connection)
        self.log = LogKeeper(database)

    @property
    def on_its_thread(self) -> bool:
        """Whether the caller runs on the writer's own thread."""
        # Compare the object: an ended thread's id may be reused. A thread that closes a writer that
        # never began is stored in `_thread`, but is not the writer's own.
        return self._began and self._thread is threading.current_thread()

    def put(self, slot: Slot) -> None:
        """Queue *slot*; Unavailable at once if the queue is closed or full."""
        self.queue.put(slot)
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._live, name="holdfast-writer", daemon=True
                    )
                    self._began = True
                    self._thread.start()

    def close(self, timeout: float) -> None:
        """Finish pending writes within *timeout* seconds, then close the connection.

        The rest are refused.
        """
        self.group.give_up_at = min(self.group.give_up_at, monotonic() + timeout)
        self.queue.close()
        with self._starting:
            thread = self._thread
            if thread is None:
                self._thread = threading.current_thread()
                self._refuse_rest()
                self._finish()
                return
        if thread is threading.current_thread():
            return
        thread.join(max(0.0, self.group.give_up_at - monotonic()))
        self._refuse_rest()
        thread.join(0.1)

    def _live(self) -> None:
        while (slots := self.queue.take(self.log.patience)) is not None:
            settled: list[Slot] = []
            try:
                with self._database.turn:
                    if slots and isinstance(slots[0], Chore):
                        settled = self._do(slots[0])
                    elif slots:
                        settled = self.group.settle(slots)
                for slot in settled:
                    self._complete(slot)
                self._database.send()
            except Exception as error:  # noqa: BLE001 - callers wait
                # A bug here must not leave callers waiting without end.
                _log.exception("the writer failed")
                settled = self._fail(slots, EngineFault(f"The writer failed: {error!r}."))
            deliver(settled)
            if monotonic() > self.group.give_up_at:
                self._refuse_rest()
            with self._database.turn:
                self.log.tend(self.group.connection)
            self._database.send()
        self._finish()

    def _fail(self, slots: list[Slot], error: HoldfastError) -> list[Slot]:
        """Give *slots* that still wait *error*, and return them."""
        waiting = [slot for slot in slots if self.queue.claim(slot)]
        for slot in waiting:
            slot.error = error
        return waiting

    def _do(self, chore: Slot) -> list[Slot]:
        if not self.queue.claim(chore):
            return []
        try:
            chore.value = chore.work(self.group.connection())
        except HoldfastError as error:
            chore.error = error
        return [chore]

    def _complete(self, slot: Slot) -> None:
        """Run the callbacks registered for after the commit; publish noted events."""
        tx, slot.tx = slot.tx, None
        if isinstance(slot.error, Unavailable) and slot.error.reason in _PUBLISHED_REASONS:
            self._database.note(slot.error.reason)
        if tx is None or slot.error is not None:
            return
        for call in tx.calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - a callback may raise anything
                # The write is durable: a fault after it is not the write's.
                _log.exception("a call after the commit failed")
        for event in tx.noted:
            self._database.events.publish(event)
        if tx.noted and self._watcher.listening:
            self._watcher.tell()

    def _refuse_rest(self) -> None:
        deliver(
            [each for slot in self.queue.drain() for each in self._fail([slot], refusal("closed"))]
        )

    def _finish(self) -> None:
        with self._database.turn:
            connection = self.group.drop()
            if connection is None:
                return
            if not (self._database.in_memory or self._database.read_only):
                try:
                    connection.do("pragma optimize")
                    empty(connection)
                except HoldfastError as error:
                    _log.warning("closing %s: %s", self._database.path, error)
            connection.raw.close(force=True)
