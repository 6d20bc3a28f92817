"""Calls that are due later: what failed and is tried again, what has to wait and see.

A few threads run what is due, so that a call which waits for storage holds up few others. Calls of
one key run one at a time, in the order in which they were due.
"""

import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from time import monotonic

LATER_THREADS = 4
"""Calls that run at once."""

_log = logging.getLogger(__name__)


class Later:
    """Runs each call when its time has come. Threads share it."""

    def __init__(self, *, threads: int = LATER_THREADS) -> None:
        self._room = threads
        self._number = itertools.count()
        self._changed = Condition()
        self._due: list[tuple[float, int, _Call]] = []
        self._following: dict[object, deque[_Call]] = {}
        """What became due while a call of its key ran, by the keys of which one runs."""
        self._idle, self._closed = 0, False

    def after(self, seconds: float, call: Callable[[], None], *, key: object) -> Callable[[], None]:
        """Run *call* in *seconds*, or as soon after that as what was due before it for *key* ended.

        Returns what cancels it: a call that has not begun never will; one that has is not waited
        for. What a call raises is logged. Once closed, this does nothing.
        """
        due = _Call(call, key)
        with self._changed:
            if not self._closed:
                heapq.heappush(self._due, (monotonic() + seconds, next(self._number), due))
                self._hire()
                self._changed.notify()
        return due.cancel

    def close(self, *, run_due: bool = False) -> None:
        """Begin no more calls, and wait for none; again does nothing.

        With *run_due*, those whose time has come and that wait for their turn run here and now.
        """
        with self._changed:
            self._closed = True
            left = [call for calls in self._following.values() for call in calls]
            left += [call for at, _, call in sorted(self._due) if at <= monotonic()]
            self._due.clear()
            for calls in self._following.values():
                calls.clear()
            self._changed.notify_all()
        for call in left if run_due else ():
            call.run()

    def _hire(self) -> None:
        """Let there be a thread that waits for what is due next, if one more may be."""
        if self._idle == 0 and self._room > 0:
            self._room -= 1
            self._idle += 1
            Thread(target=self._work, name="holdfast-later", daemon=True).start()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call.run()
            self._done(call)

    def _next(self) -> "_Call | None":
        """Wait for the next call that is due, and return it; None when nothing comes any more."""
        with self._changed:
            while not self._closed:
                pause = self._due[0][0] - monotonic() if self._due else None
                if pause is not None and pause <= 0:
                    call = heapq.heappop(self._due)[2]
                    if (running := self._following.get(call.key)) is not None:
                        running.append(call)
                        continue
                    self._following[call.key] = deque()
                    self._idle -= 1
                    if self._due:
                        self._hire()
                    return call
                self._changed.wait(pause)
            return None

    def _done(self, call: "_Call") -> None:
        """Run what became due for its key meanwhile; then the thread is free."""
        while True:
            with self._changed:
                following = self._following[call.key]
                if not following:
                    del self._following[call.key]
                    self._idle += 1
                    return
                call = following.popleft()
            call.run()


class _Call:
    """Something to be done, unless it is cancelled before."""

    def __init__(self, call: Callable[[], None], key: object) -> None:
        self._call: Callable[[], None] | None = call
        self.key = key

    def cancel(self) -> None:
        """Never run, and hold nothing."""
        self._call = None

    def run(self) -> None:
        """Run, once."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            call()
        except Exception:  # noqa: BLE001 - the thread is for the next call too
            _log.exception("a deferred task failed")
