"""The storage port: Reader, Transaction, Engine and Feed protocols.

Reads are direct: one statement is asked of the engine itself, several that must see one moment
go in `read`. Writes are functions handed to the engine, so that those which wait together can
share one commit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Literal, LiteralString, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from holdfast.ground.clock import to_microseconds
from holdfast.ground.events import Event, EventBus
from holdfast.ground.scope import EVERYBODY, Scope

T = TypeVar("T")
Make = Callable[..., T]
Row = tuple[Any, ...]
Dialect = Literal["sqlite", "postgres"]


class Reader(Protocol):
    """Statements that look. Each row becomes *make*(column=value, …).

    SQL is a LiteralString with `:name` parameters: text pasted together at run time does not
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
        """Return every row as it is, its columns in their order: for many, at half the cost."""
        ...


class Transaction(Reader, Protocol):
    """Statements that succeed together or not at all.

    Once its work has returned or raised, every use is EngineFault: a call after the commit takes
    what it needs, `seq` too, from within the work.
    """

    @property
    def seq(self) -> int:
        """This transaction's number in the engine-wide order.

        On PostgreSQL it is drawn when first asked for, so ask after the owner's row is locked:
        then number order is commit order within the owner.
        """
        ...

    def numbers(self, count: int) -> list[int]:
        """Return *count* more numbers of that order: rising, above `seq` and all given before."""
        ...

    def run(self, sql: LiteralString, /, **params: object) -> int:
        """Return how many rows changed."""
        ...

    def send(self, sql: LiteralString, /, **params: object) -> None:
        """Run a statement whose count nobody needs; it may join the next round trip.

        A failure is raised here or, at the latest, at commit.
        """
        ...

    def run_many(self, sql: LiteralString, rows: Iterable[Mapping[str, object]], /) -> int:
        """Run one statement for each of *rows*; return how many rows changed together."""
        ...

    def note(self, event: Event) -> None:
        """Write *event* into the change feed with this transaction; send it after the commit."""
        ...

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run *call* once this transaction is durable, in the order asked for."""
        ...


@runtime_checkable
class Numbered(Protocol):
    """A transaction that its server numbers, once it has locked or written a row."""

    @property
    def xid(self) -> int | None:
        """That number, None before."""
        ...


class Feed(Protocol):
    """Changes after a position, oldest first, each an Event with its `seq` and `cursor`.

    As an iterator it blocks for the next.
    """

    @property
    def cursor(self) -> str:
        """The position after what was given out."""
        ...

    def __iter__(self) -> Iterator[Event]: ...

    def poll(self, timeout: float = 0.0) -> list[Event]:
        """Return what came, waiting at most *timeout* seconds for the first."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Scrubbed(Struct, frozen=True, kw_only=True):
    """Whether deleted bytes are gone, and where they may still be."""

    done: bool
    pending: tuple[str, ...] = ()


class EngineStatus(Struct, frozen=True, kw_only=True):
    """How the engine is: for `/readyz`, `/metrics` and `holdfast doctor`.

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
    """Where the memories keep their rows. One statement may be asked of it directly."""

    dialect: Dialect
    events: EventBus

    def queries(self, package: str) -> SimpleNamespace:
        """Return the statements of *package*'s `queries.sql`, as this engine spells them."""
        ...

    def scoped(self, scope: Scope) -> "Engine":
        """Return this engine with every statement carrying *scope*'s owner."""
        ...

    def read(self, work: Callable[[Reader], T]) -> T:
        """Return *work*(reader), whose statements all see one moment."""
        ...

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> T:
        """Return *work*(transaction) once it is durable; undo it and raise if it raises.

        Writes that wait together share one commit, so *work* may run on the engine's thread and
        more than once: it computes and speaks SQL, and waits for nothing else. *timeout* is in
        seconds from the call, 30 unless given.
        """
        ...

    def submit(
        self, work: Callable[[Transaction], T], *, timeout: float | None = None
    ) -> "Future[T]":
        """Hand in *work* as `write` does, without waiting for it."""
        ...

    def feed(self, after: str | None = None) -> Feed:
        """Follow the changes after the cursor *after*, or from now; CursorExpired if too old."""
        ...

    def scrub(self, *, timeout: float = 5.0) -> Scrubbed:
        """Make what was deleted unreadable in the database's files."""
        ...

    def scrub_later(self) -> None:
        """Have `scrub` done in the background; waits for nothing, also in `after_commit`."""
        ...

    def scrub_full(self) -> Scrubbed:
        """Scrub, and rewrite the files as well: long, and with room for another copy."""
        ...

    def status(self) -> EngineStatus:
        """Say how the engine is."""
        ...

    def close(self, *, timeout: float = 10.0) -> None:
        """Finish what waits, within *timeout* seconds, and let go of everything."""
        ...


KEPT = timedelta(days=7)
MOST_KEPT = 1_000_000
BATCH = 1000

TRIMMED = "feed.trimmed"
"""The type of the row that stands for all that were trimmed before it, itself included."""


def trim_changes(engine: Engine, now: datetime, *, most: int = MOST_KEPT) -> int:
    """Drop changes older than seven days, and the oldest beyond *most*; return how many.

    Each batch is a write of its own, so nobody waits long behind it.
    """
    engine = engine.scoped(EVERYBODY)
    sql = engine.queries("holdfast.engines")
    before = to_microseconds(now - KEPT)

    def work(tx: Transaction) -> int:
        excess: int = tx.one(SimpleNamespace, sql.count_changes, type=TRIMMED).kept - most
        rows = tx.all(SimpleNamespace, sql.oldest_changes, type=TRIMMED, batch=BATCH)
        gone = [row for place, row in enumerate(rows) if row.at < before or place < excess]
        if not gone:
            return 0
        last: int = gone[-1].seq
        tx.run(sql.drop_changes_before, seq=last)
        tx.run(sql.empty_change, seq=last, type=TRIMMED)
        return rows.index(gone[-1]) + 1

    dropped = 0
    while batch := engine.write(work):
        dropped += batch
    return dropped
