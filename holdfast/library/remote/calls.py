"""Methods of remote memories, made from operations; writes in doubt."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import update_wrapper
from typing import Any, ClassVar, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.ground.errors import EngineFault, InvalidInput, NotFound, PathTaken, Unavailable
from holdfast.ground.pages import Page
from holdfast.ground.scope import Actor
from holdfast.library.operations.base import (
    Method,
    Operation,
    OperationTable,
    ParamLayout,
    Retry,
    WireForm,
)
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
    """Requests about one memory of a server, with one credential.

    `segments` and `query` name the memory, and are in each request. `errors` completes the errors
    that are raised within it.
    """

    client: WireClient
    segments: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, object] = field(default_factory=dict[str, object])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    errors: Callable[[], AbstractContextManager[None]] = nullcontext

    def read(self, path: str, query: Mapping[str, object] | None = None) -> JSONObject:
        """Return the response of a GET of *path*, in which names stand in braces."""
        with self.errors():
            target, query = filled(path, self.segments), {**self.query, **(query or {})}
            return self.client.read(target, query, headers=self.headers)

    def write(
        self,
        method: Method,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        retry: Retry = "never",
        query: Mapping[str, object] | None = None,
        key: str | None = None,
    ) -> JSONObject:
        """Return the response of *method* on *path*; a `keyed` one has the key *key*."""
        headers: dict[str, str | bytes] = dict(self.headers)
        if retry == "keyed":
            headers["idempotency-key"] = (secrets.token_hex(16) if key is None else key).encode()
        with self.errors():
            return self.client.write(
                method,
                filled(path, self.segments),
                body,
                query={**self.query, **(query or {})},
                headers=headers,
                again=retry != "never",
            )


class RemoteMemory:
    """A memory on a server; `remote_memory` makes its methods."""

    sent: ClassVar[Mapping[str, tuple[Operation, ParamLayout]]] = {}

    def __init__(self, requests: MemoryRequests) -> None:
        self.requests = requests


def requests_of(memory: object) -> MemoryRequests:
    """Return the requests of *memory*, a remote memory."""
    return cast("RemoteMemory", memory).requests


def remote_memory(
    table: OperationTable[F], base: object = RemoteMemory, **composed: Callable[..., Any]
) -> Callable[[MemoryRequests], F]:
    """Return a class with the methods of the façade of *table*, below *base*.

    *composed* are functions of the remote memory, for methods that are no single operation. Methods
    of the façade that only call others are among them as they are.
    """
    sent = {each.act: (each, table.layout(each)) for each in table.operations}
    methods: dict[str, Any] = {act: _method(table.facade, act) for act in sent}
    for name, function in composed.items():
        own = getattr(table.facade, name)
        methods[name] = own if function is own else update_wrapper(function, own)
    above = cast("type[RemoteMemory]", base)
    methods["sent"] = {**above.sent, **sent}
    return cast("Any", type(f"Remote{table.facade.__name__}", (above,), methods))


def _method(facade: type[object], act: str) -> Callable[..., Any]:
    def call(self: RemoteMemory, *args: Any, **kwargs: Any) -> Any:
        return perform(self, act, arguments_of(self, act, *args, **kwargs))

    return update_wrapper(call, getattr(facade, act))


def arguments_of(memory: object, act: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments of the façade's method *act* by name, with its defaults."""
    signature = cast("RemoteMemory", memory).sent[act][1].signature
    bound = signature.bind(memory, *args, **kwargs)
    bound.apply_defaults()
    arguments = dict(list(bound.arguments.items())[1:])
    for each in signature.parameters.values():
        if each.kind is each.VAR_KEYWORD:
            arguments |= arguments.pop(each.name)
    return arguments


def perform(memory: object, act: str, arguments: Mapping[str, Any]) -> Any:
    """Send the operation *act* of *memory*, a remote memory, and decode its result.

    *arguments* may have fields of the body that are no parameters of the façade.
    """
    remote = cast("RemoteMemory", memory)
    (operation, layout), requests = remote.sent[act], remote.requests
    with requests.errors():
        given = {name: _encoded(operation, name, each) for name, each in arguments.items()}
    key = given.pop("idempotency_key", None)
    query = {operation.wire(each.name): given.pop(each.name) for each in layout.query}
    segments = {wire: given.pop(name) for name, wire in layout.segments.items()}
    body: Mapping[str, Any] | None = None
    if operation.body:
        body = given[operation.body]
    elif operation.params:
        body = {operation.wire(name): each for name, each in given.items()}
    requests = replace(requests, segments={**(body or {}), **requests.segments, **segments})
    if operation.paged:
        return page_of(requests, operation.path, query, operation.result)
    try:
        if operation.method == "GET":
            answer = requests.read(operation.path, query)
        else:
            answer = requests.write(
                operation.method, operation.path, body, retry=operation.retry, query=query, key=key
            )
    except NotFound as error:
        if operation.missing is not None and error.kind == operation.missing[0]:
            return None
        raise
    return decoded(operation.result.decode, answer)


def _encoded(operation: Operation, name: str, value: object) -> Any:
    special = operation.special.get(name)
    return special.encode(value) if special and special.encode else value


def decoded(decode: Callable[[Any], T], wire: object) -> T:
    """Return *decode*(*wire*); EngineFault if the response has another shape."""
    try:
        return decode(wire)
    except (msgspec.ValidationError, InvalidInput, KeyError, TypeError) as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error


def page_of(
    requests: MemoryRequests, path: str, query: Mapping[str, object], form: WireForm[T]
) -> Page[T]:
    """Return a page of the list at GET *path*, each item of *form*.

    Its `all()` fetches the following pages.
    """
    listed = _converted(_Listed, requests.read(path, query))
    return Page(
        [decoded(form.decode, each) for each in listed.data],
        listed.next_page,
        prev_page=listed.prev_page,
        more=lambda cursor: page_of(requests, path, {**query, "page": cursor}, form),
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
