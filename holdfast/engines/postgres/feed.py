"""Wake the change feeds of a PostgreSQL database by LISTEN and NOTIFY."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import psycopg

from holdfast.ground.errors import HoldfastError

# A thread sends the notification after commits, at most once in 10 ms: inside the write's own
# transaction it would make commits wait for each other.

CHANNEL = "holdfast"

_EVERY = 0.010
_STEP = 0.25
_log = logging.getLogger(__name__)


class Notifier:
    """Notify other processes of changed workspaces, through *send*."""

    def __init__(self, send: Callable[[list[str]], None]) -> None:
        self._send = send
        self._changed: set[str] = set()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def tell(self, workspaces: set[str]) -> None:
        """Queue a notification that *workspaces* changed."""
        with self._lock:
            self._changed |= workspaces
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(
                    target=self._live, name="holdfast-notify", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Send queued notifications, and stop."""
        self._closing.set()
        self._wake.set()
        if (thread := self._thread) is not None:
            thread.join(1.0)

    def _live(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                changed, self._changed = self._changed, set()
            try:
                if changed:
                    self._send(sorted(changed))
            except HoldfastError as error:
                # Feeds elsewhere query every second without a notification.
                _log.debug("no notice was sent: %s", error)
            if self._closing.wait(_EVERY) and not self._changed:
                return


class Listener:
    """Wake feeds when something may have changed, in this process or another."""

    def __init__(self, connect: Callable[[], "psycopg.Connection[Any]"]) -> None:
        self._connect = connect
        self._listening: set[threading.Event] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self, wake: threading.Event) -> None:
        """Set *wake* whenever something may have changed."""
        if wake in self._listening:
            return
        with self._lock:
            self._listening = {*self._listening, wake}
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._live, args=(self._stop,), name="holdfast-feed", daemon=True
                )
                self._thread.start()

    def unlisten(self, wake: threading.Event) -> None:
        """Stop setting *wake*; the last one ends the listening."""
        with self._lock:
            self._listening = self._listening - {wake}
            if not self._listening:
                self._stop.set()
                self._thread = None

    def tell(self) -> None:
        """Wake all listeners."""
        for wake in self._listening:
            wake.set()

    def close(self) -> None:
        """Wake and remove all listeners."""
        with self._lock:
            self.tell()
            self._listening = set()
            self._stop.set()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * _STEP)

    def _live(self, stop: threading.Event) -> None:
        pause = _EVERY
        while not stop.is_set():
            begun = monotonic()
            try:
                self._follow(stop)
            except psycopg.Error as error:
                _log.debug("listening stopped: %s", error)
            self.tell()
            pause = _EVERY if monotonic() - begun > 1.0 else min(2 * pause, 1.0)
            stop.wait(pause)

    def _follow(self, stop: threading.Event) -> None:
        connection = self._connect()
        try:
            connection.execute(f"listen {CHANNEL}")
            # One query finds the commits from before the listening.
            self.tell()
            while not stop.is_set():
                for _ in connection.notifies(timeout=_STEP, stop_after=1):
                    self.tell()
        finally:
            with suppress(psycopg.Error):
                connection.close()
