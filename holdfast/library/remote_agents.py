"""Agents and environments of a server, stored as opaque JSON."""

from datetime import datetime

from holdfast.ground.pages import Page
from holdfast.library.remote.calls import paged
from holdfast.library.remote.client import WireClient, route
from holdfast.memories.stores.records import JSONObject

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
