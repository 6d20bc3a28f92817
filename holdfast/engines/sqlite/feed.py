"""Notice commits of every process in a SQLite database, for its change feeds.

A commit in this process wakes the feeds at once; another's is noticed by polling `data_version`.
"""

import threading
from collections.abc import Callable
from time import monotonic

from holdfast.engines.sqlite.connection import Connection
from holdfast.ground.errors import HoldfastError

_BUSY_STEP, _QUIET_STEP, _QUIET_AFTER = 0.010, 0.050, 10.0
_LINGER = 2.0
"""Seconds to wait for the next listener: a connection costs more than a query."""


class CommitWatcher:
    """Poll for commits of other processes while there are listeners."""

    def __init__(self, connect: Callable[[], Connection] | None) -> None:
        self._connect = connect
        self.listening: set[threading.Event] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop, self._called = threading.Event(), threading.Event()

    def listen(self, wake: threading.Event) -> None:
        """Set *wake* whenever something may have changed."""
        if wake in self.listening:
            return
        with self._lock:
            self.listening = {*self.listening, wake}
            self._called.set()
            self._begin()

    def unlisten(self, wake: threading.Event) -> None:
        """Stop setting *wake*; without another listener the polling soon ends."""
        with self._lock:
            self.listening = self.listening - {wake}
            if not self.listening:
                self._called.clear()

    def tell(self) -> None:
        """Notify all listeners of a commit in this process."""
        for wake in self.listening:
            wake.set()

    def close(self) -> None:
        """Notify and remove all listeners."""
        with self._lock:
            self.tell()
            self.listening = set()
            thread = self._thread
            self._end()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def rest(self) -> None:
        """Close the connection until `resume`."""
        with self._lock:
            thread = self._thread
            self._end()
        if thread is not None:
            thread.join(1.0)

    def resume(self) -> None:
        """Poll again if there are listeners."""
        with self._lock:
            if self.listening:
                self._begin()

    def _begin(self) -> None:
        if self._thread is None and self._connect is not None:
            self._stop, self._called = threading.Event(), threading.Event()
            self._called.set()
            args = (self._connect, self._stop, self._called)
            self._thread = threading.Thread(
                target=self._watch, args=args, name="holdfast-feed", daemon=True
            )
            self._thread.start()

    def _end(self) -> None:
        self._stop.set()
        self._called.set()
        self._thread = None

    def _continues(self, stop: threading.Event, called: threading.Event) -> bool:
        """Wait for a listener; return False after `_LINGER` seconds without one."""
        if called.wait(_LINGER):
            return not stop.is_set()
        with self._lock:
            if called.is_set():
                return not stop.is_set()
            self._thread = None
            return False

    def _watch(
        self, connect: Callable[[], Connection], stop: threading.Event, called: threading.Event
    ) -> None:
        try:
            self._poll_version(connect, stop, called)
        except HoldfastError:
            # A reader meets the same fault and raises it; this thread has no caller to raise to.
            with self._lock:
                if self._stop is stop:
                    self._thread = None

    def _poll_version(
        self, connect: Callable[[], Connection], stop: threading.Event, called: threading.Event
    ) -> None:
        """Poll every few milliseconds, on a connection of its own."""
        connection = connect()
        try:
            seen, moved = -1, monotonic()
            while self._continues(stop, called):
                version = connection.number("pragma data_version")
                if version != seen:
                    seen, moved = version, monotonic()
                    self.tell()
                quiet = monotonic() - moved > _QUIET_AFTER
                if stop.wait(_QUIET_STEP if quiet else _BUSY_STEP):
                    return
        finally:
            connection.raw.close(force=True)
