"""Memories and versions of a server's stores, each method one request."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET, UnsetType

from holdfast.ground.errors import NotFound
from holdfast.ground.pages import Page
from holdfast.library.remote.calls import (
    created,
    deleted,
    field_of,
    paged,
    record,
    records,
    updated,
)
from holdfast.library.remote.client import WireClient, edits_on_wire, route
from holdfast.memories.stores.changes import WAIT_MAX
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import (
    Applied,
    ChangesPage,
    Deleted,
    JSONObject,
    Match,
    Memory,
    MemoryPrefix,
    Operation,
    Precondition,
    Snapshot,
    Version,
    View,
)

STORES = "/v1/memory_stores"
OURS = "/api/memory_stores"


class RemoteMemories:
    """Memories of a workspace's stores."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def create(
        self, memory_store_id: str, *, path: str, content: str | None, view: View | None = None
    ) -> Memory:
        """Create a memory at *path*; PathTaken if it, a parent or a child is taken."""
        body = {"path": path, "content": content}
        return created(
            self._client, route(STORES, memory_store_id, "memories"), {"view": view}, body
        )

    def retrieve(self, memory_id: str, *, memory_store_id: str, view: View | None = None) -> Memory:
        """Return the memory, with its content unless *view* is "basic"."""
        path = route(STORES, memory_store_id, "memories", memory_id)
        return record(Memory, self._client.read(path, {"view": view}))

    def update(
        self,
        memory_id: str,
        *,
        memory_store_id: str,
        content: str | UnsetType | None = UNSET,
        path: str | UnsetType | None = UNSET,
        precondition: Precondition | UnsetType | None = UNSET,
        view: View | None = None,
    ) -> Memory:
        """Change content, path or both in one version; PreconditionFailed changes nothing."""
        return updated(
            self._client,
            route(STORES, memory_store_id, "memories", memory_id),
            {"view": view},
            {"content": content, "path": path, "precondition": precondition},
        )

    def delete(
        self, memory_id: str, *, memory_store_id: str, expected_content_sha256: str | None = None
    ) -> Deleted:
        """Delete the memory; its versions stay and its path is free at once."""
        path = route(STORES, memory_store_id, "memories", memory_id)
        query = {"expected_content_sha256": expected_content_sha256}
        return deleted(self._client, path, query, memory_id, "memory_deleted")

    def at(self, memory_store_id: str, path: str) -> Memory | None:
        """Return the memory at *path* with its content, or None."""
        try:
            found = self._client.read(route(OURS, memory_store_id, "at"), {"path": path})
        except NotFound as missing:
            if missing.kind == "memory":
                return None
            raise
        return record(Memory, found)

    def search(
        self, memory_store_id: str, query: str, *, limit: int = 10, path_prefix: str = "/"
    ) -> list[Match]:
        """Return memories with words of *query* in path or content, best first."""
        params = {"q": query, "limit": limit, "path_prefix": path_prefix}
        return records(Match, self._client.read(route(OURS, memory_store_id, "search"), params))

    def rename(self, memory_store_id: str, old_path: str, new_path: str) -> list[Memory]:
        """Move a memory, or everything below a directory, in one transaction."""
        body = {"old_path": old_path, "new_path": new_path}
        path = route(OURS, memory_store_id, "rename")
        return records(Memory, self._client.write("POST", path, body))

    def delete_under(self, memory_store_id: str, path: str) -> int:
        """Delete a memory or everything below a directory; return how many."""
        target = route(OURS, memory_store_id, "delete_under")
        return field_of(int, self._client.write("POST", target, {"path": path}), "deleted")

    def snapshot(self, memory_store_id: str) -> Snapshot:
        """Return one snapshot of all memories in the basic view, by path."""
        return record(Snapshot, self._client.read(route(OURS, memory_store_id, "snapshot")))

    def changes(self, memory_store_id: str, after: int, *, wait: float = 0.0) -> ChangesPage:
        """Return the changes after number *after*, waiting up to *wait* seconds."""
        query = {"after": after, "wait": wait}
        path = route(OURS, memory_store_id, "changes")
        return record(ChangesPage, self._client.read(path, query, waits=WAIT_MAX if wait else 0.0))

    def apply(
        self, memory_store_id: str, edits: Sequence[Edit], *, edit_id: str
    ) -> "list[Applied]":
        """Apply edits together and once; a lost response is retried with the same id."""
        body = {"edit_id": edit_id, "edits": edits_on_wire(edits)}
        path = route(OURS, memory_store_id, "apply")
        return records(Applied, self._client.write("POST", path, body, again=True))

    def list(
        self,
        memory_store_id: str,
        *,
        path_prefix: str | None = None,
        depth: int | None = None,
        limit: int | None = None,
        page: str | None = None,
        view: View | None = None,
    ) -> Page[Memory | MemoryPrefix]:
        """Return a page by path; with `depth=1` children, and a prefix per deeper segment."""
        query = {
            "path_prefix": path_prefix,
            "depth": depth,
            "limit": limit,
            "page": page,
            "view": view,
        }
        return paged(self._client, route(STORES, memory_store_id, "memories"), query, _listed)


class RemoteVersions:
    """Versions of a workspace's memories."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def list(
        self,
        memory_store_id: str,
        *,
        memory_id: str | None = None,
        operation: Operation | None = None,
        session_id: str | None = None,
        api_key_id: str | None = None,
        service_account_id: str | None = None,
        created_at_gte: datetime | None = None,
        created_at_lte: datetime | None = None,
        limit: int | None = None,
        page: str | None = None,
        view: View | None = None,
    ) -> Page[Version]:
        """Return a page of versions, newest first."""
        query = {
            "memory_id": memory_id,
            "operation": operation,
            "session_id": session_id,
            "api_key_id": api_key_id,
            "service_account_id": service_account_id,
            "created_at[gte]": created_at_gte,
            "created_at[lte]": created_at_lte,
            "limit": limit,
            "page": page,
            "view": view,
        }
        path = route(STORES, memory_store_id, "memory_versions")
        return paged(self._client, path, query, lambda wire: record(Version, wire))

    def retrieve(
        self, memory_version_id: str, *, memory_store_id: str, view: View | None = None
    ) -> Version:
        """Return the version, with its content unless *view* is "basic"."""
        path = route(STORES, memory_store_id, "memory_versions", memory_version_id)
        return record(Version, self._client.read(path, {"view": view}))

    def redact(self, memory_version_id: str, *, memory_store_id: str) -> Version:
        """Clear the version's content, hash and path permanently; idempotent."""
        path = route(STORES, memory_store_id, "memory_versions", memory_version_id, "redact")
        return record(Version, self._client.write("POST", path, again=True))

    def restore(self, memory_version_id: str, *, memory_store_id: str) -> Memory:
        """Restore the version's content; ContentGone if it was redacted."""
        path = route(OURS, memory_store_id, "memory_versions", memory_version_id, "restore")
        return record(Memory, self._client.write("POST", path))

    def diff(self, from_id: str, to_id: str, *, memory_store_id: str) -> str:
        """Return the unified diff from one version to another; "" when they are equal."""
        path = route(OURS, memory_store_id, "diff")
        return field_of(str, self._client.read(path, {"from": from_id, "to": to_id}), "diff")


def _listed(wire: JSONObject) -> Memory | MemoryPrefix:
    if wire.get("type") == "memory_prefix":
        return record(MemoryPrefix, wire)
    return record(Memory, wire)
