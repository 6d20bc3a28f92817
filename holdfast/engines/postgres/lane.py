"""Writes handed in and not waited for: a line of them, and a few threads that write."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any, NamedTuple

from holdfast.engines.postgres.pool import MOST_WAITING, closed, late, overloaded


class _Handed(NamedTuple):
    act: Callable[[], object]
    deadline: float
    future: "Future[Any]"


class Lane:
    """At most *most* threads, each running what was handed in first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: deque[_Handed] = deque()
        self._room = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._resting = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._line)

    def put(self, act: Callable[[], object], deadline: float, future: "Future[Any]") -> None:
        """Run *act* in its turn, before *deadline*; Unavailable at once if that cannot be."""
        with self._room:
            if self._closed:
                raise closed()
            if len(self._line) >= MOST_WAITING:
                raise overloaded()
            self._line.append(_Handed(act, deadline, future))
            if self._resting < len(self._line) and len(self._threads) < self._most:
                thread = threading.Thread(target=self._live, name="holdfast-writer", daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._room.notify()

    def close(self, timeout: float) -> None:
        """Run what waits within *timeout* seconds, and refuse the rest."""
        until = monotonic() + timeout
        with self._room:
            self._closed = True
            self._room.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))
        with self._room:
            left, self._line = list(self._line), deque()
        for handed in left:
            if handed.future.set_running_or_notify_cancel():
                handed.future.set_exception(closed())

    def _live(self) -> None:
        while (handed := self._next()) is not None:
            future = handed.future
            if not future.set_running_or_notify_cancel():
                continue
            if monotonic() >= handed.deadline:
                future.set_exception(late())
                continue
            try:
                value = handed.act()
            except BaseException as error:  # noqa: BLE001 - it is the caller's, not this thread's
                future.set_exception(error)
            else:
                future.set_result(value)

    def _next(self) -> _Handed | None:
        with self._room:
            while not self._line:
                if self._closed:
                    return None
                self._resting += 1
                self._room.wait()
                self._resting -= 1
            return self._line.popleft()
