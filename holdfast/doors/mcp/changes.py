"""Notices of changed resources, for subscribers in this process.

Changes come from the engine's feed, so that a write through any interface and any process is
noticed. Several changes of one resource within a tenth of a second are one notice.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import cache, partial
from typing import Any, Final, Protocol

from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent

from holdfast.doors.mcp.resources import GRAPH_URI, HostResources, uri_of
from holdfast.ground.errors import CursorExpired, HoldfastError
from holdfast.ground.events import Event
from holdfast.ground.metrics import REGISTRY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.records import WORKSPACE

MERGED: Final = 0.1
"""Seconds within which changes of one resource are one notice."""
SENDING_MOST: Final = 5.0
"""Seconds to send the notices of one moment to one subscriber."""
WATCHES_MOST: Final = 2_000
TOGETHER: Final = 50
"""Subscribers for whom is read at a time: what they share is read once."""
_NO_CHANGES: Final = frozenset({"hydrated", "recalled", "refused", "run_opened"})
"""Events of an owner that leave the owner's resource as it was."""
_POLL: Final = 1.0
_PAUSE: Final = 0.5

SUBSCRIPTIONS: Final = REGISTRY.gauge("mcp_subscriptions", "Subscriptions to changes over MCP.")
NOTICES: Final = REGISTRY.counter("mcp_notices_total", "Notices of changes sent over MCP.")

_log = logging.getLogger(__name__)

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs blocking work outside the event loop."""


class Watch:
    """One subscriber: its URIs, and whether it is notified of a changed list."""

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
        self.stores = set[str]()
        self.send, self.allowed = send, allowed

    def read_states(self, uris: Iterable[str], reads: "_Reads") -> dict[str, object]:
        """Return the states of *uris*, and record which store is read."""
        store = reads.store_id(self.resources)
        self.stores |= set() if store is None else {store}
        return {uri: reads.state(self.resources, uri) for uri in uris}


class _Reads:
    """Reads of one moment: what subscribers share is read once for all of them."""

    def __init__(self) -> None:
        self.store_id = cache(HostResources.store_id)
        self.state = cache(HostResources.state)
        self.moved = cache(HostResources.moved)


class _Pending:
    """What one subscriber is to be notified of, unless it may not read it.

    `uris` and `stores` are those that changed; `versions` are new versions by store and memory.
    """

    def __init__(self) -> None:
        self.uris = set[tuple[str, str | None]]()
        self.stores = set[str | None]()
        self.versions: dict[tuple[str, str], set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.uris or self.stores or self.versions)

    def add(self, event: Event, watch: Watch) -> None:
        """Add what *event* may change for *watch*."""
        store = event.ids.get("memory_store_id")
        self.uris.update((uri, store) for uri in _touched(event, watch.uris))
        if not watch.listed or store is None:
            return
        if event.type == "memory.modified":
            versions = self.versions.setdefault((store, event.ids["memory_id"]), set())
            versions.add(event.ids["memory_version_id"])
        elif event.type.startswith("memory.") or event.type == "store.deleted":
            self.stores.add(store)

    def add_all(self, watch: Watch) -> None:
        """Add everything that *watch* subscribed to: events were missed."""
        self.uris.update((uri, None) for uri in watch.uris)
        if watch.listed:
            self.stores.add(None)

    def read(self, watch: Watch, reads: _Reads) -> list[ServerEvent]:
        """Return the notices for *watch* of what differs from what it knows."""
        states = watch.read_states({uri for uri, _ in self.uris} & watch.uris, reads)
        own = {uri for uri, store in self.uris if store is None or store in watch.stores}
        notices = list[ServerEvent]()
        if self._list_changed(watch, reads):
            notices.append(ResourcesListChanged())
        for uri, state in sorted(states.items()):
            if uri in own and (state is None or state != watch.states.get(uri)):
                notices.append(ResourceUpdated(uri=uri))
        watch.states |= states
        return notices

    def _list_changed(self, watch: Watch, reads: _Reads) -> bool:
        return bool(self.stores & {*watch.stores, None}) or any(
            store in watch.stores and reads.moved(watch.resources, store, memory_id, frozenset(ids))
            for (store, memory_id), ids in self.versions.items()
        )


class Source(Protocol):
    """Where events come from: the feed of an engine, or a server's."""

    def __call__(
        self,
        receive: Callable[[Event | None], None],
        opened: Callable[[], None],
        stop: threading.Event,
    ) -> None:
        """Call *receive* with each event until *stop* is set.

        *opened* is called once events are received. None stands for events that were missed.
        """
        ...


def feed_of(hf: Holdfast) -> Source:
    """Return the events of *hf*'s engine: of this process and of others."""

    def follow(
        receive: Callable[[Event | None], None],
        opened: Callable[[], None],
        stop: threading.Event,
    ) -> None:
        while not stop.is_set():
            try:
                with closing(hf.engine.feed()) as feed:
                    opened()
                    while not stop.is_set():
                        for event in feed.poll(_POLL):
                            receive(event)
            except CursorExpired:
                receive(None)
            except HoldfastError as error:
                opened()
                if not stop.wait(_PAUSE):
                    _log.warning("changes are not followed: %s", type(error).__name__)
                    receive(None)

    return follow


def events_of(hf: Holdfast) -> Source:
    """Return the events that a server sends to the remote handle *hf*."""

    def follow(
        receive: Callable[[Event | None], None],
        opened: Callable[[], None],
        stop: threading.Event,
    ) -> None:
        try:
            off = hf.events.subscribe(receive)
        except HoldfastError as error:
            _log.warning("changes are not followed: %s", type(error).__name__)
            return
        finally:
            opened()
        stop.wait()
        off()

    return follow


class ChangeHub:
    """Sends notices to the subscribers of one process.

    The source is followed while there are subscribers. One that takes more than *sending* seconds
    to receive is dropped.
    """

    def __init__(self, source: Source, run: Run, *, sending: float = SENDING_MOST) -> None:
        self._source, self._run, self._sending = source, run, sending
        self._pending: dict[Watch, _Pending] = {}
        self._events = list[Event | None]()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = threading.Event()
        self._opened: asyncio.Event | None = None

    @property
    def full(self) -> bool:
        """Whether there are as many subscribers as there may be."""
        return len(self._pending) >= WATCHES_MOST

    def holds(self, watch: Watch) -> bool:
        """Return whether *watch* is notified: it was not dropped."""
        return watch in self._pending

    async def add(self, watch: Watch) -> None:
        """Notify *watch* of every change from now on, until it is dropped."""
        self._match()
        self._pending[watch] = _Pending()
        SUBSCRIPTIONS.set(len(self._pending))
        await self.read(watch, watch.uris)

    def drop(self, watch: Watch) -> None:
        """Notify *watch* no more; after the last subscriber, follow the source no more."""
        self._pending.pop(watch, None)
        SUBSCRIPTIONS.set(len(self._pending))
        if not self._pending:
            self._unfollow()

    async def read(self, watch: Watch, uris: Iterable[str]) -> None:
        """Store the present states of *uris*, which later changes differ from.

        Return once changes are followed.
        """
        if not self.holds(watch):
            return
        if self._opened is None:
            self._opened = self._follow()
        await self._opened.wait()
        chosen = list(uris)
        watch.states |= await self._run(lambda: watch.read_states(chosen, _Reads()))

    def close(self) -> None:
        """Send no more notices."""
        self._unfollow()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _follow(self) -> asyncio.Event:
        """Start a thread for the source; return an event that is set once it follows."""
        loop, opened = asyncio.get_running_loop(), asyncio.Event()
        stop = self._stop = threading.Event()

        def call(work: Callable[..., None], *arguments: object) -> None:
            if not stop.is_set():
                with suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(work, *arguments)

        arguments = partial(call, self._receive), partial(call, opened.set), stop
        thread = threading.Thread(
            target=self._source, args=arguments, name="holdfast-mcp-changes", daemon=True
        )
        thread.start()
        return opened

    def _unfollow(self) -> None:
        self._stop.set()
        if self._opened is not None:
            self._opened.set()
            self._opened = None

    def _receive(self, event: Event | None) -> None:
        # Whom it concerns is found out later: the write waits for its answer on this thread.
        self._events.append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(MERGED, self._flush)

    def _match(self) -> None:
        """Find out which subscribers the events since the last time concern."""
        events, self._events = self._events, []
        for watch, pending in self._pending.items():
            for event in events:
                if event is None:
                    pending.add_all(watch)
                elif event.workspace in {watch.workspace, "*"}:
                    pending.add(event, watch)

    def _flush(self) -> None:
        self._timer = None
        self._match()
        due = [(watch, pending) for watch, pending in self._pending.items() if pending]
        for watch, _ in due:
            self._pending[watch] = _Pending()
        for first in range(0, len(due), TOGETHER):
            task = asyncio.ensure_future(self._notify(due[first : first + TOGETHER]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _notify(self, due: list[tuple[Watch, _Pending]]) -> None:
        allowed = await asyncio.gather(*(watch.allowed() for watch, _ in due))
        for (watch, _), may_read in zip(due, allowed, strict=True):
            if not may_read:
                self.drop(watch)
        due = [each for each, may_read in zip(due, allowed, strict=True) if may_read]
        notices = await self._run(lambda: _read_all(due))
        await asyncio.gather(
            *(self._send(watch, each) for (watch, _), each in zip(due, notices, strict=True))
        )

    async def _send(self, watch: Watch, notices: list[ServerEvent] | HoldfastError) -> None:
        try:
            if isinstance(notices, HoldfastError):
                raise notices
            async with asyncio.timeout(self._sending):
                for notice in notices:
                    await watch.send(notice)
                    NOTICES.add()
        except (HoldfastError, TimeoutError) as error:
            _log.debug("a subscriber is dropped: %s", type(error).__name__)
            self.drop(watch)


def _read_all(due: list[tuple[Watch, _Pending]]) -> list[list[ServerEvent] | HoldfastError]:
    """Return the notices of each subscriber, or why it cannot be notified."""
    reads, found = _Reads(), list[list[ServerEvent] | HoldfastError]()
    for watch, pending in due:
        try:
            found.append(pending.read(watch, reads))
        except HoldfastError as error:
            found.append(error)
    return found


def _touched(event: Event, uris: set[str]) -> Iterator[str]:
    """Yield those of *uris* that *event* may have changed."""
    part, _, what = event.type.partition(".")
    if part in {"memory", "store"}:
        store = uri_of("stores", event.ids["memory_store_id"])
        yield from (uri for uri in uris if uri in {store, GRAPH_URI} or uri.startswith(f"{store}/"))
    elif part in {"durable", "longterm"} and what not in _NO_CHANGES:
        shared = part == "durable" and event.data.get("category", WORKSPACE) == WORKSPACE
        if shared or event.owner is None:
            # What agents share is in the hydration of each.
            yield from (uri for uri in uris if uri.startswith(uri_of(part, "")))
        else:
            yield from uris & {uri_of(part, event.owner)}
