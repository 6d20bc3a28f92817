"""The way of events from all that runs to the one who looks on.

One bounded queue for a whole run: whoever tells faster than is looked waits, in the order they
came, so nothing piles up and events of parallel parts come as they happen.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from threading import Lock

from holdfast.runtime.events import ExecutionEvent

BOUND = 256
"""Events that wait to be looked at before those who tell them wait as well."""

Make = Callable[[], ExecutionEvent]
"""Makes the event at the moment it takes its place, so that numbers rise in the queue."""


class EventFeed:
    """Events in the order they were told, for one reader on one event loop."""

    def __init__(self, bound: int = BOUND) -> None:
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(bound)
        self._events: deque[tuple[ExecutionEvent, bool]] = deque()
        self._lock = Lock()
        self._news = asyncio.Event()
        self._closed = False

    async def tell(self, make: Make) -> None:
        """Put an event in its place when there is room; nothing once nobody looks."""
        if asyncio.get_running_loop() is not self._loop:
            # A run nested in a tool's thread has a loop of its own.
            self.tell_soon(make)
            return
        await self._room.acquire()
        if self._closed:
            self._room.release()
            return
        self._put(make, took_room=True)

    def tell_soon(self, make: Make) -> None:
        """Put an event in its place now, from any thread, waiting for nothing."""
        if not self._closed:
            self._put(make, took_room=False)

    def _put(self, make: Make, *, took_room: bool) -> None:
        with self._lock:
            self._events.append((make(), took_room))
        self._wake()

    def _wake(self) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._news.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def events(self, work: "asyncio.Task[bool]") -> AsyncGenerator[ExecutionEvent]:
        """Give what is told until *work* is over and all of it was given."""
        work.add_done_callback(lambda _: self._news.set())
        while True:
            while self._events:
                event, took_room = self._events.popleft()
                if took_room:
                    self._room.release()
                yield event
            if work.done() and not self._events:
                return
            self._news.clear()
            if not self._events and not work.done():
                await self._news.wait()

    def close(self) -> None:
        """Let everything told from now on be dropped, and whoever waits for room go on."""
        self._closed = True
        self._room.release()


feed: ContextVar[EventFeed | None] = ContextVar("feed", default=None)
"""Where what runs here tells its events; None when nobody looks on."""
