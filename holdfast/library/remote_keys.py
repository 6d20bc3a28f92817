"""A server's API keys: the same acts as the embedded ones; all of them need an admin key."""

from holdfast.library.wire_answers import record, records
from holdfast.library.wire_client import WireClient
from holdfast.library.wire_request import route
from holdfast.memories.stores.records import ApiKey, KeyScope

KEYS = "/api/keys"


class RemoteKeys:
    """The keys of a workspace."""

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
        """Make a key; its `secret` is in this answer alone."""
        given = {"workspace": workspace, "agent": agent, "user": user}
        body = {"name": name, "scope": scope} | {k: v for k, v in given.items() if v is not None}
        return record(ApiKey, self._client.write("POST", KEYS, body))

    def list(self) -> list[ApiKey]:
        """Return every key without its secret."""
        return records(ApiKey, self._client.read(KEYS))

    def revoke(self, id: str) -> ApiKey:
        """Make the key worthless within a second, for every process."""
        return record(ApiKey, self._client.write("DELETE", route(KEYS, id), again=True))
