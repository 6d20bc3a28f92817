"""Times of the last recall of each row, written in batches.

The only write that a crash may lose: it holds the time of the last use, and nothing else.
"""

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.errors import HoldfastError

PAUSE: Final = 0.5
"""Seconds for which accesses are collected before they are written."""
_WAIT: Final = 10.0

_log = logging.getLogger(__name__)


class _Place(Struct, frozen=True):
    workspace: str
    user: str
    collection: int


class _Seen(Struct):
    engine: Engine
    rows: dict[int, tuple[int, int]]
    """Last access and number of accesses by row number."""


class AccessLog:
    """The access log of one process: accesses that are not written yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[_Place, _Seen] = {}
        self._writer: threading.Thread | None = None
        self._hurry = threading.Event()

    def add(
        self, engine: Engine, place: tuple[str, str, int], numbers: Iterable[int], at: int
    ) -> None:
        """Record that the rows *numbers* of a collection were recalled *at* that instant.

        *place* is its workspace, its user and its number; *engine* is scoped to the first two.
        """
        with self._lock:
            seen = self._waiting.setdefault(_Place(*place), _Seen(engine, {}))
            for number in numbers:
                last, times = seen.rows.get(number, (at, 0))
                seen.rows[number] = (max(last, at), times + 1)
            if seen.rows and self._writer is None:
                self._hurry.clear()
                self._writer = threading.Thread(
                    target=self._later, name="holdfast-marks", daemon=True
                )
                self._writer.start()

    def forget(self, collection: int) -> None:
        """Drop pending accesses of a deleted collection."""
        with self._lock:
            for place in [each for each in self._waiting if each.collection == collection]:
                del self._waiting[place]

    def flush(self) -> None:
        """Write all pending accesses; return when they are durable or have failed."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for write in [_submitted(place, seen) for place, seen in waiting.items()]:
            _settle(write)

    def _later(self) -> None:
        self._hurry.wait(PAUSE)
        with self._lock:
            self._writer = None
        self.flush()


def _submitted(place: _Place, seen: _Seen) -> "Future[None] | None":
    sql = seen.engine.queries("holdfast.memories.longterm")

    def work(tx: Transaction) -> None:
        if tx.first(scalar, sql.hold_collection, collection=place.collection) is None:
            return
        for number, (at, times) in sorted(seen.rows.items()):
            tx.send(sql.mark_access, collection=place.collection, number=number, at=at, times=times)
        tx.send(sql.count_marks, collection=place.collection)

    try:
        return seen.engine.submit(work)
    except HoldfastError as error:
        _log.warning("access marks were not written: %s", type(error).__name__)
        return None


def _settle(write: "Future[None] | None") -> None:
    if write is None:
        return
    try:
        write.result(timeout=_WAIT)
    except (HoldfastError, TimeoutError) as error:
        _log.warning("access marks were not written: %s", type(error).__name__)
