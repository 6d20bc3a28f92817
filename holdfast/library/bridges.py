"""Save a run's entries in a store, and find a store by its name."""

import json
import random
import threading
from time import sleep
from typing import Final, Protocol

from msgspec import Struct

from holdfast.ground.errors import (
    Conflict,
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
