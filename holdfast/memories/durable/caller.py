"""Whose durable memory, who acts, and in which run: what every act on it needs to know."""

from datetime import datetime

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock
from holdfast.ground.ids import Ids
from holdfast.ground.scope import Actor
from holdfast.memories.durable.entry import By


class InRun(Struct, frozen=True, kw_only=True):
    """The run that acts: its id, its token in its lane."""

    run_id: str
    token: int
    lane: str


class Caller(Struct, frozen=True, kw_only=True):
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

    def now(self) -> datetime:
        """Return the present instant."""
        return self.clock.now()
