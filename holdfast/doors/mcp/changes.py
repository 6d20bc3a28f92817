"""Notices of changed resources, for subscribers in this process.

Changes come from the engine's feed, so that a write through any interface and any process is
noticed. Several changes of one resource within a tenth of a second are one notice.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any, Final, Protocol

from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent

from holdfast.doors.mcp.resources import GRAPH_URI, HostResources, uri_of
from holdfast.ground.errors import CursorExpired, HoldfastError
from holdfast.ground.events import Event
from holdfast.ground.metrics import REGISTRY
from holdfast.library.holdfast import Holdfast

MERGED: Final = 0.1
"""Seconds within which changes of one resource are one notice."""
SENDING_MOST: Final = 5.0
"""Seconds to send one notice; a subscriber that takes longer is dropped."""
WATCHES_MOST: Final = 2_000
_POLL: Final = 1.0
_PAUSE: Final = 0.5

SUBSCRIPTIONS: Final = REGISTRY.gauge("mcp_subscriptions", "Subscriptions to changes over MCP.")
NOTICES: Final = REGISTRY.counter("mcp_notices_total", "Notices of changes sent over MCP.")

_log = logging.getLogger(__name__)

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs blocking work outside the event loop."""


class Watch:
    """One subscriber: the URIs it named, and whether it wants to know of new and deleted ones."""

    def __init__(
        self,
        resources: HostResources,
        workspace: str,
        uris: Iterable[str] = (),
        *,
        listed: bool,
        send: Callable[[ServerEvent], Awaitable[None]],
        allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        self.resources, self.workspace, self.listed = resources, workspace, listed
        self.uris = set(uris)
        self.states: dict[str, object] = {}
        self.send, self.allowed = send, allowed


class Source(Protocol):
    """Where events come from: the feed of an engine, or a server's."""

    def __call__(self, receive: Callable[[Event], None], stop: threading.Event) -> None:
        """Call *receive* with each event from now on, until *stop* is set."""
        ...


def feed_of(hf: Holdfast) -> Source:
    """Return the events of *hf*'s engine: of this process and of others."""

    def follow(receive: Callable[[Event], None], stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                with closing(hf.engine.feed()) as feed:
                    while not stop.is_set():
                        for event in feed.poll(_POLL):
                            receive(event)
            except CursorExpired:
                continue
            except HoldfastError as error:
                if not stop.wait(_PAUSE):
                    _log.warning("changes are not followed: %s", type(error).__name__)

    return follow


def events_of(hf: Holdfast) -> Source:
    """Return the events that a server sends to the remote handle *hf*."""

    def follow(receive: Callable[[Event], None], stop: threading.Event) -> None:
        off = hf.events.subscribe(receive)
        stop.wait()
        off()

    return follow


class ChangeHub:
    """Sends notices to the subscribers of one process, while there are any."""

    def __init__(self, source: Source, run: Run) -> None:
        self._source, self._run = source, run
        self._watches: set[Watch] = set()
        self._pending: dict[Watch, set[str]] = {}
        self._modified: dict[Watch, set[tuple[str, str]]] = {}
        self._listed: set[Watch] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop: threading.Event | None = None

    @property
    def full(self) -> bool:
        """Whether there are as many subscribers as there may be."""
        return len(self._watches) >= WATCHES_MOST

    async def add(self, watch: Watch) -> Callable[[], None]:
        """Notify *watch* of changes from now on; return a function that ends it."""
        self._watches.add(watch)
        SUBSCRIPTIONS.set(len(self._watches))
        if self._stop is None:
            self._follow()
        await self.look(watch, watch.uris)

        def off() -> None:
            self._watches.discard(watch)
            self._pending.pop(watch, None)
            SUBSCRIPTIONS.set(len(self._watches))

        return off

    async def look(self, watch: Watch, uris: Iterable[str]) -> None:
        """Store the present states of *uris*, which later changes differ from."""
        chosen = list(uris)

        def states() -> dict[str, object]:
            return {uri: watch.resources.state(uri) for uri in chosen}

        watch.states |= await self._run(states)

    def close(self) -> None:
        """Send no more notices."""
        if self._stop is not None:
            self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _follow(self) -> None:
        loop, stop = asyncio.get_running_loop(), threading.Event()
        self._stop = stop

        def receive(event: Event) -> None:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(self._receive, event)

        thread = threading.Thread(
            target=self._source, args=(receive, stop), name="holdfast-mcp-changes", daemon=True
        )
        thread.start()

    def _receive(self, event: Event) -> None:
        part, _, what = event.type.partition(".")
        for watch in self._watches:
            if event.workspace not in {watch.workspace, "*"}:
                continue
            touched = set(_touched(part, event, watch.uris))
            if touched:
                self._pending.setdefault(watch, set()).update(touched)
            if watch.listed and part == "memory":
                if what == "modified":
                    place = event.ids["memory_store_id"], event.ids["memory_id"]
                    self._modified.setdefault(watch, set()).add(place)
                else:
                    self._listed.add(watch)
        if self._timer is None and (self._pending or self._modified or self._listed):
            self._timer = asyncio.get_running_loop().call_later(MERGED, self._flush)

    def _flush(self) -> None:
        self._timer = None
        pending, self._pending = self._pending, {}
        modified, self._modified = self._modified, {}
        listed, self._listed = self._listed, set()
        for watch in {*pending, *modified, *listed} & self._watches:
            work = self._notify(
                watch, pending.get(watch, set()), modified.get(watch, set()), watch in listed
            )
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _notify(
        self, watch: Watch, uris: set[str], modified: set[tuple[str, str]], listed: bool
    ) -> None:
        def look() -> tuple[dict[str, object], bool]:
            states = {uri: watch.resources.state(uri) for uri in uris}
            return states, listed or any(watch.resources.moved(*each) for each in modified)

        try:
            if not await watch.allowed():
                self._watches.discard(watch)
                return
            states, list_changed = await self._run(look)
            changed = [
                uri
                for uri, state in sorted(states.items())
                if uri in watch.uris and (state is None or state != watch.states.get(uri))
            ]
            watch.states |= states
            async with asyncio.timeout(SENDING_MOST):
                if list_changed:
                    await watch.send(ResourcesListChanged())
                    NOTICES.add()
                for uri in changed:
                    await watch.send(ResourceUpdated(uri=uri))
                    NOTICES.add()
        except (HoldfastError, TimeoutError) as error:
            _log.debug("a subscriber is dropped: %s", type(error).__name__)
            self._watches.discard(watch)


def _touched(part: str, event: Event, uris: set[str]) -> Iterator[str]:
    """Yield those of *uris* that *event* may have changed."""
    if not uris:
        return
    if part == "memory":
        store = uri_of("stores", event.ids["memory_store_id"])
        yield from (uri for uri in uris if uri in {store, GRAPH_URI} or uri.startswith(f"{store}/"))
    elif part in {"durable", "longterm"}:
        # What agents share belongs to none of them, and is in the hydration of each.
        owned = None if event.owner is None else uri_of(part, event.owner)
        prefix = uri_of(part, "")
        yield from (uri for uri in uris if uri == owned or (not owned and uri.startswith(prefix)))
