"""One thread with an event loop, for models that are called by awaiting.

Their clients belong to the loop they were first used on, and a caller may be on a loop itself; so
all of them run here, whoever asks.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
Closer = Callable[[], Coroutine[Any, Any, object]]

_STOPPING: Final = 2.0
"""Seconds that closing waits for what still runs."""


class ModelThread:
    """Runs coroutines to their end, each for a caller that waits. Starts when first needed."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.turn = object()
        """Another after each close, and in a forked process: clients do not outlive it."""
        self._closers: list[Closer] = []

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], *, timeout: float) -> T:
        """Return what the coroutine of *work* returns; TimeoutError after *timeout* seconds."""
        running = asyncio.run_coroutine_threadsafe(work(), self._running())
        try:
            return running.result(timeout)
        except TimeoutError:
            running.cancel()
            raise

    def on_close(self, closer: Closer) -> None:
        """Have *closer* awaited on the loop before it stops."""
        with self._lock:
            self._closers.append(closer)

    def close(self) -> None:
        """Let go of clients and of the thread; used again it starts again.

        What cannot be stopped in two seconds, such as an import, goes on to its end by itself.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop, self._thread, self._closers = None, None, []
            self.turn = object()
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_STOPPING)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_turn, args=(loop, self._closers), name="holdfast-models", daemon=True
                )
                self._thread.start()
            return self._loop


def _turn(loop: asyncio.AbstractEventLoop, closers: list[Closer]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_end(closers))
    finally:
        loop.close()


async def _end(closers: list[Closer]) -> None:
    current = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not current]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.gather(*(close() for close in closers), return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
