"""Scope, fencing token and engine of calls on one agent."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Final, LiteralString, TypeVar, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Make, Reader, Row, Transaction
from holdfast.ground.clock import Clock
from holdfast.ground.errors import StaleRun
from holdfast.ground.events import Event
from holdfast.ground.ids import Ids
from holdfast.ground.scope import Actor
from holdfast.memories.durable.records import CODES, DAY, LABELS, By, Outcome, to_milliseconds
from holdfast.memories.durable.rows import SHARED, EntryLocation
from holdfast.memories.durable.rules import Reason

NO_TOKEN = 0
"""The token of no run."""


class InRun(Struct, frozen=True, kw_only=True):
    """The run that acts: its id, and the token that no other run has."""

    run_id: str
    token: int


class AgentContext(Struct, frozen=True, kw_only=True):
    """Whose entries, who acts, and with which engine, clock and ids.

    `engine` is scoped to `workspace` and `agent`.
    """

    engine: Engine
    workspace: str
    agent: str
    actor: Actor
    clock: Clock
    ids: Ids
    run: InRun | None = None

    def within(self, run_id: str, token: int) -> "AgentContext":
        """Return the like of it that acts in a run."""
        return replace(self, run=InRun(run_id=run_id, token=token))

    def as_agent(self) -> "AgentContext":
        """Return the like of it whose writes are the agent's own, as in a run."""
        return replace(self, actor=Actor.agent(self.agent))

    @property
    def by(self) -> By:
        """Who a write is by: inside a run the agent, else the handle's actor."""
        if self.run is None:
            return By(actor=self.actor)
        return By(actor=Actor.agent(self.agent), run_id=self.run.run_id, run_token=self.run.token)

    @property
    def run_id(self) -> str:
        """The run's id, or "" outside one."""
        return "" if self.run is None else self.run.run_id

    @property
    def token(self) -> int:
        """The run's token, or that of none."""
        return NO_TOKEN if self.run is None else self.run.token

    @property
    def places(self) -> tuple[EntryLocation, ...]:
        """Where entries are visible to it, nearest first."""
        places = (EntryLocation(self.agent), EntryLocation(SHARED))
        return places if self.run is None else (EntryLocation(self.agent, self.run.run_id), *places)

    def now(self) -> int:
        """Return the present instant in microseconds since 1970, cut to a whole millisecond."""
        return to_milliseconds(self.clock.now())


LAPSES_AFTER: Final = DAY
"""Microseconds from a run's last write or heartbeat."""


class RunState(Struct, frozen=True, kw_only=True):
    """How a run stands: its lane, who holds that, when it was seen last, and how it ended."""

    lane: str
    live_token: int
    seen_at: int
    run_outcome: str | None


class _Token(Struct, frozen=True):
    token: int


def pass_fence(caller: AgentContext, reader: Reader) -> None:
    """Return if *caller* is in no run or in a live one; else StaleRun."""
    if caller.run is not None:
        sql = caller.engine.queries("holdfast.memories.durable")
        standing = reader.first(RunState, sql.fence, token=caller.token, run_id=caller.run_id)
        refuse_stale(caller, reader, standing, now=caller.now())


def refuse_stale(
    caller: AgentContext, reader: Reader, standing: RunState | None, *, now: int
) -> None:
    """Raise StaleRun unless a run that stands like this may act; None is a run of nobody."""
    reason = _stale(standing, caller.token, now)
    if reason is None:
        return
    sql = caller.engine.queries("holdfast.memories.durable")
    lane = None if standing is None else standing.lane
    live = reader.first(_Token, sql.live_token, lane=lane, run_id=caller.run_id)
    token = None if live is None or live.token == caller.token else live.token
    raise StaleRun(reason, token=caller.token, live_token=token)


def _stale(standing: RunState | None, token: int, now: int) -> str | None:
    if standing is None:
        # A token that was never given out, or so long ago that nobody knows.
        return "superseded"
    if standing.run_outcome == "lapsed":
        return "lapsed"
    if standing.run_outcome in ("ok", "failed"):
        return "ended"
    if standing.run_outcome is not None or standing.live_token != token:
        return "superseded"
    return "lapsed" if now - standing.seen_at > LAPSES_AFTER else None


T = TypeVar("T")


class OnBehalf:
    """*tx*, whose statements are told that they are *agent*'s in *workspace*."""

    def __init__(self, tx: Transaction, *, workspace: str, agent: str) -> None:
        self._tx = tx
        self._seq: int | None = None
        self._owner: dict[str, object] = {"workspace": workspace, "agent": agent}

    @property
    def seq(self) -> int:
        """A number of this agent's own in the engine-wide order: others share the transaction."""
        if self._seq is None:
            self._seq = self._tx.numbers(1)[0]
        return self._seq

    def numbers(self, count: int) -> list[int]:
        """Return *count* more numbers of that order."""
        return self._tx.numbers(count)

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        return self._tx.one(make, sql, **{**self._owner, **params})

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        return self._tx.first(make, sql, **{**self._owner, **params})

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        return self._tx.all(make, sql, **{**self._owner, **params})

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as it is, its columns in their order."""
        return self._tx.rows(sql, **{**self._owner, **params})

    def run(self, sql: LiteralString, /, **params: object) -> int:
        """Return how many rows changed."""
        return self._tx.run(sql, **{**self._owner, **params})

    def send(self, sql: LiteralString, /, **params: object) -> None:
        """Run a statement whose count nobody needs."""
        self._tx.send(sql, **{**self._owner, **params})

    def run_many(self, sql: LiteralString, rows: Iterable[Mapping[str, object]], /) -> int:
        """Run one statement for each of *rows*; return how many rows changed together."""
        return self._tx.run_many(sql, ({**self._owner, **row} for row in rows))

    def note(self, event: Event) -> None:
        """Write *event* into the change feed with this transaction."""
        self._tx.note(event)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run *call* once this transaction is durable."""
        self._tx.after_commit(call)


Count = tuple[str, str, int]
"""What is counted, its label's value or "", and how often."""

RUN_EVENTS: Final = ("opened", "ended", "superseded", "lapsed")

COUNTERS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "stored_total": ("Writes of entries.", "outcome", get_args(Outcome)),
    "refused_total": ("Writes refused.", "code", tuple(sorted(set(CODES.values())))),
    "evicted_total": ("Entries evicted for new ones.", "category", LABELS),
    "expired_total": ("Entries removed because they expired.", "category", LABELS),
    "forgotten_total": ("Entries forgotten.", "", ()),
    "hydrations_total": ("Hydrations.", "", ()),
    "hydrated_entries_total": ("Entries hydrated.", "", ()),
    "hydrated_bytes_total": ("Bytes of entries hydrated.", "", ()),
    "omitted_entries_total": ("Entries that hydrations left out.", "reason", get_args(Reason)),
    "omitted_bytes_total": ("Bytes of entries that hydrations left out.", "", ()),
    "searches_total": ("Lists with a query.", "result", ("hit", "empty")),
    "recalls_total": ("Reads of one entry by key.", "result", ("hit", "miss")),
    "runs_total": ("Runs.", "event", RUN_EVENTS),
}
"""What each counter says, its label if it has one, and the values that has."""


class CounterCell:
    """One number that only rises, without a lock: a read by key is over in microseconds."""

    __slots__ = ("_ticks", "tick")

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self.tick: Callable[[], int] = self._ticks.__next__

    @property
    def value(self) -> int:
        """How often it was ticked."""
        # A count tells what comes next in the form that it is copied by.
        return cast("tuple[int]", self._ticks.__reduce__()[1])[0]


class DurableCounters:
    """The numbers of this process, which only rise.

    `hits` and `misses` are of entries asked for by key.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self.hits, self.misses = CounterCell(), CounterCell()
        self._lock = Lock()

    def add(self, name: str, label: str = "", by: int = 1) -> None:
        """Count *by* more of *name* under *label*."""
        with self._lock:
            self._counts[name, label] += by

    def add_all(self, counts: Iterable[Count]) -> None:
        """Count all of *counts*."""
        with self._lock:
            for name, label, by in counts:
                self._counts[name, label] += by

    def taken(self) -> Iterator[Count]:
        """Give every counter there is with its number so far."""
        with self._lock:
            counts = dict(self._counts)
        counts["recalls_total", "hit"] = self.hits.value
        counts["recalls_total", "miss"] = self.misses.value
        for name, (_, label, values) in COUNTERS.items():
            for value in values if label else ("",):
                yield name, value, counts.get((name, value), 0)


counts = DurableCounters()
"""What this process did."""
