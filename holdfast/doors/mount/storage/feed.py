"""Follows what happens to a store elsewhere, for as long as it is mounted.

It asks for the changes after the last number it knows, so that a lost notice costs time and never
a change. While the storage is away it asks every second; once it is back, and when the changes in
between are no longer kept, a snapshot takes their place.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic

from holdfast.doors.mount.storage.source import StoreSource
from holdfast.ground.errors import CursorExpired, HoldfastError
from holdfast.memories.stores.records import ChangesPage, Snapshot

AGAIN_SECONDS = 1.0
"""Between one try and the next while the storage is away."""

TOGETHER_SECONDS = 0.01
"""After changes, until the next are asked for: those of many saves then cost one answer."""

_log = logging.getLogger(__name__)


class StoreFeed:
    """The changes of one store after the number *seq*, each told on a thread of the feed's own.

    - *changed* gets every answer, one without changes too: it tells whether the store is archived.
    - *resynced* gets a snapshot, which holds whatever was told before it.
    - *lost* gets why the storage cannot be followed, once, and again when that changes: NotFound
      when the store was deleted, NotAuthenticated when its session is archived.
    - *back* follows the first *resynced* after *lost*.

    What one of them raises is a bug: it is logged, and a snapshot is told next.
    """

    def __init__(
        self,
        source: StoreSource,
        *,
        seq: int,
        changed: Callable[[ChangesPage], None],
        resynced: Callable[[Snapshot], None],
        lost: Callable[[HoldfastError], None],
        back: Callable[[], None],
    ) -> None:
        self._source, self._seq = source, seq
        self._changed, self._resynced, self._lost, self._back = changed, resynced, lost, back
        self._closed = Event()
        self._told: tuple[object, ...] | None = None
        """The reason told last, empty when a snapshot alone is wanted; None while all is well."""
        self._answered, self._took = monotonic(), 0.0

    @property
    def lag_seconds(self) -> float:
        """How far what was told may be behind: since the last answer, once one is overdue.

        Else how long it took to take in the last changes.
        """
        silent = monotonic() - self._answered
        if self._told is None:
            silent -= self._source.longest_wait
        return max(silent, self._took)

    def start(self) -> None:
        """Begin to follow; once."""
        Thread(target=self._run, name=f"holdfast-feed-{self._source.id}", daemon=True).start()

    def close(self) -> None:
        """Tell nothing more, and wait for nothing: not for an answer that is under way."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._turn()
            except Exception:  # noqa: BLE001 - a bug of who is told does not end the feed
                _log.exception("what happened to %s was not taken in", self._source.id)
                self._told = self._told or ()
                self._closed.wait(AGAIN_SECONDS)

    def _turn(self) -> None:
        try:
            if self._told is None:
                self._follow()
            else:
                self._resync()
        except CursorExpired:
            self._told = self._told or ()
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
        told, self._told = self._told, None
        if told:
            self._back()

    def _fail(self, error: HoldfastError) -> None:
        """Tell *error* unless it was told, and pause."""
        if self._closed.is_set():
            return
        reason = (type(error), getattr(error, "reason", None))
        if reason != self._told:
            self._told = reason
            self._lost(error)
        self._closed.wait(AGAIN_SECONDS)
