"""Memories of a store: written, read, listed, searched, renamed, deleted."""

from msgspec import UNSET, UnsetType

from holdfast.ground.pages import Page
from holdfast.memories.stores.caller import Caller
from holdfast.memories.stores.records import (
    Deleted,
    Match,
    Memory,
    MemoryPrefix,
    Precondition,
    View,
)


class Memories:
    """The memories of a workspace's stores."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def create(
        self, memory_store_id: str, *, path: str, content: str | None, view: View | None = None
    ) -> Memory: ...

    def retrieve(
        self, memory_id: str, *, memory_store_id: str, view: View | None = None
    ) -> Memory: ...

    def update(
        self,
        memory_id: str,
        *,
        memory_store_id: str,
        content: str | None | UnsetType = UNSET,
        path: str | None | UnsetType = UNSET,
        precondition: Precondition | None | UnsetType = UNSET,
        view: View | None = None,
    ) -> Memory: ...

    def delete(
        self, memory_id: str, *, memory_store_id: str, expected_content_sha256: str | None = None
    ) -> Deleted: ...

    def list(
        self,
        memory_store_id: str,
        *,
        path_prefix: str | None = None,
        depth: int | None = None,
        limit: int | None = None,
        page: str | None = None,
        view: View | None = None,
    ) -> Page[Memory | MemoryPrefix]: ...

    def at(self, memory_store_id: str, path: str) -> Memory | None: ...

    def search(
        self, memory_store_id: str, query: str, *, limit: int = 10, path_prefix: str = "/"
    ) -> list[Match]: ...

    def rename(self, memory_store_id: str, old_path: str, new_path: str) -> list[Memory]: ...

    def delete_under(self, memory_store_id: str, path: str) -> int: ...
