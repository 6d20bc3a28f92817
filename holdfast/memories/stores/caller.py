"""Who calls, and by what means: what every act on the stores needs to know."""

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.ids import Ids
from holdfast.ground.scope import Actor


class StoresContext(Struct, frozen=True, kw_only=True):
    """Whose stores, who acts on them, and with which engine, clock and ids.

    `engine` is scoped to `workspace`. With a `session_id` only the stores which that session
    attaches are reached, as far as it attaches them.
    """

    engine: Engine
    workspace: str
    actor: Actor
    clock: Clock
    ids: Ids
    session_id: str | None = None

    def now(self) -> int:
        """Return the present instant in microseconds since 1970."""
        return to_microseconds(self.clock.now())
