"""The background thread of long-term memory.

It starts with the first task and ends when none remains. Tasks that remain at closing are done by
a later process.
"""

import logging
import os
import threading
from collections.abc import Callable, Hashable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast.ground.errors import HoldfastError

CLOSING: Final = 2.0
"""Seconds that closing waits for the running tasks."""
_LOOK: Final = 0.5
"""Seconds between checks for due tasks: the clock that jobs use may move at any time."""
_TROUBLE: Final = 5.0
"""Seconds until a retry after an error of the storage."""

_log = logging.getLogger(__name__)


class Tender(Protocol):
    """A task with work to do in pieces."""

    def tend(self) -> float | None:
        """Do one due piece of work.

        Return 0 if there was one, else the seconds until the next may be due; None if no work
        remains.
        """
        ...


class JobThread:
    """Runs tasks in turn on one background thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tenders: dict[Hashable, tuple[Tender, object]] = {}
        self._thread: threading.Thread | None = None
        self._until: float | None = None
        self._woken = False

    def wake(self, key: Hashable, tender: Tender) -> None:
        """Schedule *tender* under *key*, in place of an earlier task of that key."""
        with self._changed:
            if self._until is not None:
                return
            self._tenders[key] = tender, object()
            self._woken = True
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-longterm", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until some work was done, or for *seconds*."""
        with self._changed:
            self._changed.wait(seconds)

    def close(self, timeout: float = CLOSING) -> None:
        """Finish due work for at most *timeout* seconds, then stop."""
        with self._changed:
            self._until = monotonic() + timeout
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join(timeout)

    def _run(self) -> None:
        while True:
            wait = self._round()
            with self._changed:
                self._changed.notify_all()
                if self._over() or (not self._tenders and not self._woken):
                    self._thread = None
                    return
                # Closing waits for due work, not for work that will be due.
                if wait and self._until is not None:
                    self._thread = None
                    return
                if wait and not self._woken:
                    self._changed.wait(min(wait, _LOOK))

    def _round(self) -> float:
        """Run each task once; return the seconds until one may have work again."""
        with self._changed:
            known = dict(self._tenders)
            self._woken = False
        soonest = _TROUBLE
        for key, (tender, mark) in known.items():
            if self._over():
                break
            wait = _tended(tender)
            if wait is not None:
                soonest = min(soonest, wait)
                continue
            with self._changed:
                if self._tenders.get(key, (None, None))[1] is mark:
                    del self._tenders[key]
        return soonest

    def _over(self) -> bool:
        return self._until is not None and monotonic() >= self._until


def _tended(tender: Tender) -> float | None:
    try:
        return tender.tend()
    except HoldfastError as error:
        _log.warning("background work was put off: %s", type(error).__name__)
        return _TROUBLE
    except Exception as error:  # noqa: BLE001 - an error of one task must not stop the others
        _log.error("background work stumbled: %s", type(error).__name__)
        return _TROUBLE


# A model that hangs cannot be stopped: it runs on a daemon thread that is abandoned. A thread that
# is done waits for more work, because starting one takes as long as many a query.

T = TypeVar("T")

BEAT: Final = 2.0
"""Seconds between two heartbeats."""
_IDLE: Final = 5.0
"""Seconds for which a thread waits for more work."""


class _Outcome(Generic[T]):
    """The outcome of *work*: an error or a value, once `done` can be acquired."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._work, self._name = work, name
        self.done = threading.Lock()
        self.done.acquire()
        self.error: BaseException | None = None
        self.values: list[T] = []

    def run(self) -> None:
        threading.current_thread().name = self._name
        try:
            self.values.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self.error = error


class _WorkThread:
    """A daemon thread that runs one piece of work after another until it is idle."""

    def __init__(self) -> None:
        self.given: SimpleQueue[_Outcome[Any]] = SimpleQueue()
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        while True:
            try:
                outcome = self.given.get(timeout=_IDLE)
            except Empty:
                try:
                    _idle.remove(self)
                except ValueError:
                    # It was just taken, so there will be work.
                    continue
                return
            outcome.run()
            # Idle before done: the caller finds this thread for its next piece of work.
            _idle.append(self)
            outcome.done.release()
            del outcome


_idle: list[_WorkThread] = []
os.register_at_fork(after_in_child=_idle.clear)


def bounded(
    work: Callable[[], T],
    seconds: float,
    *,
    name: str,
    beat: Callable[[], None] | None = None,
) -> T:
    """Return or raise the outcome of *work*; raise `TimeoutError` after *seconds*.

    *beat* is called every two seconds meanwhile; an exception that it raises ends the waiting.
    """
    outcome = _Outcome(work, name)
    try:
        thread = _idle.pop()
    except IndexError:
        thread = _WorkThread()
    thread.given.put(outcome)
    end = monotonic() + seconds
    while not outcome.done.acquire(timeout=max(0.0, min(BEAT, end - monotonic()))):
        if monotonic() >= end:
            raise TimeoutError(f"{name} took longer than {seconds:g} s")
        if beat is not None:
            beat()
    if outcome.error is not None:
        raise outcome.error
    return outcome.values[0]
