"""Methods of remote memories, made from operations; writes in doubt."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import update_wrapper
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct, field

from holdfast.ground.errors import EngineFault, InvalidInput, NotFound, PathTaken, Unavailable
from holdfast.ground.pages import Page
from holdfast.ground.scope import Actor
from holdfast.library.operations.base import Operation, OperationTable, ParamLayout
from holdfast.library.remote.client import WireClient, filled, route
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
F = TypeVar("F")


class MemoryRequests(Struct, frozen=True, kw_only=True):
    """MemoryRequests about one memory of a server, with one credential.

    `segments` and `query` name the memory, and are in each request. `errors` completes the errors
    that are raised within it.
    """

    client: WireClient
    segments: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, object] = field(default_factory=dict[str, object])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    errors: Callable[[], AbstractContextManager[None]] = nullcontext


class RemoteMemory:
    """A memory on a server; `remote_memory` makes its methods."""

    def __init__(self, requests: MemoryRequests) -> None:
        self.requests = requests


def requests_of(memory: object) -> MemoryRequests:
    """Return the requests of *memory*, a remote memory."""
    return cast("RemoteMemory", memory).requests


def remote_memory(
    table: OperationTable[F], **composed: Callable[..., Any]
) -> Callable[[MemoryRequests], F]:
    """Return the class of a remote memory, with the methods of the façade of *table*.

    *composed* are functions of the remote memory, for methods that are no single operation.
    """
    methods = {each.act: _method(table, each) for each in table.operations}
    for name, function in composed.items():
        methods[name] = update_wrapper(function, getattr(table.facade, name))
    return cast("Any", type(f"Remote{table.facade.__name__}", (RemoteMemory,), methods))


def _method(table: OperationTable[Any], operation: Operation) -> Callable[..., Any]:
    layout = table.layout(operation)

    def call(self: RemoteMemory, *args: Any, **kwargs: Any) -> Any:
        bound = layout.signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        with self.requests.errors():
            return _send(operation, layout, self.requests, dict(list(bound.arguments.items())[1:]))

    return update_wrapper(call, getattr(table.facade, operation.act))


def _send(
    operation: Operation,
    layout: ParamLayout,
    requests: MemoryRequests,
    arguments: Mapping[str, Any],
) -> Any:
    given = {name: _encoded(operation, name, each) for name, each in arguments.items()}
    body: Mapping[str, Any] | None = None
    if operation.body:
        body = given[operation.body]
    elif operation.params:
        body = {wire: given[name] for name, wire in layout.body.items()}
    segments = {wire: given[name] for name, wire in layout.segments.items()}
    path = filled(operation.path, {**(body or {}), **requests.segments, **segments})
    query = {operation.wire(each.name): given[each.name] for each in layout.query}
    query = {**requests.query, **query}
    if operation.paged:
        return _page(operation, requests, path, query)
    headers: dict[str, str | bytes] = dict(requests.headers)
    if operation.retry == "keyed":
        key: str = given.get("idempotency_key") or secrets.token_hex(16)
        headers["idempotency-key"] = key.encode()
    try:
        answer = requests.client.write(
            operation.method,
            path,
            body,
            query=query,
            headers=headers,
            again=operation.method == "GET" or operation.retry != "never",
        )
    except NotFound as error:
        if operation.missing is not None and error.kind == operation.missing[0]:
            return None
        raise
    return _decoded(operation, answer)


def _encoded(operation: Operation, name: str, value: object) -> Any:
    special = operation.special.get(name)
    return special.encode(value) if special and special.encode else value


def _decoded(operation: Operation, wire: object) -> Any:
    """Decode a result or an item of a page; EngineFault if it has another shape."""
    try:
        return operation.result.decode(wire)
    except (msgspec.ValidationError, InvalidInput, KeyError, TypeError) as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error


def _page(
    operation: Operation, requests: MemoryRequests, path: str, query: Mapping[str, object]
) -> Page[Any]:
    with requests.errors():
        listed = _converted(_Listed, requests.client.read(path, query, headers=requests.headers))
        return Page(
            [_decoded(operation, each) for each in listed.data],
            listed.next_page,
            prev_page=listed.prev_page,
            more=lambda cursor: _page(operation, requests, path, {**query, "page": cursor}),
        )


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
