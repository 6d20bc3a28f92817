"""Follow changes of a mounted store by other clients.

The feed requests the changes after the last sequence number, so that a lost notice costs time but
never a change. While the storage is unavailable it retries every second. After that, and if the
changes in between are no longer stored, it continues from a snapshot.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic

from holdfast.doors.mount.storage.source import StoreSource
from holdfast.ground.errors import CursorExpired, HoldfastError
from holdfast.memories.stores.records import ChangesPage, Snapshot

AGAIN_SECONDS = 1.0
"""Seconds between tries while the storage is unavailable."""

TOGETHER_SECONDS = 0.01
"""Seconds from changes to the next request, so that many saves come in one response."""

_log = logging.getLogger(__name__)


class StoreFeed:
    """Feed of the changes of one store after the sequence number *seq*.

    It calls these on a thread of the feed:

    - *changed* with every response, also without changes: it has the store's archived state.
    - *resynced* with a snapshot, which includes all earlier changes.
    - *disconnected* with the error when the storage cannot be followed, and again when the error
      changes: NotFound if the store was deleted, NotAuthenticated if its session is archived.
    - *reconnected* after the first *resynced* after *disconnected*.

    An exception of one of them is a bug: it is logged, and a snapshot is delivered next.
    """

    def __init__(
        self,
        source: StoreSource,
        *,
        seq: int,
        changed: Callable[[ChangesPage], None],
        resynced: Callable[[Snapshot], None],
        disconnected: Callable[[HoldfastError], None],
        reconnected: Callable[[], None],
    ) -> None:
        self._source, self._seq = source, seq
        self._changed, self._resynced = changed, resynced
        self._disconnected, self._reconnected = disconnected, reconnected
        self._closed = Event()
        self._failure: tuple[object, ...] | None = None
        """The reason last passed to *disconnected*, or None; empty: only a snapshot is needed."""
        self._answered, self._took = monotonic(), 0.0

    @property
    def lag_seconds(self) -> float:
        """How far the feed may be behind.

        The time since the last response if one is overdue, else the time that applying the last
        changes took.
        """
        silent = monotonic() - self._answered
        if self._failure is None:
            silent -= self._source.longest_wait
        return max(silent, self._took)

    def start(self) -> None:
        """Start to follow; to be called once."""
        Thread(target=self._run, name=f"holdfast-feed-{self._source.id}", daemon=True).start()

    def close(self) -> None:
        """Stop without waiting for a request in flight."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._turn()
            except Exception:  # noqa: BLE001 - a bug in a listener must not end the feed
                _log.exception("what happened to %s was not taken in", self._source.id)
                self._failure = self._failure or ()
                self._closed.wait(AGAIN_SECONDS)

    def _turn(self) -> None:
        try:
            if self._failure is None:
                self._follow()
            else:
                self._resync()
        except CursorExpired:
            self._failure = self._failure or ()
        except HoldfastError as error:
            self._fail(error)

    def _follow(self) -> None:
        answer = self._source.changes(self._seq, self._source.longest_wait)
        if self._closed.is_set():
            return
        self._answered = monotonic()
        self._changed(answer)
        self._seq = answer.seq
        if answer.changes:
            self._took = monotonic() - self._answered
            self._closed.wait(TOGETHER_SECONDS)

    def _resync(self) -> None:
        snapshot = self._source.snapshot()
        if self._closed.is_set():
            return
        self._answered = monotonic()
        self._resynced(snapshot)
        self._seq, self._took = snapshot.seq, monotonic() - self._answered
        failure, self._failure = self._failure, None
        if failure:
            self._reconnected()

    def _fail(self, error: HoldfastError) -> None:
        """Pass *error* to *disconnected* unless it is the same as before, and pause."""
        if self._closed.is_set():
            return
        reason = (type(error), getattr(error, "reason", None))
        if reason != self._failure:
            self._failure = reason
            self._disconnected(error)
        self._closed.wait(AGAIN_SECONDS)
