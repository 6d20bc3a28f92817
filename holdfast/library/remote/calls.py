"""Calls of a server: their results as records and pages, and writes in doubt."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from holdfast.ground.errors import EngineFault, NotFound, PathTaken, Unavailable
from holdfast.ground.pages import Page
from holdfast.ground.scope import Actor
from holdfast.library.remote.client import WireClient, route
from holdfast.memories.stores.records import (
    Deleted,
    Identity,
    JSONObject,
    Memory,
    Record,
    Version,
    from_wire,
)

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class _Listed(msgspec.Struct, frozen=True):
    data: list[JSONObject]
    next_page: str | None = None
    prev_page: str | None = None


def record(make: type[R], wire: JSONObject) -> R:
    """Decode *wire* as *make*; EngineFault if the response has another shape."""
    try:
        return from_wire(make, wire)
    except (msgspec.ValidationError, KeyError) as error:
        raise EngineFault(f"The server's answer is not a {make.__name__}: {error}.") from error


def records(make: type[R], wire: JSONObject) -> list[R]:
    """Decode every *make* of a list without pages."""
    return [record(make, each) for each in _converted(_Listed, wire).data]


def paged(
    client: WireClient,
    path: str,
    query: Mapping[str, object],
    make: Callable[[JSONObject], T],
) -> Page[T]:
    """Return a page of the list at GET *path*, each item decoded by *make*.

    Its `all()` fetches the following pages.
    """
    listed = _converted(_Listed, client.read(path, query))
    return Page(
        [make(each) for each in listed.data],
        listed.next_page,
        prev_page=listed.prev_page,
        more=lambda cursor: paged(client, path, {**query, "page": cursor}, make),
    )


def field_of(kind: type[T], wire: JSONObject, name: str) -> T:
    """Return the field *name* of *wire*, decoded as *kind*."""
    return _converted(kind, wire.get(name))


def _converted(kind: type[T], wire: object) -> T:
    try:
        return msgspec.convert(wire, kind)
    except msgspec.ValidationError as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error


# After a broken connection a write may have been done. A create, an update under a precondition and
# a delete are safe to repeat: the second response shows the result of the first. The outcome of any
# other write stays unknown.


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
