"""Sessions of a server, each method one request."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import UNSET, UnsetType

from holdfast.ground.errors import Unsupported
from holdfast.ground.pages import Page
from holdfast.library.remote.calls import deleted, paged, record, records
from holdfast.library.remote.client import WireClient, route
from holdfast.memories.stores.records import (
    Deleted,
    JSONObject,
    Metadata,
    Resource,
    SessionRecord,
    SessionToken,
)
from holdfast.memories.stores.session_input import Status, note
from holdfast.memories.stores.sessions import Order
from holdfast.memories.stores.validation import ROOT

SESSIONS = "/v1/sessions"
OURS = "/api/sessions"


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
        path = route(OURS, session_id, "tokens")
        return record(SessionToken, self._client.write("POST", path, {"expires_in": expires_in}))

    def list_tokens(self, session_id: str) -> list[SessionToken]:
        """Return the session's valid tokens, newest first, without their secrets."""
        return records(SessionToken, self._client.read(route(OURS, session_id, "tokens")))

    def revoke_token(self, id: str, *, session_id: str) -> SessionToken:
        """End the token *id* at once, and return it."""
        path = route(OURS, session_id, "tokens", id)
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
