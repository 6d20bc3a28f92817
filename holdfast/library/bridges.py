"""Bridges between memories: save a run in a store."""

import json
from typing import Final, Protocol

from msgspec import Struct

from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    PathTaken,
    StoreFull,
    TooLarge,
)
from holdfast.memories.run import keys
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.stores.memories import Memories
from holdfast.memories.stores.records import Memory

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
