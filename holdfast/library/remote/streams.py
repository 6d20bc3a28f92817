"""Subscribe to a server's events in this process.

Each subscription follows `/api/events` on a thread of its own. After a broken connection it
reconnects and continues after the last event it received.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.ground import json_values
from holdfast.ground.clock import Clock
from holdfast.ground.errors import EngineFault, HoldfastError, InvalidInput, Unavailable
from holdfast.ground.events import Event, EventBus, Listener
from holdfast.library.operations.workspace import event_from_wire
from holdfast.library.remote.client import Stream, WireClient

EVENTS = "/api/events"

PAUSE, PAUSE_MOST = 0.1, 5.0
"""Seconds before the first reconnect, and at most."""

LAST_WORDS = 2.0
"""Seconds that closing waits for a running listener."""

_log = logging.getLogger(__name__)


class RemoteEvents:
    """Publish each event of a server to the listeners in this process."""

    def __init__(self, client: WireClient, clock: Clock) -> None:
        self._client, self._clock, self._lock = client, clock, threading.Lock()
        self._followers: frozenset[_Follower] = frozenset()
        self._past_errors = 0

    @property
    def listener_errors(self) -> int:
        """Number of exceptions raised by listeners."""
        return self._past_errors + sum(each.bus.listener_errors for each in self._followers)

    @property
    def heard(self) -> bool:
        """Whether there is a listener."""
        return bool(self._followers)

    def subscribe(
        self, listener: Listener, types: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Call *listener* on another thread with each new event of *types* (None: all).

        Returns a function that unsubscribes it. Raises the server's error if it refuses.
        """
        follower = _Follower(self._client, self._clock, listener, types)
        follower.start()
        with self._lock:
            self._followers |= {follower}

        def off() -> None:
            follower.stop()
            with self._lock:
                if follower in self._followers:
                    self._followers -= {follower}
                    self._past_errors += follower.bus.listener_errors

        return off

    def publish(self, event: Event) -> None:
        """Call the listeners of *event*'s type, for an event of this process alone."""
        for follower in self._followers:
            follower.bus.publish(event)

    def close(self) -> None:
        """End every subscription."""
        for follower in self._followers:
            follower.stop()
        for follower in self._followers:
            follower.join()


class _Follower:
    """One subscription: the thread that reads the stream, and its state."""

    def __init__(
        self,
        client: WireClient,
        clock: Clock,
        listener: Listener,
        types: Collection[str] | None,
    ) -> None:
        self.bus = EventBus()
        self.bus.subscribe(listener, types)
        self._client, self._clock = client, clock
        self._query = {"types": ",".join(sorted(types or ())) or None}
        self._last: str | None = None
        self._stream: Stream | None = None
        self._over, self._lock = threading.Event(), threading.Lock()
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._follow, name="holdfast-events", daemon=True)

    def start(self) -> None:
        """Start; return once the server sends, else raise its error."""
        self._thread.start()
        self._opened.result()

    def stop(self) -> None:
        """Publish no more events, and end the thread without waiting for it."""
        self._over.set()
        with self._lock:
            if self._stream is not None:
                self._stream.cut()

    def join(self) -> None:
        """Wait for the thread's end, unless called on it."""
        if threading.current_thread() is not self._thread:
            self._thread.join(LAST_WORDS)

    def _follow(self) -> None:
        pause = PAUSE
        while not self._over.is_set():
            try:
                self._read()
                pause = PAUSE
            except HoldfastError as error:
                if not self._opened.done():
                    self._opened.set_exception(error)
                    return
                if not isinstance(error, Unavailable) or error.reason == "closed":
                    _log.warning("events are no longer followed: %s", type(error).__name__)
                    return
            self._over.wait(pause)
            pause = min(2 * pause, PAUSE_MOST)

    def _read(self) -> None:
        headers = {} if self._last is None else {"last-event-id": self._last}
        with self._client.follow(EVENTS, self._query, headers) as stream:
            with self._lock:
                self._stream = stream
            try:
                if not self._opened.done():
                    self._opened.set_result(None)
                self._publish(stream)
            finally:
                with self._lock:
                    self._stream = None

    def _publish(self, stream: Stream) -> None:
        for frame in frames(stream.lines()):
            if self._over.is_set():
                return
            self._last = frame.id or self._last
            if frame.data:
                self.bus.publish(event_of(frame, self._clock.now()))


class Frame(Struct, frozen=True):
    """One message of a stream of server-sent events."""

    id: str
    event: str
    data: str


def frames(lines: Iterable[str]) -> Iterator[Frame]:
    """Yield each message in *lines*; an incomplete last one is left out."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields.setdefault(name, []).append(value.removeprefix(" "))
        elif not line and fields:
            joined = {key: "\n".join(values) for key, values in fields.items()}
            yield Frame(joined.get("id", ""), joined.get("event", ""), joined.get("data", ""))
            fields = {}


def event_of(frame: Frame, now: datetime) -> Event:
    """Decode the event in *frame*; EngineFault if it has another shape.

    `feed.reset` has no data of its own: it gets *now* as its instant.
    """
    try:
        payload = msgspec.convert(json_values.read(frame.data, "event"), dict[str, Any])
        known = {"type": frame.event, "cursor": frame.id, "at": now, "workspace": ""}
        return event_from_wire(known | payload)
    except (InvalidInput, msgspec.ValidationError, KeyError) as error:
        raise EngineFault(f"The server sent an event of another shape: {error}.") from error
