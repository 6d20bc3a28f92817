"""Change feed of a SQLite database, with the commits of every process.

The table is the source of truth: a notification (a commit in this process, or `data_version` for
another's) only triggers a query, so a lost notification costs time and never a change. A feed that
fell behind holds no memory.
"""

import threading
from collections.abc import Callable, Iterator
from time import monotonic
from types import SimpleNamespace
from typing import Protocol

import msgspec

from holdfast.engines.base import TRIMMED
from holdfast.engines.sqlite.connection import Connection
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import CursorExpired, HoldfastError, InvalidInput
from holdfast.ground.events import Event, Fact
from holdfast.ground.scope import Actor

_PREFIX = "chg_"
_BATCH = 1000
_BUSY_STEP, _QUIET_STEP, _QUIET_AFTER = 0.010, 0.050, 10.0
_LINGER = 2.0
"""Seconds to wait for the next listener: a connection costs more than a query."""

_CHANGES = """
select seq, at, workspace, owner, type, ids, data, actor
from changes
where seq > :after
order by seq
limit :batch
"""
_OLDEST = "select seq, type from changes order by seq limit 1"
_NEWEST = "select coalesce(max(seq), 0) as seq from changes"


def cursor_at(seq: int) -> str:
    """Return the cursor after the change *seq*."""
    return f"{_PREFIX}{seq}"


def seq_of(cursor: str) -> int:
    """Return the number of the change that *cursor* stands after.

    Raises InvalidInput if it is not a cursor.
    """
    digits = cursor.removeprefix(_PREFIX)
    if cursor.startswith(_PREFIX) and digits.isascii() and digits.isdigit() and len(digits) < 20:  # noqa: PLR2004 - what 64 bits hold
        return int(digits)
    raise InvalidInput("cursor", "is not a cursor of the change feed", given=cursor)


class SQLiteFeedSource(Protocol):
    """Source of a feed: queries and wake-ups."""

    def all(
        self, make: Callable[..., SimpleNamespace], sql: str, params: dict[str, object]
    ) -> list[SimpleNamespace]:
        """Return every row, from one snapshot."""
        ...

    def listen(self, wake: threading.Event) -> None:
        """Set *wake* whenever something may have changed, until `unlisten`."""
        ...

    def unlisten(self, wake: threading.Event) -> None:
        """Stop setting *wake*."""
        ...


class SQLiteFeed:
    """Changes of *workspace* (None: of all) after a position, oldest first.

    `cursor` stands after the last change that was read, also of other workspaces.
    """

    def __init__(self, changes: SQLiteFeedSource, after: str | None, workspace: str | None) -> None:
        self._changes, self._workspace = changes, workspace
        self._wake = threading.Event()
        self._open = True
        if after is None:
            self._after: int = changes.all(SimpleNamespace, _NEWEST, {})[0].seq
            self.cursor = cursor_at(self._after)
        else:
            self._after, self.cursor = seq_of(after), after
            oldest = changes.all(SimpleNamespace, _OLDEST, {})
            if oldest and oldest[0].type == TRIMMED and oldest[0].seq > self._after:
                raise CursorExpired(cursor_at(oldest[0].seq))
        changes.listen(self._wake)

    def __iter__(self) -> Iterator[Event]:
        while self._open:
            yield from self.poll(_QUIET_AFTER)

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
                self._wake.wait(left)
        return []

    def close(self) -> None:
        """Stop listening; a blocked `poll` returns."""
        self._open = False
        self._changes.unlisten(self._wake)
        self._wake.set()

    def _query(self) -> tuple[list[Event], bool]:
        rows = self._changes.all(SimpleNamespace, _CHANGES, {"after": self._after, "batch": _BATCH})
        if not rows:
            return [], False
        if rows[0].type == TRIMMED:
            raise CursorExpired(cursor_at(rows[0].seq))
        self._after = rows[-1].seq
        self.cursor = cursor_at(self._after)
        own = [row for row in rows if self._workspace in (None, row.workspace)]
        return [_event(row) for row in own], len(rows) == _BATCH


class CommitWatcher:
    """Poll for commits of other processes while there are listeners."""

    def __init__(self, connect: Callable[[], Connection] | None) -> None:
        self._connect = connect
        self._listening: set[threading.Event] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop, self._called = threading.Event(), threading.Event()

    def listen(self, wake: threading.Event) -> None:
        """Set *wake* whenever something may have changed."""
        if wake in self._listening:
            return
        with self._lock:
            self._listening = {*self._listening, wake}
            self._called.set()
            self._begin()

    def unlisten(self, wake: threading.Event) -> None:
        """Stop setting *wake*; without another listener the polling soon ends."""
        with self._lock:
            self._listening = self._listening - {wake}
            if not self._listening:
                self._called.clear()

    def tell(self) -> None:
        """Notify all listeners of a commit in this process."""
        for wake in self._listening:
            wake.set()

    def close(self) -> None:
        """Notify and remove all listeners."""
        with self._lock:
            self.tell()
            self._listening = set()
            thread = self._thread
            self._end()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def rest(self) -> None:
        """Close the connection until `resume`."""
        with self._lock:
            thread = self._thread
            self._end()
        if thread is not None:
            thread.join(1.0)

    def resume(self) -> None:
        """Poll again if there are listeners."""
        with self._lock:
            if self._listening:
                self._begin()

    def _begin(self) -> None:
        if self._thread is None and self._connect is not None:
            self._stop, self._called = threading.Event(), threading.Event()
            self._called.set()
            args = (self._connect, self._stop, self._called)
            self._thread = threading.Thread(
                target=self._watch, args=args, name="holdfast-feed", daemon=True
            )
            self._thread.start()

    def _end(self) -> None:
        self._stop.set()
        self._called.set()
        self._thread = None

    def _continues(self, stop: threading.Event, called: threading.Event) -> bool:
        """Wait for a listener; return False after `_LINGER` seconds without one."""
        if called.wait(_LINGER):
            return not stop.is_set()
        with self._lock:
            if called.is_set():
                return not stop.is_set()
            self._thread = None
            return False

    def _watch(
        self, connect: Callable[[], Connection], stop: threading.Event, called: threading.Event
    ) -> None:
        try:
            self._poll_version(connect, stop, called)
        except HoldfastError:
            # A reader meets the same fault and raises it; this thread has no caller to raise to.
            with self._lock:
                if self._stop is stop:
                    self._thread = None

    def _poll_version(
        self, connect: Callable[[], Connection], stop: threading.Event, called: threading.Event
    ) -> None:
        """Poll every few milliseconds, on a connection of its own."""
        connection = connect()
        try:
            seen, moved = -1, monotonic()
            while self._continues(stop, called):
                version = connection.number("pragma data_version")
                if version != seen:
                    seen, moved = version, monotonic()
                    self.tell()
                quiet = monotonic() - moved > _QUIET_AFTER
                if stop.wait(_QUIET_STEP if quiet else _BUSY_STEP):
                    return
        finally:
            connection.raw.close(force=True)


def _event(row: SimpleNamespace) -> Event:
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
        cursor=cursor_at(row.seq),
    )
