"""Memory stores, memories, versions, sessions, agents and keys of a server."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import UNSET, UnsetType

from holdfast.ground.errors import NotFound, Unsupported
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
    ApiKey,
    Applied,
    ChangesPage,
    Deleted,
    JSONObject,
    KeyScope,
    Match,
    Memory,
    MemoryPrefix,
    Metadata,
    Operation,
    Precondition,
    Resource,
    SessionRecord,
    SessionToken,
    Snapshot,
    Store,
    StoreSettings,
    Version,
    View,
)
from holdfast.memories.stores.session_input import Status, note
from holdfast.memories.stores.sessions import Order
from holdfast.memories.stores.validation import ROOT

STORES = "/v1/memory_stores"
OUR_STORES = "/api/memory_stores"


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
            found = self._client.read(route(OUR_STORES, memory_store_id, "at"), {"path": path})
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
        return records(
            Match, self._client.read(route(OUR_STORES, memory_store_id, "search"), params)
        )

    def rename(self, memory_store_id: str, old_path: str, new_path: str) -> list[Memory]:
        """Move a memory, or everything below a directory, in one transaction."""
        body = {"old_path": old_path, "new_path": new_path}
        path = route(OUR_STORES, memory_store_id, "rename")
        return records(Memory, self._client.write("POST", path, body))

    def delete_under(self, memory_store_id: str, path: str) -> int:
        """Delete a memory or everything below a directory; return how many."""
        target = route(OUR_STORES, memory_store_id, "delete_under")
        return field_of(int, self._client.write("POST", target, {"path": path}), "deleted")

    def snapshot(self, memory_store_id: str) -> Snapshot:
        """Return one snapshot of all memories in the basic view, by path."""
        return record(Snapshot, self._client.read(route(OUR_STORES, memory_store_id, "snapshot")))

    def changes(self, memory_store_id: str, after: int, *, wait: float = 0.0) -> ChangesPage:
        """Return the changes after number *after*, waiting up to *wait* seconds."""
        query = {"after": after, "wait": wait}
        path = route(OUR_STORES, memory_store_id, "changes")
        return record(ChangesPage, self._client.read(path, query, waits=WAIT_MAX if wait else 0.0))

    def apply(
        self, memory_store_id: str, edits: Sequence[Edit], *, edit_id: str
    ) -> "list[Applied]":
        """Apply edits together and once; a lost response is retried with the same id."""
        body = {"edit_id": edit_id, "edits": edits_on_wire(edits)}
        path = route(OUR_STORES, memory_store_id, "apply")
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
        path = route(OUR_STORES, memory_store_id, "memory_versions", memory_version_id, "restore")
        return record(Memory, self._client.write("POST", path))

    def diff(self, from_id: str, to_id: str, *, memory_store_id: str) -> str:
        """Return the unified diff from one version to another; "" when they are equal."""
        path = route(OUR_STORES, memory_store_id, "diff")
        return field_of(str, self._client.read(path, {"from": from_id, "to": to_id}), "diff")


def _listed(wire: JSONObject) -> Memory | MemoryPrefix:
    if wire.get("type") == "memory_prefix":
        return record(MemoryPrefix, wire)
    return record(Memory, wire)


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


AGENTS = "/v1/agents"
ENVIRONMENTS = "/v1/environments"


class RemoteAgents:
    """Agents of a workspace, each a JSON object with every key of the wire."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def create(self, body: JSONObject) -> JSONObject:
        """Create the agent that *body* describes, version 1."""
        return self._client.write("POST", AGENTS, body)

    def retrieve(self, id: str, *, version: int | None = None) -> JSONObject:
        """Return the agent, in its current or the given *version*."""
        return self._client.read(route(AGENTS, id), {"version": version})

    def update(self, id: str, body: JSONObject) -> JSONObject:
        """Apply the changes in *body*; Conflict if its `version` is not the current one."""
        return self._client.write("POST", route(AGENTS, id), body)

    def list(
        self,
        *,
        limit: int | None = None,
        page: str | None = None,
        include_archived: bool = False,
        created_at_gte: datetime | None = None,
        created_at_lte: datetime | None = None,
    ) -> Page[JSONObject]:
        """Return a page of the agents, newest first."""
        query = {
            "limit": limit,
            "page": page,
            "include_archived": include_archived,
            "created_at[gte]": created_at_gte,
            "created_at[lte]": created_at_lte,
        }
        return paged(self._client, AGENTS, query, dict)

    def versions(
        self, id: str, *, limit: int | None = None, page: str | None = None
    ) -> Page[JSONObject]:
        """Return a page of the agent's versions, newest first."""
        query = {"limit": limit, "page": page}
        return paged(self._client, route(AGENTS, id, "versions"), query, dict)

    def archive(self, id: str) -> JSONObject:
        """Archive the agent; repeating it changes nothing. Its version stays."""
        return self._client.write("POST", route(AGENTS, id, "archive"), again=True)


class RemoteEnvironments:
    """Environments of a workspace, each a JSON object with every key of the wire."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def create(self, body: JSONObject) -> JSONObject:
        """Create the environment that *body* describes."""
        return self._client.write("POST", ENVIRONMENTS, body)

    def retrieve(self, id: str) -> JSONObject:
        """Return the environment, also if archived."""
        return self._client.read(route(ENVIRONMENTS, id))

    def update(self, id: str, body: JSONObject) -> JSONObject:
        """Apply the changes in *body*; other fields stay."""
        return self._client.write("POST", route(ENVIRONMENTS, id), body)

    def list(
        self, *, limit: int | None = None, page: str | None = None, include_archived: bool = False
    ) -> Page[JSONObject]:
        """Return a page of the environments, newest first."""
        query = {"limit": limit, "page": page, "include_archived": include_archived}
        return paged(self._client, ENVIRONMENTS, query, dict)

    def archive(self, id: str) -> JSONObject:
        """Archive the environment; repeating it changes nothing."""
        return self._client.write("POST", route(ENVIRONMENTS, id, "archive"), again=True)


# All of them need an admin key.

KEYS = "/api/keys"


class RemoteKeys:
    """API keys of a workspace."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def create(
        self,
        name: str,
        scope: KeyScope = "write",
        workspace: str | None = None,
        agent: str | None = None,
        user: str | None = None,
    ) -> ApiKey:
        """Create a key; its `secret` is in this response only."""
        given = {"workspace": workspace, "agent": agent, "user": user}
        body = {"name": name, "scope": scope} | {k: v for k, v in given.items() if v is not None}
        return record(ApiKey, self._client.write("POST", KEYS, body))

    def list(self) -> list[ApiKey]:
        """Return every key without its secret."""
        return records(ApiKey, self._client.read(KEYS))

    def revoke(self, id: str) -> ApiKey:
        """Revoke the key, effective within a second in every process."""
        return record(ApiKey, self._client.write("DELETE", route(KEYS, id), again=True))


SESSIONS = "/v1/sessions"
OUR_SESSIONS = "/api/sessions"


class RemoteSessions:
    """Sessions of a workspace; a session token reads its own session only."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def create(
        self,
        *,
        agent: str | JSONObject,
        environment_id: str,
        resources: Iterable[JSONObject] = (),
        title: str | UnsetType | None = UNSET,
        metadata: Metadata | UnsetType | None = UNSET,
        initial_events: object = UNSET,
        budget: object = UNSET,
        vault_ids: object = UNSET,
        strict: bool = False,
    ) -> SessionRecord:
        """Create a session that attaches the stores in *resources* permanently.

        Raises Unsupported with *strict*: that is a setting of the server.
        """
        if strict:
            raise Unsupported("strict over HTTP", next="Start the server with --strict.")
        body = {
            "agent": agent,
            "environment_id": environment_id,
            "resources": resources,
            "title": title,
            "metadata": metadata,
            "initial_events": initial_events,
            "budget": budget,
            "vault_ids": vault_ids,
        }
        return record(SessionRecord, self._client.write("POST", SESSIONS, body))

    def retrieve(self, session_id: str) -> SessionRecord:
        """Return the session, also if archived."""
        return record(SessionRecord, self._client.read(route(SESSIONS, session_id)))

    def update(
        self,
        session_id: str,
        *,
        title: str | UnsetType | None = UNSET,
        metadata: dict[str, str | None] | UnsetType | None = UNSET,
        agent: object = UNSET,
        budget: object = UNSET,
        vault_ids: object = UNSET,
    ) -> SessionRecord:
        """Change *title*, or patch *metadata*; None changes nothing."""
        body = {
            "title": title,
            "metadata": metadata,
            "agent": agent,
            "budget": budget,
            "vault_ids": vault_ids,
        }
        return record(SessionRecord, self._client.write("POST", route(SESSIONS, session_id), body))

    def archive(self, session_id: str) -> SessionRecord:
        """Archive the session and end its tokens; repeating it changes nothing."""
        path = route(SESSIONS, session_id, "archive")
        return record(SessionRecord, self._client.write("POST", path, again=True))

    def delete(self, session_id: str) -> Deleted:
        """Delete the session with its attachments and tokens."""
        path = route(SESSIONS, session_id)
        return deleted(self._client, path, {}, session_id, "session_deleted")

    def resources(self, session_id: str) -> tuple[Resource, ...]:
        """Return the attached stores, in the order given at creation."""
        path = route(SESSIONS, session_id, "resources")
        return tuple(records(Resource, self._client.read(path)))

    def resource(self, session_id: str, memory_store_id: str) -> Resource:
        """Return the attached store *memory_store_id*, with its access and instructions."""
        path = route(SESSIONS, session_id, "resources", memory_store_id)
        return record(Resource, self._client.read(path))

    def note(self, session_id: str, *, root: str = ROOT) -> str:
        """Return text for a system prompt on the attached stores.

        They appear as directories below *root*.
        """
        return note(self.resources(session_id), root=root)

    def create_token(self, session_id: str, *, expires_in: float | None = None) -> SessionToken:
        """Create a token of the session, for *expires_in* seconds or its lifetime."""
        path = route(OUR_SESSIONS, session_id, "tokens")
        return record(SessionToken, self._client.write("POST", path, {"expires_in": expires_in}))

    def list_tokens(self, session_id: str) -> list[SessionToken]:
        """Return the session's valid tokens, newest first, without their secrets."""
        return records(SessionToken, self._client.read(route(OUR_SESSIONS, session_id, "tokens")))

    def revoke_token(self, id: str, *, session_id: str) -> SessionToken:
        """End the token *id* at once, and return it."""
        path = route(OUR_SESSIONS, session_id, "tokens", id)
        return record(SessionToken, self._client.write("DELETE", path, again=True))

    def list(
        self,
        *,
        agent_id: str | None = None,
        agent_version: int | None = None,
        created_at_gt: datetime | None = None,
        created_at_gte: datetime | None = None,
        created_at_lt: datetime | None = None,
        created_at_lte: datetime | None = None,
        include_archived: bool = False,
        limit: int | None = None,
        memory_store_id: str | None = None,
        order: Order | None = None,
        page: str | None = None,
        statuses: Iterable[Status] | None = None,
    ) -> Page[SessionRecord]:
        """Return a page of the sessions, newest first unless *order* is `asc`."""
        query = {
            "agent_id": agent_id,
            "agent_version": agent_version,
            "created_at[gt]": created_at_gt,
            "created_at[gte]": created_at_gte,
            "created_at[lt]": created_at_lt,
            "created_at[lte]": created_at_lte,
            "include_archived": include_archived,
            "limit": limit,
            "memory_store_id": memory_store_id,
            "order": order,
            "page": page,
            "statuses[]": None if statuses is None else [*statuses],
        }
        return paged(self._client, SESSIONS, query, lambda wire: record(SessionRecord, wire))
