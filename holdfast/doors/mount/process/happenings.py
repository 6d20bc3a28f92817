"""What the main thread waits for: signals, and what other threads tell it, none of them missed.

A signal that comes just before a thread blocks on a lock is heard only when that wakes for another
reason. So the wait is for bytes of a pipe, into which the interpreter itself writes at a signal.
"""

import os
import select
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Generic, TypeVar

T = TypeVar("T")

_MANY = 4096


class Happenings(Generic[T]):
    """A queue that one thread, the main one, takes from. Any thread may add to it."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._heard, self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def put(self, happened: T) -> None:
        """Add *happened*, and wake who waits."""
        self._waiting.append(happened)
        # A pipe that is full wakes as well.
        with suppress(BlockingIOError):
            os.write(self._bell, b"\0")

    def get(self, *, within: float | None = None) -> T:
        """Return what happened next; TimeoutError when that is not *within* so many seconds."""
        until = None if within is None else monotonic() + within
        while not self._waiting:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            if select.select([self._heard], [], [], left)[0]:
                os.read(self._heard, _MANY)
        return self._waiting.popleft()

    @contextmanager
    def signalled(
        self, numbers: Iterable[signal.Signals], hear: Callable[[], T], *, ending: bool = False
    ) -> Generator[None]:
        """Add what *hear* returns at each of the signals, within this; the ignored stay so.

        With *ending* the process ends after this, and ignores them until it has.
        """

        def handle(number: int, frame: FrameType | None) -> None:
            del number, frame
            self.put(hear())

        wanted = [each for each in numbers if signal.getsignal(each) != signal.SIG_IGN]
        woken = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        before = {each: signal.signal(each, handle) for each in wanted}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, signal.SIG_IGN if ending else handler)
            signal.set_wakeup_fd(woken)
