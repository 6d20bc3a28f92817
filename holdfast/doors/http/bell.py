"""Rings for requests that wait for a store's next change: one thread follows the feed for all.

A ring only says that it is time to look; who waits looks now and then without one.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, closing, suppress

from holdfast.doors.http.request import Lanes
from holdfast.engines.base import Engine
from holdfast.ground.errors import HoldfastError, Unavailable
from holdfast.ground.events import Event

_log = logging.getLogger(__name__)

WAITING_MOST = 500
"""Requests that wait at once; one more is told to come back."""

LINGER = 15.0
"""Seconds that the feed is followed on without anybody who waits: the next is soon there."""

PATIENCE = 1.0
"""Seconds to wait for the feed to begin, and before it is tried again when it failed."""


class ChangeWaiter:
    """A request that waits for changes of one store."""

    def __init__(self, workspace: str, store_id: str) -> None:
        self._workspace, self._store_id = workspace, store_id
        self._rung = asyncio.Event()

    def hear(self, event: Event) -> None:
        """Take *event* for a ring if it may be about the store, or about the session."""
        if event.workspace == self._workspace:
            about = event.ids.get("memory_store_id", self._store_id)
            if about == self._store_id:
                self._rung.set()

    async def ring(self, seconds: float) -> None:
        """Return when it rang since this was last asked, after *seconds* at the latest."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), seconds)
        self._rung.clear()


class Bell:
    """Follows the changes of all workspaces while anybody waits, and a little longer."""

    def __init__(self, engine: Engine, lanes: Lanes) -> None:
        self._engine, self._lanes = engine, lanes
        self._waiting: set[ChangeWaiter] = set()
        self._following = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def waits(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def waiting(self, workspace: str, store_id: str) -> AsyncGenerator[ChangeWaiter]:
        """Give one who is rung for what happens from now on; Unavailable when too many wait."""
        if len(self._waiting) >= WAITING_MOST:
            raise Unavailable(
                f"{WAITING_MOST} requests wait for changes, the most that may.",
                reason="overloaded",
                retry_after=1,
            )
        one = ChangeWaiter(workspace, store_id)
        self._waiting.add(one)
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.ensure_future(self._ring())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._following.wait(), PATIENCE)
            yield one
        finally:
            self._waiting.discard(one)

    def close(self) -> None:
        """Ring no more."""
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _ring(self) -> None:
        while self._waiting:
            try:
                await self._follow()
            except HoldfastError as error:
                # Who waits meets the same fault when it looks, and tells its client.
                _log.debug("the change feed is not followed: %s", type(error).__name__)
                await asyncio.sleep(PATIENCE)

    async def _follow(self) -> None:
        with closing(await self._lanes.slow(self._engine.feed)) as feed:
            self._following.set()
            try:
                heard = True
                while heard or self._waiting:
                    heard = self._tell(await self._lanes.live(lambda: feed.poll(LINGER)))
            finally:
                self._following.clear()

    def _tell(self, events: Iterable[Event]) -> bool:
        """Let everybody hear *events*; tell whether there were any."""
        heard = False
        for event in events:
            heard = True
            for one in self._waiting:
                one.hear(event)
        return heard
