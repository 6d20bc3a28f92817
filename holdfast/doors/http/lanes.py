"""Where work runs: on the event loop when it is over in microseconds, else on a thread.

A point read or a short page on SQLite takes less time than the way to a thread and back. Anything
that may wait (a scan, a search, a commit, a database across a network) goes to one of a few
threads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

T = TypeVar("T")

THREADS = 16
"""More would not finish more: the interpreter runs one of them at a time."""


class Lanes:
    """Runs what a request asks for; with *direct*, quick work runs where it is asked.

    *live* is how many may wait for what happens next at the same time.
    """

    def __init__(self, *, direct: bool, live: int) -> None:
        self._direct = direct
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-http")
        self._waiting = ThreadPoolExecutor(live, thread_name_prefix="holdfast-live")

    async def quick(self, work: Callable[[], T]) -> T:
        """Return *work*(), a read of one row, or of a few that follow one another."""
        return work() if self._direct else await self.slow(work)

    async def slow(self, work: Callable[[], T]) -> T:
        """Return *work*(), run on a thread with the request's context variables."""
        asked = partial(copy_context().run, work)
        return await asyncio.get_running_loop().run_in_executor(self._threads, asked)

    async def live(self, wait: Callable[[], T]) -> T:
        """Return *wait*(), which waits for something to happen, run on a thread for that."""
        return await asyncio.get_running_loop().run_in_executor(self._waiting, wait)

    def close(self) -> None:
        """Let the threads end."""
        self._waiting.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
