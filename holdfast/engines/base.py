"""The storage port: Reader, Transaction, Engine and Feed; the change feed.

Single reads go to the engine; `read` gives several reads one snapshot. `write` takes a function, so
that waiting writes share one commit.
"""

import re
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from datetime import datetime, timedelta
from time import monotonic
from types import SimpleNamespace
from typing import (
    Any,
    Generic,
    Literal,
    LiteralString,
    NamedTuple,
    Protocol,
    TypeVar,
    runtime_checkable,
)

import msgspec
from msgspec import Struct

from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import CursorExpired, EngineFault, HoldfastError, InvalidInput
from holdfast.ground.events import Event, EventBus, Fact
from holdfast.ground.metrics import MetricRegistry
from holdfast.ground.scope import EVERYBODY, Actor, Scope

T = TypeVar("T")
Item = TypeVar("Item")
Make = Callable[..., T]
Row = tuple[Any, ...]
EventFacts = tuple[dict[str, str], dict[str, Fact]]
"""The ids and the data of an event."""
Dialect = Literal["sqlite", "postgres"]


def scalar(**row: Any) -> Any:
    """Return the value of a row of one column."""
    (value,) = row.values()
    return value


class Reader(Protocol):
    """Read statements. Each row becomes *make*(column=value, …).

    SQL is a LiteralString with `:name` parameters: text built at run time does not
    type-check. A scoped reader supplies `:workspace`, `:agent` and `:user` itself.
    """

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        ...

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        ...

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        ...

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as a tuple, in column order.

        For many rows this costs half as much as `all`.
        """
        ...


class Transaction(Reader, Protocol):
    """Statements that commit together or not at all.

    Once its work has returned or raised, every use is EngineFault: a callback after the commit
    captures what it needs, `seq` too, within the work.
    """

    @property
    def seq(self) -> int:
        """This transaction's number in the engine-wide order.

        On PostgreSQL it is drawn at the first access, so access it after the owner's row is
        locked: then number order is commit order within the owner.
        """
        ...

    def numbers(self, count: int) -> list[int]:
        """Return *count* more numbers of that order.

        They rise, and are above `seq` and all drawn before.
        """
        ...

    def run(self, sql: LiteralString, /, **params: object) -> int:
        """Run a statement; return how many rows changed."""
        ...

    def send(self, sql: LiteralString, /, **params: object) -> None:
        """Run a statement and discard its row count.

        It may join the next round trip.

        A failure is raised here or, at the latest, at commit.
        """
        ...

    def run_many(self, sql: LiteralString, rows: Iterable[Mapping[str, object]], /) -> int:
        """Run one statement for each of *rows*; return the total of changed rows."""
        ...

    def each(self, sql: LiteralString, rows: Sequence[Row], /) -> None:
        """Run one statement for each of *rows*.

        The values of a row are in the order of the statement's parameters, each where it first
        stands. No parameter is supplied, not the scope's either.
        """
        ...

    def note(self, event: Event) -> None:
        """Write *event* to the change feed with this transaction.

        It is published after the commit.
        """
        ...

    def tell(self, event: Event, each: Iterable[EventFacts], /) -> None:
        """Note an event like *event* for each of *each*, its ids and data.

        Of a batch this costs less than as many events.
        """
        ...

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run *call* once this transaction is durable, in order of registration."""
        ...


@runtime_checkable
class Numbered(Protocol):
    """A transaction with a server-assigned id, once it has locked or written a row."""

    @property
    def xid(self) -> int | None:
        """The transaction id; None before one is assigned."""
        ...


class Wrap(Protocol):
    """Replaces the work of a write, as for effects that happen once."""

    def __call__(
        self, work: Callable[[Transaction], T], engine: "Engine", /
    ) -> Callable[[Transaction], T]:
        """Return the work that *engine* runs in place of *work*."""
        ...


WRITES: ContextVar[Wrap | None] = ContextVar("writes", default=None)
"""What replaces the work of each write of this context."""


class Kin(NamedTuple):
    """What writes that are done together have in common: a subject and an act.

    The subject is a *part* of a *whole*, such as an agent of a workspace; None is all of it. *act*
    is all else that the outcome depends on: what is done, actor, run, session.
    """

    whole: Hashable
    part: Hashable | None
    act: Hashable


class BatchedWork(Generic[Item, T]):
    """Work that is done once for all waiting writes of equal *kin*, on *item* of each.

    *work*(transaction, items) returns a value or an exception for each item, in order. It depends
    on nothing but the kin and the items. It decides about every item before its first changing
    statement, so that an item which is refused leaves nothing to undo. If it raises, each item is
    done alone, as a batch of one.
    """

    __slots__ = ("item", "kin", "work")

    def __init__(
        self,
        kin: Kin,
        item: Item,
        work: Callable[[Transaction, Sequence[Item]], Sequence[T | Exception]],
    ) -> None:
        self.kin, self.item, self.work = kin, item, work

    def __call__(self, tx: Transaction) -> T:
        """Do the work on this item alone; raise the exception that refuses it."""
        (result,) = self.work(tx, [self.item])
        if isinstance(result, Exception):
            raise result
        return result


def copy_of(error: HoldfastError) -> HoldfastError:
    """Return a copy of *error*, for one thread to raise.

    Threads that raise one error object mix up its traceback.
    """
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin


class Feed(Protocol):
    """Iterator over the changes after a position, oldest first.

    Each is an Event with its `seq` and `cursor`. Iterating blocks until the next change.
    """

    @property
    def cursor(self) -> str:
        """The position after the last returned change."""
        ...

    def __iter__(self) -> Iterator[Event]: ...

    def poll(self, timeout: float = 0.0) -> list[Event]:
        """Return new changes, waiting at most *timeout* seconds for the first."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Scrubbed(Struct, frozen=True, kw_only=True):
    """Result of a scrub: whether deleted bytes are erased, else where they remain."""

    done: bool
    pending: tuple[str, ...] = ()


class EngineStatus(Struct, frozen=True, kw_only=True):
    """Engine status for `/readyz`, `/metrics` and `holdfast doctor`.

    `metrics` maps `holdfast_engine_*` names without that prefix, with labels as
    `name{label="value"}`, to numbers; histograms are flattened as Prometheus renders them.
    """

    dialect: Dialect
    target: str
    ready: bool
    reason: str | None
    schema: int
    details: dict[str, str | int | float | bool | None]
    metrics: dict[str, float]


class Engine(Reader, Protocol):
    """Storage for the memories; single statements run on it directly."""

    dialect: Dialect
    events: EventBus

    def queries(self, package: str) -> SimpleNamespace:
        """Return the statements of *package*'s `queries.sql` in this engine's dialect."""
        ...

    def scoped(self, scope: Scope) -> "Engine":
        """Return this engine with *scope*'s owner in every statement."""
        ...

    def read(self, work: Callable[[Reader], T]) -> T:
        """Run *work* with a reader that sees one snapshot, and return its result."""
        ...

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> T:
        """Run *work* in a transaction; return its result once the commit is durable.

        Roll back and raise if *work* raises. Waiting writes share one commit, so *work* may run on
        the engine's thread and more than once: it computes and runs SQL, and does no other I/O.
        *timeout* is in seconds from the call, 30 by default.

        Writes that do the same small thing for many callers pass a `BatchedWork`, here or to
        `submit`: `engine.write(BatchedWork(Kin(whole, part, act), item, work))`. Those of equal kin
        that wait together, at most 64, become one call of `work(tx, items)`. Writes of a subject
        stay in order: one of another kin of the same subject, or without a kin, ends what was
        brought together before it. An engine that cannot do so calls `work(tx, [item])`.
        """
        ...

    def submit(
        self, work: Callable[[Transaction], T], *, timeout: float | None = None
    ) -> "Future[T]":
        """Queue *work* as `write` does; return a future of its result."""
        ...

    def feed(self, after: str | None = None) -> Feed:
        """Return the feed of changes after the cursor *after*; None: from now on.

        Raises CursorExpired if changes after the cursor were trimmed.
        """
        ...

    def scrub(self, *, timeout: float = 5.0) -> Scrubbed:
        """Make deleted content unreadable in the database's files."""
        ...

    def scrub_later(self) -> None:
        """Schedule `scrub` in the background; never blocks, also in `after_commit`."""
        ...

    def scrub_full(self) -> Scrubbed:
        """Scrub and rewrite the files: slow, and needs disk space for a copy."""
        ...

    def status(self) -> EngineStatus:
        """Return the engine's status."""
        ...

    def close(self, *, timeout: float = 10.0) -> None:
        """Finish pending writes within *timeout* seconds, then release all resources."""
        ...


_WRITE_SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class EngineMetrics:
    """The metrics of one engine; *retries* are the reasons why it runs work again."""

    def __init__(self, retries: Iterable[str]) -> None:
        self._registry = registry = MetricRegistry()
        self.writes = registry.counter(
            "writes_total", "Writes that ended.", outcome=("ok", "error", "unknown")
        )
        self._groups = registry.counter("groups_total", "Commits.")
        self._sizes = registry.histogram("group_size", "Writes of one commit.", _SIZES)
        self.waits = registry.histogram(
            "write_wait_seconds", "From the call until the work runs.", _WRITE_SECONDS
        )
        self._commits = registry.histogram(
            "commit_seconds", "Seconds a commit took.", _WRITE_SECONDS
        )
        self.retries = registry.counter("retries_total", "Work run again.", reason=retries)
        self.reconnects = registry.counter("reconnects_total", "Connections opened again.")
        self.feed_lag = registry.gauge("feed_lag_seconds", "Age of the newest change received.")

    def committed(self, seconds: float, *, writes: int) -> None:
        """Count a commit of *writes* that took *seconds*."""
        self._groups.add()
        self._sizes.observe(writes)
        self._commits.observe(seconds)

    def flat(self) -> dict[str, float]:
        """Return the numbers by sample name."""
        return self._registry.flat() | {"unknown_outcomes_total": self.writes.value("unknown")}


TRIMMED = "feed.trimmed"
"""Type of the row that stands for all changes trimmed up to and including it."""

CURSOR_PREFIX = "chg_"
_PAGE = 1000
_NUMBER = re.compile("[0-9]{1,19}")
"""What fits into 64 bits."""

Position = tuple[int, ...]
"""Numbers by which an engine orders its changes, the order of commits."""


def cursor_at(*position: int) -> str:
    """Return the cursor after the change at *position*."""
    return CURSOR_PREFIX + "_".join(map(str, position))


def position_of(cursor: str, length: int) -> Position:
    """Parse *cursor*; InvalidInput if it is not a cursor of *length* numbers."""
    parts = cursor.removeprefix(CURSOR_PREFIX).split("_")
    numbers = [part for part in parts if _NUMBER.fullmatch(part)]
    if cursor.startswith(CURSOR_PREFIX) and len(parts) == len(numbers) == length:
        return tuple(map(int, numbers))
    raise InvalidInput("cursor", "is not a cursor of the change feed", given=cursor)


class FeedSource(Protocol):
    """Queries and wake-ups of a change feed, over all owners.

    The table of changes is the source of truth: a wake-up only triggers a query, so a lost one
    costs time and never a change.
    """

    order: tuple[str, ...]
    """Columns of a change that are its position."""
    longest_wait: float
    """Seconds after which a feed queries without a wake-up."""

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


class ChangeFeed:
    """Changes of *scope*'s workspace (None, `*`: of all) after a cursor, oldest first.

    Holds no memory while it is behind.
    """

    def __init__(
        self, source: FeedSource, sql: SimpleNamespace, after: str | None, scope: Scope | None
    ) -> None:
        self._source, self._sql = source, sql
        self._workspace = None if scope is None or scope.workspace == "*" else scope.workspace
        self._wake = threading.Event()
        self._open = True
        if after is None:
            newest = source.look(sql.newest_change, {})
            self._after = self._position(newest[0]) if newest else (0,) * len(source.order)
        else:
            self._after = position_of(after, len(source.order))
            for oldest in source.look(sql.oldest_change, {}):
                if oldest.type == TRIMMED and self._position(oldest) > self._after:
                    raise CursorExpired(cursor_at(*self._position(oldest)))
        source.listen(self._wake)

    @property
    def cursor(self) -> str:
        """The cursor after the last change that was read, also of other workspaces."""
        return cursor_at(*self._after)

    def __iter__(self) -> Iterator[Event]:
        while self._open:
            yield from self.poll(self._source.longest_wait)

    def poll(self, timeout: float = 0.0) -> list[Event]:
        """Return new changes, waiting at most *timeout* seconds for the first.

        Raises CursorExpired if changes that this feed did not read were trimmed.
        """
        until = monotonic() + timeout
        while self._open:
            self._source.listen(self._wake)
            self._wake.clear()
            found, more = self._query()
            left = until - monotonic()
            if found or (left <= 0 and not more):
                return found
            if not more:
                self._wake.wait(min(left, self._source.longest_wait))
        return []

    def close(self) -> None:
        """Stop listening; a blocked `poll` returns."""
        self._open = False
        self._source.unlisten(self._wake)
        self._wake.set()

    def _query(self) -> tuple[list[Event], bool]:
        after = dict(zip(self._source.order, self._after, strict=True))
        rows = self._source.look(self._sql.changes_after, {**after, "batch": _PAGE})
        if not rows:
            return [], False
        if rows[0].type == TRIMMED:
            raise CursorExpired(cursor_at(*self._position(rows[0])))
        self._after = self._position(rows[-1])
        found = [
            event_of(row, cursor_at(*self._position(row)))
            for row in rows
            if self._workspace in (None, row.workspace)
        ]
        if found:
            self._source.delivered(found[-1])
        return found, len(rows) == _PAGE

    def _position(self, row: SimpleNamespace) -> Position:
        return tuple(getattr(row, column) for column in self._source.order)


def event_of(row: SimpleNamespace, cursor: str) -> Event:
    """Return the event in a row of the feed."""
    actor = None if row.actor is None else msgspec.json.decode(row.actor, type=dict[str, str])
    return Event(
        type=row.type,
        at=from_microseconds(row.at),
        workspace=row.workspace,
        owner=row.owner,
        actor=None if actor is None else Actor.from_wire(actor),
        ids=msgspec.json.decode(row.ids, type=dict[str, str]),
        data=msgspec.json.decode(row.data, type=dict[str, Fact]),
        seq=row.seq,
        cursor=cursor,
    )


Inside = Literal["read", "write"]


def check_outside(inside: Mapping[int, Inside], *, write: bool = False) -> None:
    """Raise EngineFault if this thread, which reads or writes, is *inside* `work`.

    *inside* holds the threads that are, by their ids.
    """
    if what := inside.get(threading.get_ident()):
        raise EngineFault(
            f"write inside a {what}"
            if write
            else f"An engine was called inside a {what}; use what work was given."
        )


KEPT = timedelta(days=7)
MOST_KEPT = 1_000_000
BATCH = 1000


def trim_changes(engine: Engine, now: datetime, *, most: int = MOST_KEPT) -> int:
    """Delete changes older than seven days, and the oldest beyond *most*.

    Return how many were deleted. Each batch is a write of its own, so other writes wait only
    briefly.
    """
    engine = engine.scoped(EVERYBODY)
    sql = engine.queries("holdfast.engines")
    before = to_microseconds(now - KEPT)

    def work(tx: Transaction) -> int:
        excess: int = tx.one(SimpleNamespace, sql.count_changes, type=TRIMMED).kept - most
        rows = tx.all(SimpleNamespace, sql.oldest_changes, type=TRIMMED, batch=BATCH)
        expired = [row for place, row in enumerate(rows) if row.at < before or place < excess]
        if not expired:
            return 0
        last: int = expired[-1].seq
        tx.run(sql.drop_changes_before, seq=last)
        tx.run(sql.empty_change, seq=last, type=TRIMMED)
        return rows.index(expired[-1]) + 1

    dropped = 0
    while batch := engine.write(work):
        dropped += batch
    return dropped
