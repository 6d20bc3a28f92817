"""Change feed of a PostgreSQL database, with LISTEN and NOTIFY.

A transaction may commit after one that began later, so a feed returns only changes older than the
oldest running transaction: then nothing can appear behind its cursor. The table is the source of
truth; a notification, from this process or another, only triggers a query.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from types import SimpleNamespace
from typing import Any, Protocol

import msgspec
import psycopg

from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import CursorExpired, HoldfastError, InvalidInput
from holdfast.ground.events import Event, Fact
from holdfast.ground.scope import Actor

TRIMMED = "feed.trimmed"
"""Type of the row that stands for all changes trimmed up to and including it."""

_PREFIX = "chg_"
_BATCH = 1000
_LOOK_EVERY = 1.0

CHANGES = """
select seq, xid, at, workspace, owner, type, ids, data, actor
from changes
where (xid, seq) > (cast(%(xid)s as xid8), %(seq)s)
    and xid < pg_snapshot_xmin(pg_current_snapshot())
order by xid, seq
limit %(batch)s
"""
OLDEST = "select seq, xid, type from changes order by xid, seq limit 1"
# A running transaction may still write below the newest number, so "now" is the last transaction
# before the oldest running one.
NEWEST = """
select coalesce(max(seq), 0) as seq, xid
from changes
where xid = (select max(xid) from changes where xid < pg_snapshot_xmin(pg_current_snapshot()))
group by xid
"""

Position = tuple[int, int]


def cursor_at(xid: int, seq: int) -> str:
    """Return the cursor after the change *seq* of the transaction *xid*."""
    return f"{_PREFIX}{xid}_{seq}"


def position_of(cursor: str) -> Position:
    """Parse *cursor*; InvalidInput if it is not a cursor of this engine."""
    parts = cursor.removeprefix(_PREFIX).split("_")
    if cursor.startswith(_PREFIX) and [_is_number(part) for part in parts] == [True, True]:
        return int(parts[0]), int(parts[1])
    raise InvalidInput("cursor", "is not a cursor of the change feed", given=cursor)


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) < 20  # noqa: PLR2004 - what 64 bits hold


class PostgresFeedSource(Protocol):
    """Source of a feed: queries and wake-ups."""

    def look(self, sql: str, params: dict[str, object]) -> list[SimpleNamespace]:
        """Return every row, of all owners."""
        ...

    def listen(self, wake: threading.Event) -> None:
        """Set *wake* whenever something may have changed, until `unlisten`."""
        ...

    def unlisten(self, wake: threading.Event) -> None:
        """Stop setting *wake*."""
        ...

    def delivered(self, newest: Event) -> None:
        """Record that the changes up to *newest* were returned."""
        ...


class PostgresFeed:
    """Changes of *workspace* (None: of all) after a position, oldest first."""

    def __init__(
        self, changes: PostgresFeedSource, after: str | None, workspace: str | None
    ) -> None:
        self._changes, self._workspace = changes, workspace
        self._wake = threading.Event()
        self._open = True
        if after is None:
            newest = changes.look(NEWEST, {})
            self._after: Position = (newest[0].xid, newest[0].seq) if newest else (0, 0)
        else:
            self._after = position_of(after)
            self._check_trimmed()
        changes.listen(self._wake)

    @property
    def cursor(self) -> str:
        """The cursor after the last change that was read."""
        return cursor_at(*self._after)

    def __iter__(self) -> Iterator[Event]:
        while self._open:
            yield from self.poll(_LOOK_EVERY)

    def poll(self, timeout: float = 0.0) -> list[Event]:
        """Return new changes, waiting at most *timeout* seconds for the first.

        Raises CursorExpired if changes that this feed did not read were trimmed.
        """
        until = monotonic() + timeout
        while self._open:
            self._changes.listen(self._wake)
            self._wake.clear()
            found, more = self._query()
            left = until - monotonic()
            if found or (left <= 0 and not more):
                return found
            if not more:
                # A transaction that held changes back may end without a notification.
                self._wake.wait(min(left, _LOOK_EVERY))
        return []

    def close(self) -> None:
        """Stop listening; a blocked `poll` returns."""
        self._open = False
        self._changes.unlisten(self._wake)
        self._wake.set()

    def _query(self) -> tuple[list[Event], bool]:
        xid, seq = self._after
        rows = self._changes.look(CHANGES, {"xid": str(xid), "seq": seq, "batch": _BATCH})
        if not rows:
            return [], False
        if rows[0].type == TRIMMED:
            raise CursorExpired(cursor_at(rows[0].xid, rows[0].seq))
        self._after = (rows[-1].xid, rows[-1].seq)
        found = [event_of(row) for row in rows if self._workspace in (None, row.workspace)]
        if found:
            self._changes.delivered(found[-1])
        return found, len(rows) == _BATCH

    def _check_trimmed(self) -> None:
        oldest = self._changes.look(OLDEST, {})
        if oldest and oldest[0].type == TRIMMED:
            trimmed_at = (oldest[0].xid, oldest[0].seq)
            if trimmed_at > self._after:
                raise CursorExpired(cursor_at(*trimmed_at))


def event_of(row: SimpleNamespace) -> Event:
    """Return the event in a row of the feed."""
    return Event(
        type=row.type,
        at=from_microseconds(row.at),
        workspace=row.workspace,
        owner=row.owner,
        actor=None
        if row.actor is None
        else Actor.from_wire(msgspec.json.decode(row.actor, type=dict[str, str])),
        ids=msgspec.json.decode(row.ids, type=dict[str, str]),
        data=msgspec.json.decode(row.data, type=dict[str, Fact]),
        seq=row.seq,
        cursor=cursor_at(row.xid, row.seq),
    )


# A thread sends the notification after commits, at most once in 10 ms: inside the write's own
# transaction it would make commits wait for each other.

CHANNEL = "holdfast"

_EVERY = 0.010
_STEP = 0.25
_log = logging.getLogger(__name__)


class Notifier:
    """Notify other processes of changed workspaces, through *send*."""

    def __init__(self, send: Callable[[list[str]], None]) -> None:
        self._send = send
        self._changed: set[str] = set()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def tell(self, workspaces: set[str]) -> None:
        """Queue a notification that *workspaces* changed."""
        with self._lock:
            self._changed |= workspaces
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(
                    target=self._live, name="holdfast-notify", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Send queued notifications, and stop."""
        self._closing.set()
        self._wake.set()
        if (thread := self._thread) is not None:
            thread.join(1.0)

    def _live(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                changed, self._changed = self._changed, set()
            try:
                if changed:
                    self._send(sorted(changed))
            except HoldfastError as error:
                # Feeds elsewhere query every second without a notification.
                _log.debug("no notice was sent: %s", error)
            if self._closing.wait(_EVERY) and not self._changed:
                return


class Listener:
    """Wake feeds when something may have changed, in this process or another."""

    def __init__(self, connect: Callable[[], "psycopg.Connection[Any]"]) -> None:
        self._connect = connect
        self._listening: set[threading.Event] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self, wake: threading.Event) -> None:
        """Set *wake* whenever something may have changed."""
        if wake in self._listening:
            return
        with self._lock:
            self._listening = {*self._listening, wake}
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._live, args=(self._stop,), name="holdfast-feed", daemon=True
                )
                self._thread.start()

    def unlisten(self, wake: threading.Event) -> None:
        """Stop setting *wake*; the last one ends the listening."""
        with self._lock:
            self._listening = self._listening - {wake}
            if not self._listening:
                self._stop.set()
                self._thread = None

    def tell(self) -> None:
        """Wake all listeners."""
        for wake in self._listening:
            wake.set()

    def close(self) -> None:
        """Wake and remove all listeners."""
        with self._lock:
            self.tell()
            self._listening = set()
            self._stop.set()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * _STEP)

    def _live(self, stop: threading.Event) -> None:
        pause = _EVERY
        while not stop.is_set():
            begun = monotonic()
            try:
                self._follow(stop)
            except psycopg.Error as error:
                _log.debug("listening stopped: %s", error)
            self.tell()
            pause = _EVERY if monotonic() - begun > 1.0 else min(2 * pause, 1.0)
            stop.wait(pause)

    def _follow(self, stop: threading.Event) -> None:
        connection = self._connect()
        try:
            connection.execute(f"listen {CHANNEL}")
            # One query finds the commits from before the listening.
            self.tell()
            while not stop.is_set():
                for _ in connection.notifies(timeout=_STEP, stop_after=1):
                    self.tell()
        finally:
            with suppress(psycopg.Error):
                connection.close()
