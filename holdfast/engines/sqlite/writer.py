"""The writer of a SQLite database: a thread for many writes, none for a lone one."""

import logging
import threading
from contextlib import suppress
from threading import get_ident
from time import monotonic

from holdfast.engines.sqlite.connection import Connection
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.feed import CommitWatcher
from holdfast.engines.sqlite.group_commit import GroupCommit
from holdfast.engines.sqlite.maintenance import LogKeeper
from holdfast.engines.sqlite.write_queue import (
    WAITING,
    Chore,
    Slot,
    WriteQueue,
    deliver,
    refusal,
)
from holdfast.ground.errors import EngineFault, HoldfastError, Unavailable

_PUBLISHED_REASONS = ("busy", "full", "read_only")
"""Reasons that are also published as events."""

_log = logging.getLogger(__name__)


class Writer:
    """Applies pending writes in groups, on a thread, and a lone one on its caller's.

    The thread is started by the first write that waits.
    """

    def __init__(
        self, database: Database, watcher: CommitWatcher, connection: Connection | None = None
    ) -> None:
        self._database, self._watcher = database, watcher
        self._thread: threading.Thread | None = None
        self._began = False
        self._here: int | None = None
        self._starting = threading.Lock()
        self.queue = WriteQueue()
        self.group = GroupCommit(database, self.queue, connection)
        self.log = LogKeeper(database)

    @property
    def on_its_thread(self) -> bool:
        """Whether the caller runs on the writer's own thread, or inside `run_here`."""
        # Compare the object: an ended thread's id may be reused. A thread that closes a writer that
        # never began is stored in `_thread`, but is not the writer's own.
        own = self._began and self._thread is threading.current_thread()
        return own or self._here == get_ident()

    def run_here(self, slot: Slot) -> bool:
        """Run *slot* on this thread; return False, without running it, if it must wait.

        It must while another write runs or waits, here or in another process. An interrupt is
        raised when the outcome is certain: rolled back, unless the commit was sent.
        """
        if self._database.in_memory or not (self.queue.idle or self._thread is None):
            return False
        turn, held = self._database.turn, list[bool]()
        try:
            # One call, so that no interrupt comes when the turn is taken and `held` is empty yet.
            held.extend(map(turn.acquire, (False,)))
            if not held[0] or self.queue.closed:
                return False
            self._here = get_ident()
            self._settle_here(slot)
        finally:
            if held and held[0]:
                self._here = None
                turn.release()
                if self.queue.closed:
                    self._finish_unstarted()
        self._database.send()
        if self.log.due:
            with suppress(Unavailable):
                self.put(Chore(lambda _: None, {}, None, lambda: None))
        return slot.state != WAITING

    def _settle_here(self, slot: Slot) -> None:
        done = False
        try:
            self.group.settle([slot], patient=False)
            done = slot.state != WAITING
        except Exception as error:  # noqa: BLE001 - as on the writer's thread
            _log.exception("the writer failed")
            self.group.interrupted()
            self._fail([slot], EngineFault(f"The writer failed: {error!r}."))
        except BaseException:
            done = self.group.interrupted()
            raise
        finally:
            if done and self._complete(slot) and self._watcher.listening:
                self._watcher.tell()

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
        if self.on_its_thread:
            # It finishes when it is done, `run_here` too if the handler of a signal closes in it.
            return
        self._finish_unstarted()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(max(0.0, self.group.give_up_at - monotonic()))
        self._refuse_rest()
        thread.join(0.1)

    def _finish_unstarted(self) -> None:
        """Close the connection if no thread was started, which would do it."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.current_thread()
                self._refuse_rest()
                self._finish()

    def _live(self) -> None:
        while self.queue.wait(self.log.patience):
            slots: list[Slot] = []
            settled: list[Slot] = []
            try:
                with self._database.turn:
                    # Taken only now: what came while another thread had the turn is one group.
                    slots = self.queue.take()
                    if slots and isinstance(slots[0], Chore):
                        settled = self._do(slots[0])
                    elif slots:
                        settled = self.group.settle(slots)
                told = [slot for slot in settled if self._complete(slot)]
                if told and self._watcher.listening:
                    self._watcher.tell()
                self._database.send()
            except Exception as error:  # noqa: BLE001 - callers wait
                # A bug here must not leave callers waiting without end.
                _log.exception("the writer failed")
                self.group.interrupted()
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

    def _complete(self, slot: Slot) -> bool:
        """Run the callbacks registered for after the commit; publish noted events.

        Return whether there were events.
        """
        tx, slot.tx = slot.tx, None
        if isinstance(slot.error, Unavailable) and slot.error.reason in _PUBLISHED_REASONS:
            self._database.note(slot.error.reason)
        if tx is None or slot.error is not None:
            return False
        for call in tx.calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - a callback may raise anything
                # The write is durable: a fault after it is not the write's.
                _log.exception("a call after the commit failed")
        if self._database.events.heard:
            for event in tx.events():
                self._database.events.publish(event)
        return bool(tx.feed)

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
                    self.log.finish(connection, self.group.give_up_at)
                except HoldfastError as error:
                    _log.warning("closing %s: %s", self._database.path, error)
            connection.raw.close(force=True)
