"""Memory stores of a server, each method one request."""

from datetime import datetime

from msgspec import UNSET, UnsetType

from holdfast.ground.pages import Page
from holdfast.library.remote.calls import deleted, paged, record
from holdfast.library.remote.client import WireClient, route
from holdfast.library.remote_memories import RemoteMemories, RemoteVersions
from holdfast.memories.stores.records import Deleted, Metadata, Store, StoreSettings

STORES = "/v1/memory_stores"
SETTINGS = "/api/settings/memory_stores"


class RemoteMemoryStores:
    """Memory stores of a workspace.

    `memories` and `memory_versions` have the operations within one store.
    """

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self.memories = RemoteMemories(client)
        self.memory_versions = RemoteVersions(client)

    def create(
        self,
        *,
        name: str,
        description: str | UnsetType | None = UNSET,
        metadata: Metadata | UnsetType | None = UNSET,
    ) -> Store:
        """Create a store."""
        body = {"name": name, "description": description, "metadata": metadata}
        return record(Store, self._client.write("POST", STORES, body))

    def retrieve(self, memory_store_id: str) -> Store:
        """Return the store, also if archived; NotFound if there is none."""
        return record(Store, self._client.read(route(STORES, memory_store_id)))

    def update(
        self,
        memory_store_id: str,
        *,
        name: str | UnsetType | None = UNSET,
        description: str | UnsetType | None = UNSET,
        metadata: dict[str, str | None] | UnsetType | None = UNSET,
    ) -> Store:
        """Change the given fields; in *metadata* None removes a pair, the others stay."""
        body = {"name": name, "description": description, "metadata": metadata}
        return record(Store, self._client.write("POST", route(STORES, memory_store_id), body))

    def list(
        self,
        *,
        limit: int | None = None,
        page: str | None = None,
        include_archived: bool = False,
        created_at_gte: datetime | None = None,
        created_at_lte: datetime | None = None,
    ) -> Page[Store]:
        """Return a page of stores, newest first."""
        query = {
            "limit": limit,
            "page": page,
            "include_archived": include_archived,
            "created_at[gte]": created_at_gte,
            "created_at[lte]": created_at_lte,
        }
        return paged(self._client, STORES, query, lambda wire: record(Store, wire))

    def archive(self, memory_store_id: str) -> Store:
        """Make the store read-only permanently; repeating it changes nothing."""
        path = route(STORES, memory_store_id, "archive")
        return record(Store, self._client.write("POST", path, again=True))

    def delete(self, memory_store_id: str) -> Deleted:
        """Delete the store with all its contents, at once and physically."""
        path = route(STORES, memory_store_id)
        return deleted(self._client, path, {}, memory_store_id, "memory_store_deleted")

    def settings(self) -> StoreSettings:
        """Return the settings of the workspace's stores."""
        return record(StoreSettings, self._client.read(SETTINGS))

    def configure(self, *, memories_cap: int | UnsetType = UNSET) -> StoreSettings:
        """Change the given settings; they apply from the next write, in every process."""
        body = {"memories_cap": memories_cap}
        return record(StoreSettings, self._client.write("POST", SETTINGS, body, again=True))
