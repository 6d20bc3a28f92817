"""Cutting short what one task waits for, from anywhere, without ending the task."""

import asyncio
from contextlib import suppress
from threading import Lock
from types import TracebackType


class Interrupted(Exception):
    """What was waited for was cut short, because somebody asked for it."""


class Interrupting:
    """Cuts short what is inside of `with`, as Interrupted, once `ask` was called.

    A cancellation of the task itself goes through as it is.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._asked = False
        self._inside: tuple[asyncio.AbstractEventLoop, asyncio.Task[object]] | None = None
        self._before, self._cut = 0, False

    @property
    def asked(self) -> bool:
        """Whether it was asked for."""
        return self._asked

    def ask(self) -> None:
        """Cut short what is waited for now, and all that comes; from any thread."""
        with self._lock:
            self._asked = True
            inside = self._inside
        if inside is not None:
            # A loop that is closed waits for nothing.
            with suppress(RuntimeError):
                inside[0].call_soon_threadsafe(self._cut_short)

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("there is no task to cut short")
        with self._lock:
            if self._asked:
                raise Interrupted
            self._inside = asyncio.get_running_loop(), task
            self._before, self._cut = task.cancelling(), False

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        with self._lock:
            inside, self._inside = self._inside, None
        if inside is None or not self._cut:
            return
        others = inside[1].uncancel() > self._before
        if kind is asyncio.CancelledError and not others:
            raise Interrupted

    def _cut_short(self) -> None:
        with self._lock:
            if self._inside is not None and not self._cut:
                self._cut = True
                self._inside[1].cancel()
