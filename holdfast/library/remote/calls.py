"""Methods of remote memories, made from operations."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial, update_wrapper
from typing import Any, ClassVar, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.ground.errors import EngineFault, InvalidInput, NotFound, Unavailable
from holdfast.ground.pages import Page
from holdfast.library.operations.base import (
    Method,
    Operation,
    OperationTable,
    ParamLayout,
    Retry,
    WireForm,
)
from holdfast.library.remote.client import WireClient, filled
from holdfast.memories.stores.records import Identity, JSONObject, from_wire

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

    def read(
        self, path: str, query: Mapping[str, object] | None = None, *, waits: float = 0.0
    ) -> JSONObject:
        """Return the response of a GET of *path*, in which names stand in braces.

        *waits* adds seconds to the timeout.
        """
        with self.errors():
            target, query = filled(path, self.segments), {**self.query, **(query or {})}
            return self.client.read(target, query, headers=self.headers, waits=waits)

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
        """Return the response of *method* on *path*; a `keyed` one has the key *key*.

        A `guarded` update that finds its values in place changes nothing, even if its precondition
        fails. Without a precondition it could undo another client's later write.
        """
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
                again=retry in {"safe", "keyed"}
                or (retry == "guarded" and isinstance((body or {}).get("precondition"), dict)),
            )


class RemoteMemory:
    """A memory on a server; `remote_memory` makes its methods."""

    sent: ClassVar[Mapping[str, tuple[Operation, ParamLayout]]] = {}

    def __init__(self, requests: MemoryRequests) -> None:
        self.requests = requests


def requests_of(memory: object) -> MemoryRequests:
    """Return the requests of *memory*, a remote memory."""
    return cast("RemoteMemory", memory).requests


Settle = Callable[[Any, Mapping[str, Any]], Any]
"""Repeats an operation of a memory, with its arguments, after the response was lost.

It returns the result of the operation if the first request or the second did it.
"""


def remote_memory(
    table: OperationTable[F],
    base: object = RemoteMemory,
    *,
    settle: Mapping[str, Settle] | None = None,
    **composed: Callable[..., Any],
) -> Callable[[MemoryRequests], F]:
    """Return a class with the methods of the façade of *table*, below *base*.

    *settle* resolves lost responses, by the name of the method. *composed* are functions of the
    remote memory, for methods that are no single operation. Methods of the façade that only call
    others are among them as they are.
    """
    sent = {each.act: (each, table.layout(each)) for each in table.operations}
    settles = settle or {}
    methods: dict[str, Any] = {act: _method(table.facade, act, settles.get(act)) for act in sent}
    for name, function in composed.items():
        own = getattr(table.facade, name)
        methods[name] = own if function is own else update_wrapper(function, own)
    above = cast("type[RemoteMemory]", base)
    methods["sent"] = {**above.sent, **sent}
    return cast("Any", type(f"Remote{table.facade.__name__}", (above,), methods))


def _method(facade: type[object], act: str, settle: Settle | None) -> Callable[..., Any]:
    def call(self: RemoteMemory, *args: Any, **kwargs: Any) -> Any:
        arguments = arguments_of(self, act, *args, **kwargs)
        try:
            return perform(self, act, arguments)
        except Unavailable as unknown:
            if settle is None or unknown.written is not None or unknown.reason != "lost":
                raise
            try:
                return settle(self, arguments)
            except Unavailable:
                raise unknown from None

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
        body = {operation.wire(n): each for n, each in given.items() if operation.is_sent(n)}
    requests = replace(requests, segments={**(body or {}), **requests.segments, **segments})
    if operation.paged:
        return page_of(requests, operation.path, query, operation.result)
    try:
        if operation.method == "GET":
            waiting, most = operation.waits
            waits = most if query.get(waiting) else 0.0
            answer = requests.read(operation.path, query, waits=waits)
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
    listed = decoded(_listed, requests.read(path, query))
    return Page(
        [decoded(form.decode, each) for each in listed.data],
        listed.next_page,
        prev_page=listed.prev_page,
        erased=listed.erased,
        more=lambda cursor: page_of(requests, path, {**query, "page": cursor}, form),
    )


class _Listed(msgspec.Struct, frozen=True):
    data: list[JSONObject]
    next_page: str | None = None
    prev_page: str | None = None
    erased: int = 0


_listed = partial(msgspec.convert, type=_Listed)


def identity(client: WireClient) -> Identity:
    """Return the identity that the server assigns to the client's credential."""
    return decoded(partial(from_wire, Identity), client.read("/api/me"))
