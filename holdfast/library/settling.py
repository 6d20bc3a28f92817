"""Resolve writes in doubt after a lost response.

The connection broke after the request was sent, so the server may have done it. A create, an update
under a precondition and a delete are safe to repeat: the second response shows the result of the
first. The outcome of any other write stays unknown.
"""

from collections.abc import Mapping

from holdfast.ground.errors import NotFound, PathTaken, Unavailable
from holdfast.ground.scope import Actor
from holdfast.library.remote.client import WireClient
from holdfast.library.wire_answers import record
from holdfast.library.wire_request import route
from holdfast.memories.stores.records import Deleted, Identity, Memory, Version


def lost(error: Unavailable) -> bool:
    """Return whether *error* leaves a write in doubt on a broken connection."""
    return error.written is None and error.reason == "lost"


def created(
    client: WireClient, path: str, query: Mapping[str, object], body: Mapping[str, object]
) -> Memory:
    """Create a memory by POST to *path*.

    If the response is lost and the path is then taken by a memory with the same content, created
    by the same actor, that memory is returned.
    """
    try:
        return record(Memory, client.write("POST", path, body, query=query))
    except Unavailable as unknown:
        if not lost(unknown):
            raise
        try:
            return record(Memory, client.write("POST", path, body, query=query))
        except PathTaken as taken:
            ours = _made_by_us(client, path, taken.conflicting_memory_id, body)
            if ours is None:
                raise
            shown = {"view": query.get("view") or "basic"}
            return record(Memory, client.read(route(path, ours), shown))
        except Unavailable:
            raise unknown from None


def _made_by_us(
    client: WireClient, path: str, memory_id: str, body: Mapping[str, object]
) -> str | None:
    memory = record(Memory, client.read(route(path, memory_id), {"view": "full"}))
    versions = path.removesuffix("/memories")
    head = client.read(route(versions, "memory_versions", memory.memory_version_id))
    by: Actor = record(Version, head).created_by
    same = (memory.path, memory.content) == (body["path"], body["content"])
    return memory_id if same and by == identity(client).actor else None


def updated(
    client: WireClient, path: str, query: Mapping[str, object], body: Mapping[str, object]
) -> Memory:
    """Update the memory at *path*; retry a lost response under a precondition.

    An update that finds its values in place is a no-op even if its precondition fails, so the
    second attempt returns the true state. Without a precondition it could undo another client's
    later write.
    """
    again = isinstance(body.get("precondition"), dict)
    return record(Memory, client.write("POST", path, body, query=query, again=again))


def deleted(
    client: WireClient, path: str, query: Mapping[str, object], id: str, type: str
) -> Deleted:
    """Delete the object at *path*; NotFound after a lost response counts as deleted."""
    try:
        return record(Deleted, client.write("DELETE", path, query=query))
    except Unavailable as unknown:
        if not lost(unknown):
            raise
        try:
            return record(Deleted, client.write("DELETE", path, query=query))
        except NotFound:
            return record(Deleted, {"id": id, "type": type})
        except Unavailable:
            raise unknown from None


def identity(client: WireClient) -> Identity:
    """Return the identity that the server assigns to the client's credential."""
    return record(Identity, client.read("/api/me"))
