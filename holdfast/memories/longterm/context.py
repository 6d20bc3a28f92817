"""Whose long-term memory, who acts, and how: what every act on it needs to know."""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.ids import Ids
from holdfast.ground.scope import Actor
from holdfast.memories.longterm.embed import Embedder
from holdfast.memories.longterm.records import MAX_ITEMS, LongTermOptions, Origin
from holdfast.memories.longterm.shared import Shared
from holdfast.memories.longterm.vectors.base import VectorProvider, WithRows
from holdfast.memories.longterm.vectors.registry import ProviderChoice

Extractor = Callable[[Any], str]
"""Given an ExtractionRequest, returns what a model says is worth remembering of it."""


class Background(Protocol):
    """Does what waits to be done for a caller."""

    def wake(self, caller: "CollectionContext") -> None:
        """See to what waits for *caller*."""
        ...


class CollectionContext(Struct, frozen=True, kw_only=True):
    """Whose collection, who acts, and with which engine, clock and ids.

    `engine` is scoped to `workspace` and `user`; `workspace_id` is "" for none. `shared` is what
    all handles on the engine have in common. `mines` says that somebody extracts items, which is
    `extractor`, or by its name, if it has one, `miner`. With `embedder` and `vectors` rows are
    compared by meaning too; `degraded` says why not, where it was wished for. `opens` gives the
    keeper of vectors of that name. `origin` is that of the items which are remembered.
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
    embedder: Embedder | None = None
    vectors: VectorProvider | None = None
    degraded: str | None = None
    extractor: Extractor | None = None
    miner: str | None = None
    background: Background | None = None
    opens: Callable[[str], ProviderChoice] | None = None
    origin: Origin = "api"

    def now(self) -> int:
        """Return the present instant in microseconds since 1970."""
        return to_microseconds(self.clock.now())

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What names the collection, among all of the engine."""
        return self.workspace, self.user, self.namespace, self.workspace_id

    def apart(self, name: str | None) -> VectorProvider | None:
        """Return the keeper called *name* if it is not beside the rows, and can be asked."""
        if name is None or self.opens is None:
            return None
        vectors = self.opens(name).vectors
        return None if isinstance(vectors, WithRows) else vectors

    def tend(self) -> None:
        """Have what waits for this caller done in the background, as far as it can."""
        if self.background is not None:
            self.background.wake(self)

    @property
    def named(self) -> dict[str, str]:
        """What names the collection besides its workspace and user, which the engine knows."""
        return {"namespace": self.namespace, "workspace_id": self.workspace_id}
