"""Run synchronous calls on threads for an event loop.

Everything below the entry points blocks. A coroutine must not, so each call crosses once to a
thread of this handle's own, without further logic.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Generic, ParamSpec, TypeVar

from holdfast.ground.pages import Page

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

THREADS = 64
"""Concurrent calls of one handle; further calls wait.

Threads start on demand and end with the handle.
"""


class Crossing:
    """Run calls on threads, for a coroutine to await.

    Cancelling the coroutine stops the waiting, not the call: a write that has begun completes.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-aio")

    async def __call__(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of *call*, run with the caller's context variables."""
        work = partial(copy_context().run, call, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def perhaps(make: Callable[[T, Crossing], R], of: T | None, cross: Crossing) -> R | None:
    """Return *make*(*of*, *cross*); None for None."""
    return None if of is None else make(of, cross)


class AsyncWalk(Generic[T]):
    """Async iterator that fetches up to 100 items per crossing."""

    STEP = 100

    def __init__(self, things: Iterator[T], cross: Crossing) -> None:
        self._things, self._cross = things, cross

    async def __aiter__(self) -> AsyncIterator[T]:
        while ahead := await self._cross(lambda: list(islice(self._things, self.STEP))):
            for each in ahead:
                yield each


class AsyncLive(Generic[T]):
    """Async iterator over live items, one crossing each."""

    def __init__(self, things: Iterator[T], cross: Crossing) -> None:
        self._things, self._cross = things, cross

    async def __aiter__(self) -> AsyncIterator[T]:
        while one := await self._cross(lambda: list(islice(self._things, 1))):
            yield one[0]


class AsyncPage(Generic[T]):
    """One page of a list: `data`, and `next_page`, the cursor of the next or None.

    Iterating yields the items of this page; `all()` also fetches the following pages. In a list
    as of an earlier moment `erased` counts rows that were there and were erased since.
    """

    def __init__(self, page: Page[T], cross: Crossing) -> None:
        self._page, self._cross = page, cross
        self.data, self.next_page, self.prev_page = page.data, page.next_page, page.prev_page
        self.erased = page.erased

    def __iter__(self) -> Iterator[T]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"AsyncPage(data={self.data!r}, next_page={self.next_page!r})"

    async def all(self) -> AsyncIterator[T]:
        """Yield every item of the list, with about one crossing per further page."""
        walk = self._page.all()
        for each in islice(walk, len(self.data)):
            yield each
        # One page's number of items at a time, so that reading ahead stays within one page.
        step = max(1, len(self.data))
        while ahead := await self._cross(lambda: list(islice(walk, step))):
            for each in ahead:
                yield each
