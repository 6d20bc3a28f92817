"""Subscriptions to a run memory, and its events.

Notifications are delivered one at a time, in the order of the writes: if another thread delivers
already, it delivers those of this writer as well.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import isasyncgenfunction, iscoroutine, iscoroutinefunction
from threading import Lock, get_ident
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct, field

from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import HoldfastError, InvalidInput, LimitExceeded, PreconditionFailed
from holdfast.ground.events import Event, Fact
from holdfast.ground.json_values import JSON
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.validation import CHAIN, check_chain
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.keys import Kind

_OWN: Final = frozenset(("run_id", "at", "working"))
"""Members of an event that are not its data."""

_FAILURES: Final = REGISTRY.counter("run_listener_errors_total", "Listeners that failed.")


working_part: Final[ContextVar[str | None]] = ContextVar("working_part", default=None)
"""The part of a run that works here, such as a step; None outside of a part."""


@contextmanager
def working(part: str) -> Generator[None]:
    """Let *part* be what works here, for the time of the block."""
    token = working_part.set(part)
    try:
        yield
    finally:
        working_part.reset(token)


class RunMemoryEvent(Struct, frozen=True, kw_only=True):
    """An event in the memory of the run *run_id*, at *at* ms since 1970.

    `working` is the part of the run that read or wrote.
    """

    type: ClassVar[str]

    run_id: str
    at: int
    working: str | None = field(default_factory=working_part.get)

    @property
    def data(self) -> dict[str, JSON]:
        """Its fields by name, without type, run and time."""
        names = [each for each in self.__struct_fields__ if each not in _OWN]
        return {name: getattr(self, name) for name in names}

    def notice(self, workspace: str = "") -> Event:
        """Convert it to an event of a bus: the run and its key are ids."""
        return notice_of(workspace, self.run_id, self.type, self.at, self.data)


def notice_of(workspace: str, run_id: str, type: str, at: int, data: dict[str, JSON]) -> Event:
    """Return the event of a bus for *data* of a run: the run and its key are ids."""
    key = data.get("key")
    facts: dict[str, Fact] = {
        name: msgspec.json.encode(each).decode() if isinstance(each, dict | list) else each
        for name, each in data.items()
        if name != "key"
    }
    return Event(
        type=type,
        at=from_microseconds(at * 1_000),
        workspace=workspace,
        ids={"run_id": run_id} | ({"key": key} if isinstance(key, str) else {}),
        data=facts,
    )


class EntryWritten(RunMemoryEvent, frozen=True, kw_only=True):
    """A key has a new value; `replaced_source` produced the former one."""

    type: ClassVar[str] = "run.entry_written"

    key: str
    kind: Kind
    source: str | None
    title: str | None
    version: int
    value_bytes: int
    failed: bool
    replaced_source: str | None


class EntryDeleted(RunMemoryEvent, frozen=True, kw_only=True):
    """A key was deleted."""

    type: ClassVar[str] = "run.entry_deleted"

    key: str


class EntriesCleared(RunMemoryEvent, frozen=True, kw_only=True):
    """All entries that match `filter` were deleted; an empty one matches all."""

    type: ClassVar[str] = "run.entries_cleared"

    count: int
    filter: dict[str, JSON]


class EntryRead(RunMemoryEvent, frozen=True, kw_only=True):
    """A model read an entry, or a part of its value."""

    type: ClassVar[str] = "run.entry_read"

    key: str
    reader: str
    part: bool


class EntryRefused(RunMemoryEvent, frozen=True, kw_only=True):
    """A write was refused.

    `reason` is the exceeded limit, or the error in snake case.
    """

    type: ClassVar[str] = "run.entry_refused"

    key: str
    reason: str
    actual: int | None
    allowed: int | None


class RunRestored(RunMemoryEvent, frozen=True, kw_only=True):
    """Entries were restored."""

    type: ClassVar[str] = "run.restored"

    count: int


EntryListener = Callable[[RunEntry], object]
EventListener = Callable[[RunMemoryEvent], object]

_log = logging.getLogger(__name__)


class _Subscription(Struct, eq=False):
    """One listener, to entries or to events, until it is `off`."""

    call: Callable[[Any], object]
    to_entries: bool
    off: bool = False


class _Notice(Struct, frozen=True):
    """A queued notification with the listeners at the time of the event."""

    depth: int
    key: str
    entry: RunEntry | None
    event: RunMemoryEvent | None
    listeners: tuple[_Subscription, ...]


class Listeners:
    """The listeners of one memory.

    `heard` and `events_heard` are true if there are any.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.heard = self.events_heard = False
        self._listeners: tuple[_Subscription, ...] = ()
        self._subscribing = Lock()
        self._notices: deque[_Notice] = deque()
        self._turn = Lock()
        self._deliverer: int | None = None
        self._depth = 0

    def to_entries(self, listener: EntryListener) -> Callable[[], None]:
        """Call *listener* with each written or restored entry; return a function to stop."""
        return self._subscribe(_Subscription(_checked(listener), True))

    def to_events(self, listener: EventListener) -> Callable[[], None]:
        """Call *listener* with each event; return a function to stop."""
        return self._subscribe(_Subscription(_checked(listener), False))

    def _subscribe(self, subscription: _Subscription) -> Callable[[], None]:
        with self._subscribing:
            self._set((*self._listeners, subscription))

        def off() -> None:
            subscription.off = True
            with self._subscribing:
                self._set(tuple(each for each in self._listeners if each is not subscription))

        return off

    def _set(self, listeners: tuple[_Subscription, ...]) -> None:
        self._listeners = listeners
        self.heard = bool(listeners)
        self.events_heard = not all(each.to_entries for each in listeners)

    def next_depth(self) -> int:
        """Return the length of the chain of writes with this one.

        Raise `LimitExceeded` past 100.
        """
        return check_chain(self._chain())

    def _chain(self) -> int:
        return self._depth + 1 if self._deliverer == get_ident() else 1

    def written(self, depth: int, entry: RunEntry, before: RunEntry) -> None:
        """Queue that *entry* was written in place of *before*.

        The caller of this and the next methods holds the memory's lock, which keeps the order.
        """
        event = EntryWritten(
            run_id=self._run_id,
            at=entry.updated_at,
            key=entry.key,
            kind=entry.kind,
            source=entry.source,
            title=entry.title,
            version=entry.version,
            value_bytes=entry.value_bytes,
            failed=entry.failed,
            replaced_source=before.source,
        )
        self._queue(depth, entry.key, entry, event)

    def restored(self, depth: int, entries: Sequence[RunEntry], gone: int, at: int) -> None:
        """Queue that *entries* were restored, and *gone* others deleted for them."""
        if gone:
            self.cleared(depth, gone, {}, at)
        for each in entries:
            self._queue(depth, each.key, each, None)
        event = RunRestored(run_id=self._run_id, at=at, count=len(entries))
        self._queue(depth, "", None, event)

    def deleted(self, depth: int, key: str, at: int) -> None:
        """Queue that *key* was deleted."""
        self._queue(depth, key, None, EntryDeleted(run_id=self._run_id, at=at, key=key))

    def cleared(self, depth: int, count: int, among: dict[str, JSON], at: int) -> None:
        """Queue that *count* entries, which match *among*, were deleted."""
        event = EntriesCleared(run_id=self._run_id, at=at, count=count, filter=among)
        self._queue(depth, "", None, event)

    def read(self, key: str, reader: str, *, part: bool, at: int) -> None:
        """Queue that *reader* read *key*."""
        event = EntryRead(run_id=self._run_id, at=at, key=key, reader=reader, part=part)
        self._queue(self.next_depth(), key, None, event)

    def refused(self, key: str, refusal: HoldfastError, at: int) -> None:
        """Queue that a write to *key* was refused, except at the end of a chain of writes."""
        if self._chain() > CHAIN:
            return
        reason, actual, allowed = _facts(refusal)
        event = EntryRefused(
            run_id=self._run_id, at=at, key=key, reason=reason, actual=actual, allowed=allowed
        )
        self._queue(self._chain(), key, None, event)

    def _queue(
        self, depth: int, key: str, entry: RunEntry | None, event: RunMemoryEvent | None
    ) -> None:
        self._notices.append(_Notice(depth, key, entry, event, self._listeners))

    def deliver(self) -> None:
        """Deliver what is queued, unless a thread is doing so already.

        That thread may be the caller's.
        """
        while self._notices:
            if self._deliverer == get_ident() or not self._turn.acquire(blocking=False):
                return
            try:
                self._deliverer = get_ident()
                while self._notices:
                    notice = self._notices.popleft()
                    self._depth = notice.depth
                    for each in notice.listeners:
                        what = notice.entry if each.to_entries else notice.event
                        if what is not None and not each.off:
                            _hand_over(each, what, notice.key)
            finally:
                self._deliverer, self._depth = None, 0
                self._turn.release()


def _hand_over(listener: _Subscription, what: RunEntry | RunMemoryEvent, key: str) -> None:
    try:
        answer = listener.call(what)
    except Exception:  # noqa: BLE001 - a listener's fault is not the write's
        _FAILURES.add()
        _log.exception("a listener of run memory failed on %s", key)
    else:
        if iscoroutine(answer):
            answer.close()
            _FAILURES.add()
            _log.error(
                "a listener of run memory returned a coroutine on %s, which is not awaited", key
            )


def _facts(refusal: HoldfastError) -> tuple[str, int | None, int | None]:
    """Return the reason of *refusal*, the actual number, and the allowed one."""
    if isinstance(refusal, LimitExceeded):
        return refusal.limit, refusal.actual, refusal.allowed
    if isinstance(refusal, PreconditionFailed):
        current, expected = refusal.current, refusal.expected
        version = current.version if isinstance(current, RunEntry) else 0
        return "precondition_failed", version, expected if isinstance(expected, int) else None
    return "invalid_input", None, None


def _checked(listener: Callable[..., object]) -> Callable[..., object]:
    if not callable(listener):
        raise InvalidInput(
            "listener",
            "must be a function",
            given=type(listener).__name__,
            next="Give a function of one argument.",
        )
    for each in (listener, getattr(listener, "__call__", None)):  # noqa: B004
        if iscoroutinefunction(each) or isasyncgenfunction(each):
            raise InvalidInput(
                "listener",
                "must not be an async function",
                next="Listen on an event loop with context.watch().",
            )
    return listener
