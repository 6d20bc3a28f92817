"""Scope, switch and events of one collection."""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Protocol
from weakref import WeakSet

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock, from_microseconds, to_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Event, Fact
from holdfast.ground.ids import Ids
from holdfast.ground.scope import Actor
from holdfast.memories.longterm.background.worker import Tender, Worker
from holdfast.memories.longterm.cache_budget import CACHE_BYTES, ByteBudget
from holdfast.memories.longterm.metrics import LongTermCounters, counts
from holdfast.memories.longterm.recall.access_log import Marks
from holdfast.memories.longterm.recall.cache import Place, PostingsCache
from holdfast.memories.longterm.records import MAX_ITEMS, LongTermOptions, Origin, Remembered
from holdfast.memories.longterm.vectors.base import VectorProvider, WithRows
from holdfast.memories.longterm.vectors.embedder import Embedder, ModelThread
from holdfast.memories.longterm.vectors.registry import Keepers, ProviderChoice

ENABLED = "HOLDFAST_LTM_ENABLED"
MAX_ITEMS_VARIABLE = "HOLDFAST_LTM_MAX_ITEMS"

_ON, _OFF = frozenset(("1", "true", "yes", "on")), frozenset(("0", "false", "no", "off"))


def is_on(enabled: object, variable: str | None) -> bool:
    """Tell whether memory is on for a caller who says *enabled*, where *variable* is set so.

    Either may veto; the caller's None leaves it to the variable, and unset is off. InvalidInput
    for what is neither.
    """
    said = said_by(variable)
    if enabled is not None and not isinstance(enabled, bool):
        raise InvalidInput("enabled", "must be true, false or null", given=enabled)
    if enabled is None:
        return said is True
    return enabled and said is not False


def said_by(variable: str | None) -> bool | None:
    """Return what the environment's *variable* says; None when it is unset or empty."""
    word = (variable or "").strip().lower()
    if not word:
        return None
    if word in _ON:
        return True
    if word in _OFF:
        return False
    raise InvalidInput(ENABLED, "must be 1, true, yes, on, 0, false, no or off", given=variable)


def cap_in(variable: str | None) -> int | None:
    """Return the item cap that the environment's *variable* sets; None when it is unset."""
    word = (variable or "").strip()
    if not word:
        return None
    if not (word.isascii() and word.isdigit()):
        raise InvalidInput(
            MAX_ITEMS_VARIABLE, "must be a whole number of at least 0", given=variable
        )
    return int(word)


class Results:
    """What came of mining since it was last taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: list[Remembered] = []

    def add(self, results: tuple[Remembered, ...]) -> None:
        """Hear of *results*."""
        with self._lock:
            self._heard += results

    def take(self) -> tuple[Remembered, ...]:
        """Return all that was heard since, oldest first."""
        with self._lock:
            heard, self._heard = tuple(self._heard), []
        return heard


class Mined:
    """Who listens to the mining of which collection, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening: dict[Hashable, WeakSet[Results]] = {}

    def listen(self, whose: Hashable) -> Results:
        """Return what hears from now on what came of mining in the collection of *whose*."""
        results = Results()
        with self._lock:
            self._listening.setdefault(whose, WeakSet()).add(results)
        return results

    def tell(self, whose: Hashable, results: tuple[Remembered, ...]) -> None:
        """Let those who listen hear *results*; forget collections to which nobody listens."""
        with self._lock:
            listening = list(self._listening.get(whose, ()))
            for nobody in [each for each, heard in self._listening.items() if not heard]:
                del self._listening[nobody]
        for each in listening:
            each.add(results)


QUERY_SECONDS = 2.0
"""Seconds that a call waits for the vector of one text."""


class Shared:
    """What is kept in memory, what waits to be written, and who works in the background."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.room = ByteBudget(cache_bytes)
        self.kept = PostingsCache(self.room)
        self.marks = Marks()
        self.worker = Worker()
        self.models = ModelThread()
        self.keepers = Keepers(self.room)
        self.mined = Mined()
        self.query_seconds = QUERY_SECONDS
        self.troubles: dict[str, str] = {}
        """Why an embedder's vectors could not be had last, by its model."""
        self.reindexing: dict[Place, Tender] = {}
        """Who makes the terms of a collection anew, by what names it."""
        self.counts: LongTermCounters = counts

    def close(self) -> None:
        """Write what waits, and let go of the rest; the engine is still open."""
        self.worker.close()
        self.marks.flush()
        self.models.close()
        self.keepers.close()
        self.kept.clear()


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


MOST_IDS: Final = 100
"""Ids of one kind that an event names; how many there are it says besides."""


def event_of(
    caller: CollectionContext,
    what: str,
    collection: str | None,
    ids: Mapping[str, Iterable[str]],
    data: Mapping[str, Fact],
) -> Event:
    """Return the event that `longterm.<what>` happened, now, in the collection of that id.

    *ids* are those of items and turns by `item` and `turn`: one is told as `item_id`, several as
    `item_ids`, with a space between.
    """
    named = {} if collection is None else {"collection_id": collection}
    for kind, given in ids.items():
        some = list(given)
        if some:
            name = f"{kind}_id" if len(some) == 1 else f"{kind}_ids"
            named[name] = " ".join(some[:MOST_IDS])
    return Event(
        type=f"longterm.{what}",
        at=from_microseconds(caller.now()),
        workspace=caller.workspace,
        owner=caller.user,
        actor=caller.actor,
        ids=named,
        data=dict(data),
    )


def publish(
    caller: CollectionContext,
    what: str,
    *,
    collection: str | None = None,
    ids: Mapping[str, Iterable[str]] | None = None,
    **data: Fact,
) -> None:
    """Tell this process alone that `longterm.<what>` happened, in which nothing was written."""
    if caller.engine.events.heard:
        caller.engine.events.publish(event_of(caller, what, collection, ids or {}, data))
