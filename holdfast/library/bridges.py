"""Save a run's entries in a store, find a store by name, index its memories."""

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from time import sleep
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.errors import (
    Conflict,
    CursorExpired,
    HoldfastError,
    InvalidInput,
    NotFound,
    PathTaken,
    StoreFull,
    TooLarge,
)
from holdfast.memories.run import keys
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.stores.memories import Memories
from holdfast.memories.stores.records import Memory, Store
from holdfast.memories.stores.stores import MemoryStores

PREFIX: Final = "/runs/"

_TOO_MUCH: Final = (InvalidInput, PathTaken, StoreFull, TooLarge)
"""Errors of one result, not of the store or the connection."""


class NotSaved(Struct, frozen=True, kw_only=True):
    """A result that the store refused: its key and the error."""

    key: str
    error: HoldfastError


class Saved(Struct, frozen=True, kw_only=True):
    """The created or updated memories, and the skipped results."""

    memories: tuple[Memory, ...]
    skipped: tuple[NotSaved, ...]


class _Stores(Protocol):
    """Memory stores of a handle, embedded or on a server."""

    @property
    def memories(self) -> Memories:
        """Their memories."""
        ...


def save_run(stores: _Stores, memory: RunMemory, store_id: str, *, prefix: str = PREFIX) -> Saved:
    """Write every result of a task that did not fail to a memory of its own.

    Its path is *prefix*, the run's id and the task's; text is stored as it is, other values as
    JSON. A result that breaks a limit of the store is skipped, with its error; an error of the
    store itself is raised.
    """
    if not (isinstance(prefix, str) and prefix.startswith("/") and prefix.endswith("/")):  # pyright: ignore[reportUnnecessaryIsInstance] - what a caller gave
        raise InvalidInput("prefix", "must begin and end with a slash", given=prefix)
    memories: list[Memory] = []
    skipped: list[NotSaved] = []
    for entry in memory.list(kind="task_result"):
        if entry.failed:
            continue
        try:
            memories.append(_saved(stores.memories, store_id, entry, f"{prefix}{memory.run_id}/"))
        except _TOO_MUCH as error:
            skipped.append(NotSaved(key=entry.key, error=error))
    return Saved(memories=tuple(memories), skipped=tuple(skipped))


def _saved(memories: Memories, store_id: str, entry: RunEntry, folder: str) -> Memory:
    value = entry.value
    ending, content = (".md", value) if isinstance(value, str) else (".json", _written(value))
    path = f"{folder}{keys.split(entry.key)[1]}{ending}"
    existing = memories.at(store_id, path)
    if existing is None:
        return memories.create(store_id, path=path, content=content)
    return memories.update(existing.id, memory_store_id=store_id, content=content)


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


_STORE_ID: Final = "memstore_"
_TRIES: Final = 20
_PAUSE: Final = 0.2
"""Seconds, at most, between two tries to create a store that others create at the same time."""


class NamedStore:
    """A store by id, or by a name that the first write gives to a new store."""

    def __init__(self, stores: MemoryStores, name: str) -> None:
        self._stores, self.name = stores, name
        self._lock = threading.Lock()
        self._id: str | None = None

    def id(self, *, create: bool = False) -> str | None:
        """Return the store's id; None if it does not exist and *create* is not set.

        Raise NotFound for an unknown id, Conflict for a name of several stores.
        """
        with self._lock:
            if self._id is None:
                self._id = self._found()
            if self._id is None and create:
                self._id = self._created()
            return self._id

    def forget_missing(self, error: NotFound) -> bool:
        """Look a named store up again after it was deleted; return whether that may help."""
        with self._lock:
            known, self._id = self._id, None
        return error.kind == "memory store" and known is not None and known != self.name

    def _found(self) -> str | None:
        if self.name.startswith(_STORE_ID):
            return self._stores.retrieve(self.name).id
        named = self._named()
        if len(named) > 1:
            raise Conflict(
                f"{len(named)} stores have the name {self.name}.",
                reason="ambiguous",
                next=f"Give an id: {', '.join(each.id for each in named)}.",
            )
        return named[0].id if named else None

    def _named(self) -> list[Store]:
        stores = self._stores.list(limit=100).all()
        return [each for each in stores if each.name == self.name]

    def _created(self) -> str:
        """Create the store; of several processes that do so at once, one succeeds.

        Each that sees another store of the name after creating its own deletes its own, which is
        empty, and looks again.
        """
        for _ in range(_TRIES):
            own = self._stores.create(name=self.name)
            if [each.id for each in self._named()] == [own.id]:
                return own.id
            self._stores.delete(own.id)
            sleep(random.uniform(0, _PAUSE))  # noqa: S311 - not for a secret
            if (found := self._found()) is not None:
                return found
        raise Conflict(f"The store {self.name} is created by others at this moment.", reason="busy")


_CACHE_BYTES: Final = 67_108_864
_FETCHED_ONE_BY_ONE: Final = 20
_CHANGES_AT_ONCE: Final = 1_000
_DIRECTORIES_SORTED: Final = 256
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class IndexedMemory(Struct, frozen=True):
    """A memory in the basic view, with the names that its path stands for."""

    id: str
    memory: Memory
    namespace: tuple[str, ...]
    key: str

    @property
    def order(self) -> tuple[timedelta, tuple[str, ...], str]:
        """Sorts newest first, then by names."""
        return _EPOCH - self.memory.updated_at, self.namespace, self.key


class MemoryIndex:
    """Memories of a store by directory, newest first, up to date at each use.

    Only those count of which *names* returns the names for the path, and *decode* the value for
    the content. Values are cached up to a byte budget.
    """

    def __init__(
        self,
        stores: MemoryStores,
        names: Callable[[str], tuple[tuple[str, ...], str] | None],
        decode: Callable[[str | None], dict[str, Any] | None],
    ) -> None:
        self._memories, self._lock = stores.memories, threading.Lock()
        self._names, self._decode = names, decode
        self._store, self._seq = "", 0
        self._heads: dict[str, IndexedMemory] = {}
        self._below: dict[str, list[IndexedMemory]] = {}
        self._values: dict[str, tuple[Memory, dict[str, Any]]] = {}
        self._bytes = 0

    def below(self, store: str, directory: str) -> list[IndexedMemory]:
        """Return the memories of *store* below *directory*, newest first."""
        with self._lock:
            self._refresh(store)
            heads = self._below.get(directory)
            if heads is None:
                if len(self._below) >= _DIRECTORIES_SORTED:
                    self._below.clear()
                found = self._heads.values()
                below = (head for head in found if head.memory.path.startswith(directory))
                heads = self._below[directory] = sorted(below, key=attrgetter("order"))
            return heads

    def values(
        self, store: str, directory: str, heads: Sequence[IndexedMemory]
    ) -> dict[str, dict[str, Any]]:
        """Return the values of *heads* by id, without what was deleted meanwhile."""
        with self._lock:
            found: dict[str, dict[str, Any]] = {}
            missing: set[str] = set()
            for head in heads:
                known = self._values.get(head.id)
                if known is None or known[0].content_sha256 != head.memory.content_sha256:
                    missing.add(head.id)
                else:
                    found[head.id] = known[1]
            for memory in self._fetched(store, directory, missing) if missing else ():
                value = self._decode(memory.content)
                self._cache(memory, value)
                if value is not None and memory.id in missing:
                    found[memory.id] = value
            return found

    def _fetched(self, store: str, directory: str, missing: set[str]) -> Iterator[Memory]:
        """Yield the memories *missing*, and others that were read with them."""
        memories, awaited = self._memories, set(missing)
        if len(missing) > _FETCHED_ONE_BY_ONE:
            page = memories.list(store, path_prefix=directory, limit=100, view="full")
            for each in page.all():
                if isinstance(each, Memory):
                    yield each
                    awaited.discard(each.id)
                if not awaited:
                    return
        for id in awaited if len(awaited) <= _FETCHED_ONE_BY_ONE else ():
            try:
                yield memories.retrieve(id, memory_store_id=store)
            except NotFound as error:
                if error.kind == "memory store":
                    raise

    def _cache(self, memory: Memory, value: dict[str, Any] | None) -> None:
        self._drop(memory.id)
        if value is None:
            return
        if self._bytes + memory.content_size_bytes > _CACHE_BYTES:
            self._values, self._bytes = {}, 0
        self._bytes += memory.content_size_bytes
        self._values[memory.id] = replace(memory, content=None), value

    def _drop(self, id: str) -> None:
        known = self._values.pop(id, None)
        self._bytes -= 0 if known is None else known[0].content_size_bytes

    def _refresh(self, store: str) -> None:
        memories = self._memories
        if self._store != store:
            self._load(store)
            return
        try:
            more = True
            while more:
                page = memories.changes(store, self._seq)
                for change in page.changes:
                    self._put(change.memory_id, change.memory)
                more, self._seq = len(page.changes) >= _CHANGES_AT_ONCE, page.seq
        except CursorExpired:
            self._load(store)

    def _load(self, store: str) -> None:
        snapshot = self._memories.snapshot(store)
        self._heads, self._below, self._values, self._bytes = {}, {}, {}, 0
        for memory in snapshot.memories:
            self._put(memory.id, memory)
        self._store, self._seq = store, snapshot.seq

    def _put(self, id: str, memory: Memory | None) -> None:
        self._heads.pop(id, None)
        self._below.clear()
        if memory is None:
            self._drop(id)
        elif (place := self._names(memory.path)) is not None:
            self._heads[id] = IndexedMemory(id, memory, *place)
