"""Memory stores, memories, versions, sessions, agents and keys of a server."""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.ground.errors import NotFound, PathTaken
from holdfast.library.operations.sessions import AGENTS, ENVIRONMENTS, KEYS, SESSIONS
from holdfast.library.operations.stores import MEMORIES, MEMORY_STORES, VERSIONS
from holdfast.library.remote.calls import (
    MemoryRequests,
    RemoteMemory,
    Settle,
    identity,
    perform,
    remote_memory,
    requests_of,
)
from holdfast.memories.stores.memories import Memories
from holdfast.memories.stores.records import Deleted, Memory
from holdfast.memories.stores.sessions import Sessions

# After a broken connection a write may have been done. A create and a delete are safe to repeat:
# the second response shows the result of the first. The outcome of any other write stays unknown.


def _created(memories: Memories, arguments: Mapping[str, Any]) -> Memory:
    """Create the memory again, or return an equal one of ours at its path."""
    try:
        return perform(memories, "create", arguments)
    except PathTaken as taken:
        place, id = {"memory_store_id": arguments["memory_store_id"]}, taken.conflicting_memory_id
        requests = requests_of(memories)
        found = memories.retrieve(id, **place)
        head = RemoteVersions(requests).retrieve(found.memory_version_id, **place, view="basic")
        same = (found.path, found.content) == (arguments["path"], arguments["content"])
        if not same or head.created_by != identity(requests.client).actor:
            raise
        return memories.retrieve(id, **place, view=arguments["view"] or "basic")


def _deleted(kind: Any) -> Mapping[str, Settle]:
    """Return how to repeat a delete: an object that is not found was deleted before."""

    def settle(memory: object, arguments: Mapping[str, Any]) -> Deleted:
        try:
            return perform(memory, "delete", arguments)
        except NotFound:
            return Deleted(id=next(iter(arguments.values())), type=kind)

    return {"delete": settle}


RemoteMemories: Final = remote_memory(
    MEMORIES, settle={"create": _created, **_deleted("memory_deleted")}
)
RemoteVersions: Final = remote_memory(VERSIONS)


class _StoresParts(RemoteMemory):
    def __init__(self, requests: MemoryRequests) -> None:
        super().__init__(requests)
        self.memories, self.memory_versions = RemoteMemories(requests), RemoteVersions(requests)


RemoteMemoryStores: Final = remote_memory(
    MEMORY_STORES, _StoresParts, settle=_deleted("memory_store_deleted")
)
RemoteSessions: Final = remote_memory(
    SESSIONS, settle=_deleted("session_deleted"), note=Sessions.note
)
RemoteAgents: Final = remote_memory(AGENTS)
RemoteEnvironments: Final = remote_memory(ENVIRONMENTS)
RemoteKeys: Final = remote_memory(KEYS)
