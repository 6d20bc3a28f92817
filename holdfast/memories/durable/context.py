"""Scope, fencing token and engine of calls on one agent."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Final, LiteralString, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from holdfast.engines.base import Engine, EventFacts, Kin, Make, Reader, Row, Transaction, scalar
from holdfast.ground.clock import Clock
from holdfast.ground.errors import StaleRun
from holdfast.ground.events import Event
from holdfast.ground.ids import Ids
from holdfast.ground.scope import Actor, WriteSubject
from holdfast.ground.trust import Tier
from holdfast.memories.durable.records import CONVERSATION, DAY, WORKSPACE, By, to_milliseconds
from holdfast.memories.durable.rows import SHARED, EntryLocation

NO_TOKEN = 0
"""The fencing token of calls outside a run."""


class InRun(Struct, frozen=True, kw_only=True):
    """The acting run: its id, and its fencing token, which no other run has."""

    run_id: str
    token: int


class AgentContext(Struct, frozen=True, kw_only=True):
    """The agent and actor of calls, with their engine, clock and ids.

    `engine` is scoped to `workspace` and `agent`. Under an *idempotency_key* a repeated write
    returns the first result and writes nothing. Written entries are linked to *subject*,
    and of *tier*, unless the actor's own is lower.
    """

    engine: Engine
    workspace: str
    agent: str
    actor: Actor
    clock: Clock
    ids: Ids
    run: InRun | None = None
    idempotency_key: str | None = None
    subject: WriteSubject | None = None
    tier: Tier | None = None

    def within(self, run_id: str, token: int) -> "AgentContext":
        """Return a copy that acts in the run *run_id* with the fencing token *token*."""
        return replace(self, run=InRun(run_id=run_id, token=token))

    def once(self, idempotency_key: str) -> "AgentContext":
        """Return a copy under which a repeated write returns the first result."""
        return replace(self, idempotency_key=idempotency_key)

    @property
    def sql(self) -> SimpleNamespace:
        """The statements of durable memory."""
        return self.engine.queries("holdfast.memories.durable")

    @property
    def by(self) -> By:
        """The author of writes: the agent inside a run, else the handle's actor."""
        if self.run is None:
            return By(actor=self.actor)
        return By(actor=Actor.agent(self.agent), run_id=self.run.run_id, run_token=self.run.token)

    @property
    def run_id(self) -> str:
        """The run's id, or "" outside one."""
        return "" if self.run is None else self.run.run_id

    @property
    def token(self) -> int:
        """The run's fencing token, or `NO_TOKEN` outside one."""
        return NO_TOKEN if self.run is None else self.run.token

    @property
    def places(self) -> tuple[EntryLocation, ...]:
        """The locations of visible entries, nearest first."""
        places = (EntryLocation(self.agent), EntryLocation(SHARED))
        return places if self.run is None else (EntryLocation(self.agent, self.run.run_id), *places)

    def place_of(self, category: str) -> EntryLocation:
        """Return the location of entries of *category*."""
        if category == CONVERSATION:
            return EntryLocation(self.agent, self.run_id)
        return EntryLocation(SHARED if category == WORKSPACE else self.agent)

    def kin(self, act: str, *, shared: bool = False) -> Kin:
        """Return the kin of *act* on this agent's entries.

        With *shared* on the workspace's too. All of the context but its engine is part of it:
        writes of equal kin differ in their items alone.
        """
        _, *rest = astuple(self)
        return Kin(("durable", self.workspace), None if shared else self.agent, (act, *rest))

    def now(self) -> int:
        """Return the current time, cut to a whole millisecond.

        In microseconds since 1970.
        """
        return to_milliseconds(self.clock.now())


LAPSES_AFTER: Final = DAY
"""Microseconds from a run's last write or heartbeat until it lapses."""


class LaneState(Struct, frozen=True, kw_only=True):
    """State of a run: lane, its live token, last activity, outcome.

    `run_outcome` is None while the run has not ended. `seen_at` is in microseconds since 1970.
    """

    lane: str
    live_token: int
    seen_at: int
    run_outcome: str | None


def pass_fence(context: AgentContext, reader: Reader) -> None:
    """Raise StaleRun if *context* is in a run that is no longer live."""
    if context.run is not None:
        standing = reader.first(
            LaneState, context.sql.fence, token=context.token, run_id=context.run_id
        )
        refuse_stale(context, reader, standing, now=context.now())


def refuse_stale(
    context: AgentContext, reader: Reader, standing: LaneState | None, *, now: int
) -> None:
    """Raise StaleRun unless a run in the state *standing* may act.

    None is a run that is not known. The error carries the token of the live run of the lane.
    """
    reason = _stale(standing, context.token, now)
    if reason is None:
        return
    lane = None if standing is None else standing.lane
    live = reader.first(scalar, context.sql.live_token, lane=lane, run_id=context.run_id)
    token = None if live == context.token else live
    raise StaleRun(reason, token=context.token, live_token=token)


def _stale(standing: LaneState | None, token: int, now: int) -> str | None:
    if standing is None:
        # A token that was never issued, or so long ago that its row was deleted.
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
    """The transaction *tx*, with *workspace* and *agent* as default parameters."""

    def __init__(self, tx: Transaction, *, workspace: str, agent: str) -> None:
        self._tx = tx
        self._seq: int | None = None
        self._owner: dict[str, object] = {"workspace": workspace, "agent": agent}

    @property
    def seq(self) -> int:
        """A number for this agent from the engine-wide order.

        Agents that share the transaction get different numbers.
        """
        if self._seq is None:
            self._seq = self._tx.numbers(1)[0]
        return self._seq

    def numbers(self, count: int) -> list[int]:
        """Return *count* further numbers of that order."""
        return self._tx.numbers(count)

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row. Raise EngineFault for another number of rows."""
        return self._tx.one(make, sql, **{**self._owner, **params})

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        return self._tx.first(make, sql, **{**self._owner, **params})

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        return self._tx.all(make, sql, **{**self._owner, **params})

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as a tuple, in the order of the columns."""
        return self._tx.rows(sql, **{**self._owner, **params})

    def run(self, sql: LiteralString, /, **params: object) -> int:
        """Return how many rows changed."""
        return self._tx.run(sql, **{**self._owner, **params})

    def send(self, sql: LiteralString, /, **params: object) -> None:
        """Run a statement without its row count."""
        self._tx.send(sql, **{**self._owner, **params})

    def run_many(self, sql: LiteralString, rows: Iterable[Mapping[str, object]], /) -> int:
        """Run one statement for each of *rows*; return how many rows changed in total."""
        return self._tx.run_many(sql, ({**self._owner, **row} for row in rows))

    def each(self, sql: LiteralString, rows: Sequence[Row], /) -> None:
        """Run one statement for each of *rows*, values in the order of its parameters."""
        self._tx.each(sql, rows)

    def tell(self, event: Event, each: Iterable[EventFacts], /) -> None:
        """Add an event like *event* for each of *each*, its ids and data."""
        self._tx.tell(event, each)

    def note(self, event: Event) -> None:
        """Add *event* to the change feed of this transaction."""
        self._tx.note(event)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run *call* once this transaction is durable."""
        self._tx.after_commit(call)
