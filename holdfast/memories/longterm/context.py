"""Scope, switch, events and access times of one collection."""

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final, Protocol
from weakref import WeakSet

from msgspec import Struct

from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.clock import Clock, from_microseconds, to_microseconds
from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.ground.events import Event, Fact
from holdfast.ground.ids import Ids
from holdfast.ground.scope import Actor
from holdfast.memories.longterm.background.worker import JobThread, Tender
from holdfast.memories.longterm.cache_budget import CACHE_BYTES, ByteBudget
from holdfast.memories.longterm.recall.cache import Place, PostingsCache
from holdfast.memories.longterm.records import MAX_ITEMS, LongTermOptions, Origin, Remembered
from holdfast.memories.longterm.trust.rules import SessionTrust
from holdfast.memories.longterm.vectors.base import VectorProvider, WithRows
from holdfast.memories.longterm.vectors.embedder import Embedder, ModelThread
from holdfast.memories.longterm.vectors.registry import ProviderChoice, VectorProviders

PAUSE: Final = 0.5
"""Seconds for which accesses are collected before they are written."""
_WAIT: Final = 10.0

_log = logging.getLogger(__name__)


class _Place(Struct, frozen=True):
    workspace: str
    user: str
    collection: int


class _Seen(Struct):
    engine: Engine
    rows: dict[int, tuple[int, int]]
    """Last access and number of accesses by row number."""


class AccessLog:
    """The access log of one process: accesses that are not written yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[_Place, _Seen] = {}
        self._writer: threading.Thread | None = None
        self._hurry = threading.Event()

    def add(
        self, engine: Engine, place: tuple[str, str, int], numbers: Iterable[int], at: int
    ) -> None:
        """Record that the rows *numbers* of a collection were recalled *at* that instant.

        *place* is its workspace, its user and its number; *engine* is scoped to the first two.
        """
        with self._lock:
            seen = self._waiting.setdefault(_Place(*place), _Seen(engine, {}))
            for number in numbers:
                last, times = seen.rows.get(number, (at, 0))
                seen.rows[number] = (max(last, at), times + 1)
            if seen.rows and self._writer is None:
                self._hurry.clear()
                self._writer = threading.Thread(
                    target=self._later, name="holdfast-marks", daemon=True
                )
                self._writer.start()

    def forget(self, collection: int) -> None:
        """Drop pending accesses of a deleted collection."""
        with self._lock:
            for place in [each for each in self._waiting if each.collection == collection]:
                del self._waiting[place]

    def flush(self) -> None:
        """Write all pending accesses; return when they are durable or have failed."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for write in [_submitted(place, seen) for place, seen in waiting.items()]:
            _settle(write)

    def _later(self) -> None:
        self._hurry.wait(PAUSE)
        with self._lock:
            self._writer = None
        self.flush()


def _submitted(place: _Place, seen: _Seen) -> "Future[None] | None":
    sql = seen.engine.queries("holdfast.memories.longterm")

    def work(tx: Transaction) -> None:
        if tx.first(scalar, sql.hold_collection, collection=place.collection) is None:
            return
        for number, (at, times) in sorted(seen.rows.items()):
            tx.send(sql.mark_access, collection=place.collection, number=number, at=at, times=times)
        tx.send(sql.count_marks, collection=place.collection)

    try:
        return seen.engine.submit(work)
    except HoldfastError as error:
        _log.warning("access marks were not written: %s", type(error).__name__)
        return None


def _settle(write: "Future[None] | None") -> None:
    if write is None:
        return
    try:
        write.result(timeout=_WAIT)
    except (HoldfastError, TimeoutError) as error:
        _log.warning("access marks were not written: %s", type(error).__name__)


ENABLED = "HOLDFAST_LTM_ENABLED"
MAX_ITEMS_VARIABLE = "HOLDFAST_LTM_MAX_ITEMS"

_ON, _OFF = frozenset(("1", "true", "yes", "on")), frozenset(("0", "false", "no", "off"))


def is_on(enabled: object, variable: str | None) -> bool:
    """Check whether memory is on, by *enabled* and the environment's *variable*.

    Either may veto. None as *enabled* leaves it to the variable, and unset is off. Raise
    `InvalidInput` for any other value.
    """
    said = said_by(variable)
    if enabled is not None and not isinstance(enabled, bool):
        raise InvalidInput("enabled", "must be true, false or null", given=enabled)
    if enabled is None:
        return said is True
    return enabled and said is not False


def said_by(variable: str | None) -> bool | None:
    """Parse the environment's *variable*; None when it is unset or empty."""
    word = (variable or "").strip().lower()
    if not word:
        return None
    if word in _ON:
        return True
    if word in _OFF:
        return False
    raise InvalidInput(ENABLED, "must be 1, true, yes, on, 0, false, no or off", given=variable)


def cap_in(variable: str | None) -> int | None:
    """Return the item limit that the environment's *variable* sets.

    None when it is unset.
    """
    word = (variable or "").strip()
    if not word:
        return None
    if not (word.isascii() and word.isdigit()):
        raise InvalidInput(
            MAX_ITEMS_VARIABLE, "must be a whole number of at least 0", given=variable
        )
    return int(word)


class Results:
    """Results of mining since the last `take`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: list[Remembered] = []

    def add(self, results: tuple[Remembered, ...]) -> None:
        """Add *results*."""
        with self._lock:
            self._results += results

    def take(self) -> tuple[Remembered, ...]:
        """Return and remove all results, oldest first."""
        with self._lock:
            results, self._results = tuple(self._results), []
        return results


class Mined:
    """Subscriptions to mining results by collection, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening: dict[Hashable, WeakSet[Results]] = {}

    def listen(self, collection: Hashable) -> Results:
        """Return a queue that receives the mining results of a collection from now on."""
        results = Results()
        with self._lock:
            self._listening.setdefault(collection, WeakSet()).add(results)
        return results

    def tell(self, collection: Hashable, results: tuple[Remembered, ...]) -> None:
        """Add *results* to the queues of a collection; drop collections without queues."""
        with self._lock:
            listening = list(self._listening.get(collection, ()))
            for unused in [name for name, queues in self._listening.items() if not queues]:
                del self._listening[unused]
        for each in listening:
            each.add(results)


MiningPlace = tuple[str, str, str, str, str]
"""The name of a collection, and the extractor that a caller brings for it, or ""."""

QUERY_SECONDS = 2.0
"""Seconds that a call waits for the vector of one text."""


class Shared:
    """Caches, pending writes and background threads that all handles share."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.room = ByteBudget(cache_bytes)
        self.kept = PostingsCache(self.room)
        self.access_log = AccessLog()
        self.worker = JobThread()
        self.models = ModelThread()
        self.providers = VectorProviders(self.room)
        self.mined = Mined()
        self.query_seconds = QUERY_SECONDS
        self.troubles: dict[str, str] = {}
        """The last error of an embedder, by its model."""
        self.mining_states: dict[MiningPlace, str] = {}
        """The last known state of the extractor, by the name of the collection."""
        self.reindexing: dict[Place, Tender] = {}
        """Running re-analyses, by the name of the collection."""

    def expect_mining(self, place: MiningPlace) -> None:
        """Record that turns of the collection called *place* were queued to be mined."""
        if self.mining_states.get(place, "none") == "none":
            self.mining_states[place] = "ready"

    def close(self) -> None:
        """Write what is pending and close the rest; the engine is still open."""
        self.worker.close()
        self.access_log.flush()
        self.models.close()
        self.providers.close()
        self.kept.clear()


Extractor = Callable[[Any], str]
"""Returns a model's response to an ExtractionRequest."""

TOKENS_A_DAY: Final = 200_000
"""Tokens that mining may use a day in a workspace, unless set; 0 is no limit."""


class MiningWish(Struct, frozen=True, kw_only=True):
    """The extractor that a collection is to be mined with, if any.

    `name` is `provider:model`, or "function" for a caller's own; None if there is no wish. `model`
    is the name by which another process can make it. Without `extractor` it cannot be used, for
    `reason`.
    """

    name: str | None = None
    model: str | None = None
    extractor: Extractor | None = None
    reason: str | None = None


class Background(Protocol):
    """Runs the pending background work of a caller."""

    def wake(self, context: "CollectionContext") -> None:
        """Schedule the pending work of *context*."""
        ...


class CollectionContext(Struct, frozen=True, kw_only=True):
    """Owner, actor, engine, clock and ids of the calls on one collection.

    `engine` is scoped to `workspace` and `user`; `workspace_id` is "" for none. `shared` is the
    state that all handles on the engine have in common. `wishes` returns the extractor of a
    collection with an extractor of its own, or None; `token_budget` bounds mining in tokens a day.
    With `embedder` and `vectors` rows are compared by meaning too; `embedding_model` is the chosen
    model, `degraded` the reason if a requested comparison is not possible. `opens` returns the
    vector provider of a name. `origin` is the origin of remembered items, and
    `session` what was said and recalled in the session that remembers them. Once the user was
    erased after `since`, in microseconds since 1970, nothing is stored. Without `guarded`, for
    measurements, every row is trusted like the user's and none is held.
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
    wishes: Callable[[str | None], MiningWish] | None = None
    token_budget: int = TOKENS_A_DAY
    embedding_model: str | None = None
    embedder: Embedder | None = None
    vectors: VectorProvider | None = None
    degraded: str | None = None
    background: Background | None = None
    opens: Callable[[str], ProviderChoice] | None = None
    origin: Origin = "api"
    session: SessionTrust | None = None
    since: int | None = None
    guarded: bool = True

    def now(self) -> int:
        """Return the present instant in microseconds since 1970."""
        return to_microseconds(self.clock.now())

    @property
    def place(self) -> tuple[str, str, str, str]:
        """The name of the collection, unique in the engine."""
        return self.workspace, self.user, self.namespace, self.workspace_id

    @property
    def mining_place(self) -> MiningPlace:
        """The name of the collection, and the extractor that this caller brings for it."""
        return (*self.place, self.wish(None).name or "")

    @property
    def sql(self) -> SimpleNamespace:
        """The statements of long-term memory."""
        return self.engine.queries("holdfast.memories.longterm")

    @property
    def job_sql(self) -> SimpleNamespace:
        """The statements of background jobs and vectors."""
        return self.engine.queries("holdfast.memories.longterm.background")

    def apart(self, name: str | None) -> VectorProvider | None:
        """Return the vector provider *name* if it is external and can be opened."""
        if name is None or self.opens is None:
            return None
        vectors = self.opens(name).vectors
        return None if isinstance(vectors, WithRows) else vectors

    def tend(self) -> None:
        """Schedule the pending background work of this caller."""
        if self.background is not None:
            self.background.wake(self)

    def wish(self, own: str | None) -> MiningWish:
        """Return the extractor of a collection that has the extractor *own*."""
        if self.wishes is None or not self.options.mine:
            return MiningWish()
        return self.wishes(own)

    @property
    def named(self) -> dict[str, str]:
        """Namespace and workspace id of the collection, as parameters of statements.

        The engine adds its workspace and user.
        """
        return {"namespace": self.namespace, "workspace_id": self.workspace_id}


MOST_IDS: Final = 100
"""Ids of one kind that an event names; their number is in its data."""


def event_of(
    context: CollectionContext,
    what: str,
    collection: str | None,
    ids: Mapping[str, Iterable[str]],
    data: Mapping[str, Fact],
) -> Event:
    """Return the event `longterm.<what>` at the present instant.

    A *what* with a dot is the whole type.

    *collection* is the id of the collection. *ids* has the ids of items and turns below `item` and
    `turn`: one becomes `item_id`, several become `item_ids`, with a space between.
    """
    named = {} if collection is None else {"collection_id": collection}
    for kind, given in ids.items():
        some = list(given)
        if some:
            name = f"{kind}_id" if len(some) == 1 else f"{kind}_ids"
            named[name] = " ".join(some[:MOST_IDS])
    return Event(
        type=what if "." in what else f"longterm.{what}",
        at=from_microseconds(context.now()),
        workspace=context.workspace,
        owner=context.user,
        actor=context.actor,
        ids=named,
        data=dict(data),
    )


def publish(
    context: CollectionContext,
    what: str,
    *,
    collection: str | None = None,
    ids: Mapping[str, Iterable[str]] | None = None,
    **data: Fact,
) -> None:
    """Publish `longterm.<what>` in this process alone, for an act without a write."""
    if context.engine.events.heard:
        context.engine.events.publish(event_of(context, what, collection, ids or {}, data))
