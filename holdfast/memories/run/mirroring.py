"""The thread on which runs are reported, all of one handle's, so that no write waits for it."""

import atexit
import threading
import time
from collections.abc import Callable
from typing import Final

from holdfast.memories.run.records.mirror import Mirror

BEAT: Final = 15.0
"""Seconds of quiet after which a run says that it is alive."""

LAST_WORDS: Final = 5.0
"""Seconds that closing waits for what is still to be reported."""


LOOKS_EVERY: Final = 0.2
"""Seconds after which a run that something happened in is looked at, while another one waits."""


class _Turn:
    """A mirror, and when it is to be asked again."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror, self.asked = mirror, -BEAT

    def due(self, *, hurried: bool) -> float:
        """Return when it is its turn, on the monotonic clock."""
        if not self.mirror.waits:
            return self.asked + BEAT
        return self.asked + (0.0 if hurried and not self.mirror.failures else self.mirror.pause)


class Mirroring:
    """Asks each mirror for its report in its time. The thread is there while a run is attached.

    With *strict* nobody makes it faster than its mirrors' pauses: a server says how often.
    """

    def __init__(self, *, strict: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._strict, self._now = strict, now
        self._turns: list[_Turn] = []
        self._changed = threading.Condition()
        self._rung, self._urgent = threading.Event(), threading.Event()
        self._hurried = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def ring(self) -> None:
        """Tell that there is something to report; a write calls this, so it must cost nothing."""
        if not self._rung.is_set():
            self._rung.set()

    def add(self, mirror: Mirror) -> None:
        """Report *mirror* from now on, until it is over."""
        with self._changed:
            self._turns.append(_Turn(mirror))
            if self._thread is None and not self._closed:
                atexit.register(self.close)
                self._thread = threading.Thread(
                    target=self._work, name="holdfast-runs", daemon=True
                )
                self._thread.start()
        self.ring()

    def flush(self, timeout: float = LAST_WORDS) -> bool:
        """Wait until all that happened so far is reported; tell whether it is.

        False after *timeout* seconds, and at once when the keeper cannot be reached.
        """
        if threading.current_thread() is self._thread:
            return False
        with self._changed:
            if self._idle():
                return True
            self._hurried += 1
            self._wake()
            try:
                self._changed.wait_for(self._stuck, timeout)
            finally:
                self._hurried -= 1
            return self._idle()

    def close(self, timeout: float = LAST_WORDS) -> None:
        """Report what there is, within *timeout* seconds, and stop; again does nothing."""
        self.flush(timeout)
        with self._changed:
            self._closed, thread = True, self._thread
        self._wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _idle(self) -> bool:
        return not any(turn.mirror.waits for turn in self._turns)

    def _stuck(self) -> bool:
        """Tell whether nothing waits but for a keeper that cannot be reached."""
        waiting = [turn.mirror for turn in self._turns if turn.mirror.waits]
        return self._thread is None or all(mirror.failures for mirror in waiting)

    def _wake(self) -> None:
        self._urgent.set()
        self._rung.set()

    def _work(self) -> None:
        try:
            self._ask()
        finally:
            with self._changed:
                self._leave()

    def _ask(self) -> None:
        while True:
            self._urgent.clear()
            self._rung.clear()
            with self._changed:
                self._turns = [turn for turn in self._turns if not turn.mirror.over]
                if self._closed or not self._turns:
                    self._leave()
                    return
                turns, hurried = list(self._turns), bool(self._hurried) and not self._strict
            for turn in turns:
                if turn.due(hurried=hurried) <= self._now():
                    turn.mirror.step()
                    turn.asked = self._now()
            with self._changed:
                self._changed.notify_all()
            if not any(turn.mirror.over for turn in turns):
                self._rest(min(turn.due(hurried=hurried) for turn in turns) - self._now())

    def _leave(self) -> None:
        """Be no longer the thread that reports: the next run that is attached has another."""
        if self._thread is threading.current_thread():
            self._thread = None
            atexit.unregister(self.close)
            self._changed.notify_all()

    def _rest(self, seconds: float) -> None:
        """Wait until it is somebody's turn. While something waits already, a ring tells nothing."""
        if seconds <= 0:
            return
        if self._idle():
            self._rung.wait(seconds)
        else:
            self._urgent.wait(min(seconds, LOOKS_EVERY))
