"""The background thread of long-term memory.

It starts with the first thing there is to do and ends when nothing is left; what is left of it at
closing is left for later.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from holdfast.ground.errors import HoldfastError

CLOSING: Final = 2.0
"""Seconds that closing waits for what is under way."""
_LOOK: Final = 0.5
"""Seconds after which is looked again whether something is due: clocks are not ours to wait on."""
_TROUBLE: Final = 5.0
"""Seconds until storage that could not be reached is tried again."""

_log = logging.getLogger(__name__)


class Tender(Protocol):
    """Somebody with work to do, a piece at a time."""

    def tend(self) -> float | None:
        """Do one piece that is due.

        Return 0 if there was one, else the seconds until the next may be due; None when nothing
        is left.
        """
        ...


class Worker:
    """Tends to whoever has work, in turn, on a thread of its own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tenders: dict[Hashable, tuple[Tender, object]] = {}
        self._thread: threading.Thread | None = None
        self._until: float | None = None
        self._woken = False

    def wake(self, key: Hashable, tender: Tender) -> None:
        """Have *tender* tended to, instead of whoever was known as *key*."""
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
        """Return when something was done, or after *seconds*."""
        with self._changed:
            self._changed.wait(seconds)

    def close(self, timeout: float = CLOSING) -> None:
        """Go on for at most *timeout* seconds, then leave the rest."""
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
                # Whoever closes waits for what is due, not for what will be.
                if wait and self._until is not None:
                    self._thread = None
                    return
                if wait and not self._woken:
                    self._changed.wait(min(wait, _LOOK))

    def _round(self) -> float:
        """Tend to everybody once; return the seconds until somebody may have work again."""
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
    except Exception as error:  # noqa: BLE001 - what one stumbles over must not stop the others
        _log.error("background work stumbled: %s", type(error).__name__)
        return _TROUBLE


# A model that hangs cannot be stopped, only left behind: it runs on a daemon thread of its own.

T = TypeVar("T")

BEAT: Final = 2.0
"""Seconds between two signs of life while something runs."""


class _Outcome(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.values: list[T] = []

    def run(self) -> None:
        try:
            self.values.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self.error = error
        finally:
            self.done.set()


def bounded(
    work: Callable[[], T],
    seconds: float,
    *,
    name: str,
    beat: Callable[[], None] | None = None,
) -> T:
    """Return what *work* returns, or raise what it raises; TimeoutError after *seconds*.

    *beat* is called every two seconds meanwhile; what it raises ends the waiting.
    """
    outcome = _Outcome(work)
    threading.Thread(target=outcome.run, name=name, daemon=True).start()
    end = monotonic() + seconds
    while not outcome.done.wait(max(0.0, min(BEAT, end - monotonic()))):
        if monotonic() >= end:
            raise TimeoutError(f"{name} took longer than {seconds:g} s")
        if beat is not None:
            beat()
    if outcome.error is not None:
        raise outcome.error
    return outcome.values[0]
