"""Typed events, and the bus that publishes them within a process.

An event holds ids, counts, sizes, outcomes and codes; never content, values, paths, durable
keys or hashes.
"""

import logging
from collections.abc import Callable, Collection
from datetime import datetime
from threading import Lock

from msgspec import Struct, field

from holdfast.ground.scope import Actor

Fact = str | int | float | bool | None

_log = logging.getLogger(__name__)


class Event(Struct, frozen=True, kw_only=True):
    """A published event; its type is `<part>.<what>`.

    `seq` and `cursor` are 0 and "" until the engine has stored the event.
    """

    type: str
    at: datetime
    workspace: str
    owner: str | None = None
    actor: Actor | None = None
    ids: dict[str, str] = field(default_factory=dict[str, str])
    data: dict[str, Fact] = field(default_factory=dict[str, Fact])
    seq: int = 0
    cursor: str = ""


Listener = Callable[[Event], None]


class EventBus:
    """Publish events to subscribed listeners on the publishing thread.

    A listener that raises is logged and counted in `listener_errors`.
    """

    def __init__(self) -> None:
        self._listeners: dict[object, tuple[Listener, frozenset[str] | None]] = {}
        self._lock = Lock()
        self.listener_errors = 0

    def subscribe(
        self, listener: Listener, types: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Call *listener* with each event of *types* (None: all).

        Return a function that unsubscribes it.
        """
        key = object()
        accepted = None if types is None else frozenset(types)
        with self._lock:
            self._listeners = {**self._listeners, key: (listener, accepted)}

        def off() -> None:
            with self._lock:
                self._listeners = {k: v for k, v in self._listeners.items() if k is not key}

        return off

    @property
    def heard(self) -> bool:
        """Whether there is a listener."""
        return bool(self._listeners)

    def publish(self, event: Event) -> None:
        """Call the listeners of *event*'s type, on this thread."""
        for listener, accepted in self._listeners.values():
            if accepted is None or event.type in accepted:
                try:
                    listener(event)
                except Exception:  # noqa: BLE001 - a listener's fault is not the write's
                    self.listener_errors += 1
                    _log.exception("a listener failed on %s", event.type)
