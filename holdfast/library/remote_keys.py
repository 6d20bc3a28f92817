"""API keys of a server, with the methods of the embedded ones.

All of them need an admin key.
"""

from holdfast.library.remote.calls import record, records
from holdfast.library.remote.client import WireClient, route
from holdfast.memories.stores.records import ApiKey, KeyScope

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
