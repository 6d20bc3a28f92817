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
"""What is wrong with one result, and not with the store or the way there."""


class NotSaved(Struct, frozen=True, kw_only=True):
    """A result that the store did not take: its key, and why."""

    key: str
    error: HoldfastError


class Saved(Struct, frozen=True, kw_only=True):
    """The memories that were created or updated, and what was not."""

    memories: tuple[Memory, ...]
    skipped: tuple[NotSaved, ...]


class _Stores(Protocol):
    """The stores of a handle, here or on a server."""

    @property
    def memories(self) -> Memories:
        """Their memories."""
        ...


def save_run(stores: _Stores, memory: RunMemory, store_id: str, *, prefix: str = PREFIX) -> Saved:
    """Write every result of a task that did not fail to a memory of its own.

    It is at *prefix*, the run's id and the task's: text as it is, other values as JSON. What
    breaks a limit of the store is skipped, with its error; what is wrong with the store raises.
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
    there = memories.at(store_id, path)
    if there is None:
        return memories.create(store_id, path=path, content=content)
    return memories.update(there.id, memory_store_id=store_id, content=content)


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
