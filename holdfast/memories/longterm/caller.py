"""Whose long-term memory, who acts, and how: what every act on it needs to know."""

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.ids import Ids
from holdfast.ground.scope import Actor
from holdfast.memories.longterm.options import MAX_ITEMS, LongTermOptions
from holdfast.memories.longterm.shared import Shared


class Caller(Struct, frozen=True, kw_only=True):
    """Whose collection, who acts, and with which engine, clock and ids.

    `engine` is scoped to `workspace` and `user`; `workspace_id` is "" for none. `shared` is what
    all handles on the engine have in common. `mines` says that somebody extracts items.
    """

    engine: Engine
    workspace: str
    user: str
    namespace: str
    workspace_id: str
    actor: Actor
    clock: Clock
    ids: Ids
    shared: Shared
    options: LongTermOptions = LongTermOptions()
    max_items: int = MAX_ITEMS
    mines: bool = False

    def now(self) -> int:
        """Return the present instant in microseconds since 1970."""
        return to_microseconds(self.clock.now())

    @property
    def named(self) -> dict[str, str]:
        """What names the collection besides its workspace and user, which the engine knows."""
        return {"namespace": self.namespace, "workspace_id": self.workspace_id}
