"""Waiting for somebody else's code no longer than we said we would.

A model that hangs cannot be stopped, only left behind: it runs on a daemon thread of its own.
"""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, Generic, TypeVar

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
