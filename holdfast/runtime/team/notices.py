"""Telling listeners what happened, one thing at a time, in the order it happened."""

import logging
from collections import deque
from collections.abc import Callable
from inspect import iscoroutinefunction
from itertools import count
from threading import Lock
from typing import Generic, TypeVar

from holdfast.ground.errors import InvalidInput

E = TypeVar("E")
Off = Callable[[], None]

_log = logging.getLogger(__name__)


class BoardNotices(Generic[E]):
    """What is still to be told, and to whom.

    `add` is called under the lock of whatever changed, which makes the order; `tell` outside it,
    so that a listener may change things again. Another thread may do the telling.
    """

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[E], object]] = {}
        self._numbers = count()
        self._waiting: deque[E] = deque()
        self._telling = False
        self._lock = Lock()

    def subscribe(self, listener: Callable[[E], object]) -> Off:
        """Call *listener* with all that happens from now on; return how to end that."""
        if iscoroutinefunction(listener):
            raise InvalidInput("listener", "must be a plain function, not an async one")
        with self._lock:
            number = next(self._numbers)
            self._listeners[number] = listener

        def off() -> None:
            with self._lock:
                self._listeners.pop(number, None)

        return off

    def add(self, notice: E) -> None:
        """Keep *notice* until it is told."""
        with self._lock:
            self._waiting.append(notice)

    def tell(self) -> None:
        """Tell what waits, unless somebody is at it and will get there."""
        while True:
            with self._lock:
                if self._telling or not self._waiting:
                    return
                self._telling = True
                notice = self._waiting.popleft()
                numbers = list(self._listeners)
            try:
                for number in numbers:
                    # Asked again each time: one that was removed meanwhile hears no more.
                    if listener := self._listeners.get(number):
                        _call(listener, notice)
            finally:
                with self._lock:
                    self._telling = False


def _call(listener: Callable[[E], object], notice: E) -> None:
    try:
        listener(notice)
    except Exception:  # noqa: BLE001 - it has happened; a listener may not undo it for others
        _log.exception("A listener of a team failed.")
