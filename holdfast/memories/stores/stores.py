"""Stores themselves: made, found, changed, archived, deleted, and their settings."""

from datetime import datetime

from msgspec import UNSET, UnsetType

from holdfast.ground.pages import Page
from holdfast.memories.stores.caller import Caller
from holdfast.memories.stores.memories import Memories
from holdfast.memories.stores.records import Deleted, Metadata, Store, StoreSettings
from holdfast.memories.stores.versions import Versions


class MemoryStores:
    """The memory stores of a workspace; `memories` and `memory_versions` act within one."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.memories = Memories(caller)
        self.memory_versions = Versions(caller)

    def create(
        self,
        *,
        name: str,
        description: str | None | UnsetType = UNSET,
        metadata: Metadata | None | UnsetType = UNSET,
    ) -> Store: ...

    def retrieve(self, memory_store_id: str) -> Store: ...

    def update(
        self,
        memory_store_id: str,
        *,
        name: str | None | UnsetType = UNSET,
        description: str | None | UnsetType = UNSET,
        metadata: dict[str, str | None] | None | UnsetType = UNSET,
    ) -> Store: ...

    def list(
        self,
        *,
        limit: int | None = None,
        page: str | None = None,
        include_archived: bool = False,
        created_at_gte: datetime | None = None,
        created_at_lte: datetime | None = None,
    ) -> Page[Store]: ...

    def archive(self, memory_store_id: str) -> Store: ...

    def delete(self, memory_store_id: str) -> Deleted: ...

    def settings(self) -> StoreSettings: ...

    def configure(self, *, memories_cap: int | UnsetType = UNSET) -> StoreSettings: ...
