"""Whose durable memory, who acts, and in which run: what every act on it needs to know."""

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock
from holdfast.ground.ids import Ids
from holdfast.ground.scope import Actor
from holdfast.memories.durable.records import By, to_milliseconds
from holdfast.memories.durable.rows import SHARED, EntryLocation

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
