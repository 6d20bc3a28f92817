"""Work that runs side by side, of which none is left behind."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

K = TypeVar("K")
R = TypeVar("R")


class Crew(Generic[K, R]):
    """Pieces of work, each under a name; `next` tells of each that ends, in that order.

    Left for whatever reason, what still runs is cancelled and has ended.
    """

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[R], K] = {}
        self._ended: asyncio.Queue[asyncio.Task[R]] = asyncio.Queue()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, name: K, work: Coroutine[Any, Any, R]) -> None:
        """Run *work* under *name*."""
        task = asyncio.create_task(work)
        self._running[task] = name
        task.add_done_callback(self._ended.put_nowait)

    async def next(self) -> tuple[K, R]:
        """Return which has ended, with what; raise what it raised. One must be running."""
        task = await self._ended.get()
        return self._running.pop(task), task.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._running:
            each.cancel()
        again: asyncio.CancelledError | None = None
        while left := [each for each in self._running if not each.done()]:
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError as cancelled:
                # Cancelled once more, it must still see them end.
                again = cancelled
        for each in self._running:
            if not each.cancelled():
                # Asked for, so that it is not reported as never seen.
                each.exception()
        self._running.clear()
        if again is not None:
            raise again
