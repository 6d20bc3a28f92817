"""A request as its handler sees it, handlers of operations, existence checks."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.doors.http.params import (
    USUAL,
    WIDE,
    B,
    BodyLimits,
    Name,
    flag,
    instant,
    integer,
    moment,
    number,
    one_of,
    read_body,
    read_json,
    several,
    text,
)
from holdfast.doors.http.request import Handler, HttpRoute, LibraryHandles, Visitor
from holdfast.doors.http.response import Response, encode_json, of_json
from holdfast.doors.http.state import ServerState
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.pages import Page
from holdfast.ground.scope import Scope
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.base import (
    Existence,
    Operation,
    OperationTable,
    ParamLayout,
    RawText,
)
from holdfast.memories.stores.rows import StoresContext, reach

T = TypeVar("T")

BULKY = 16_384
"""Bytes of a body above which its words are counted and hashed on a thread, not on the loop."""


class Call:
    """A request with its visitor, and the ways to run its work.

    `query` holds the values of the query by the library's names.
    """

    __slots__ = ("handles", "headers", "query", "raw", "segments", "state", "visitor")

    def __init__(
        self,
        state: ServerState,
        visitor: Visitor,
        handles: LibraryHandles,
        segments: Mapping[str, str],
        *,
        headers: Mapping[bytes, bytes],
        raw: bytes,
    ) -> None:
        self.state, self.visitor, self.handles = state, visitor, handles
        self.segments, self.headers, self.raw = segments, headers, raw
        self.query: dict[str, Any] = {}

    def __getitem__(self, name: str) -> str:
        """Return the value of the path parameter *name*."""
        return self.segments[name]

    def body(self, make: type[B], limits: BodyLimits | None = None) -> B:
        """Return the body as a *make*, within the usual limits or *limits*.

        Raise InvalidInput with the key that is wrong.
        """
        return read_body(self.raw, make, limits)

    async def quick(self, act: Callable[[Holdfast], T]) -> T:
        """Return *act*(handle), which reads one row or a few consecutive ones."""
        return await self.state.executor.quick(partial(act, self.handles.plain))

    async def slow(self, act: Callable[[Holdfast], T]) -> T:
        """Return *act*(handle), run on a thread: it may wait or compute for long."""
        return await self.state.executor.slow(partial(act, self.handles.plain))

    async def write(self, act: Callable[[Holdfast], T]) -> T:
        """Return *act*(handle), which ends with one write; await that without a thread.

        What it does before (validate its arguments, in PostgreSQL also read rows) may use one.
        """
        executor = self.state.executor
        run = executor.slow if len(self.raw) > BULKY else executor.quick
        return await cast("Awaitable[T]", await run(partial(act, self.handles.awaited)))


_UNIONS: Final = (Union, UnionType)
_BY_TYPE: Final[Mapping[Any, Callable[[str], Name]]] = {
    str: text,
    int: integer,
    float: number,
    bool: flag,
    datetime: instant,
    RawText: partial(text, nul=True),
}
_PAGING: Final = frozenset(("limit", "page"))
SHORT_PAGE: Final = 20
"""Most rows of a page that is read on the event loop; also the limit by default."""


Opener = Callable[[Call, Holdfast, Operation], Any]
"""Returns the memory of a request, whose method is called."""

Act = Callable[[Call, Any, dict[str, Any]], Any]
"""Calls a memory in place of the operation's method; the arguments have every field of the body."""


def table_routes(
    table: OperationTable[Any],
    opener: Opener | None = None,
    handlers: Mapping[str, Handler] | None = None,
    *,
    scope: tuple[Name, ...] = (),
    acts: Mapping[str, Act] | None = None,
    further: Mapping[str, tuple[Name, ...]] | None = None,
) -> Iterator[HttpRoute]:
    """Yield the routes of the operations of *table*.

    *opener* opens the memory; without one it is an attribute of the handle. *handlers* are
    handwritten, and *acts* call the memory, by the name of the operation. *scope* is the query that
    names the memory. *further* are parameters of a query that the library does not have.
    """
    for each in table.operations:
        act = (acts or {}).get(each.name)
        handler = OperationHandler(each, table.layout(each), opener, act)
        query = [*handler.query, *(further or {}).get(each.name, ())]
        if table.paging_last:
            query.sort(key=lambda name: name.wire in _PAGING)
        yield HttpRoute(
            each.method,
            each.path,
            each.scope,
            (handlers or {}).get(each.name, handler.answer),
            each.summary,
            body="any" if each.body else each.params,
            query=(*scope, *query),
            session=each.session,
            behind=each.existence and existence_check(each.existence, writes=each.method != "GET"),
            limit=table.limit if each.limit is None else each.limit,
            bound=each.bound or table.bound,
            durable=table.coded,
        )


class OperationHandler:
    """Decode the arguments of an operation, call the library, encode its result."""

    def __init__(
        self,
        operation: Operation,
        layout: ParamLayout,
        opener: Opener | None,
        act: Act | None = None,
    ) -> None:
        self._operation, self._layout, self._opener = operation, layout, opener
        self._limits = WIDE if operation.deep else USUAL
        self._method = attrgetter(operation.act if opener else operation.name)
        self._act = act
        self._fields = layout.fields if act else layout.body
        self._decoders = {
            name: special.decode for name, special in operation.special.items() if special.decode
        }
        self.query = tuple(_name(operation, each) for each in layout.query)
        self._keys = tuple(each.key for each in self.query)

    async def answer(self, call: Call) -> Response:
        """Return the response to *call*."""
        operation, arguments = self._operation, dict[str, Any]()

        def act(hf: Holdfast) -> Any:
            arguments.update(self._arguments(call))
            memory = self._opener(call, hf, operation) if self._opener else hf
            if self._act is not None:
                return self._act(call, memory, arguments)
            return self._method(memory)(**arguments)

        if operation.lane == "slow" or (operation.lane == "page" and not _is_short(call.query)):
            return await call.slow(lambda hf: response_of(operation, act(hf), arguments))
        if operation.lane != "write":
            return response_of(operation, await call.quick(act), arguments)
        requested_at = call.state.clock.now()
        result = await call.write(act)
        if operation.unchanged and operation.unchanged(result, requested_at):
            call.state.metrics.unchanged()
        return response_of(operation, result, arguments)

    def _arguments(self, call: Call) -> dict[str, Any]:
        operation, layout = self._operation, self._layout
        given: dict[str, Any] = {
            name: call.segments[wire] for name, wire in layout.segments.items()
        }
        given |= {key: call.query[key] for key in self._keys if key in call.query}
        if operation.body:
            given[operation.body] = self._whole_body(call)
        elif operation.params is not None:
            blank = operation.optional and not call.raw.strip()
            body = (
                operation.params() if blank else read_body(call.raw, operation.params, self._limits)
            )
            fields = {name: getattr(body, wire) for name, wire in self._fields.items()}
            given |= {name: each for name, each in fields.items() if each is not UNSET}
        for name, decode in self._decoders.items():
            if name in given:
                given[name] = decode(given[name])
        return given

    def _whole_body(self, call: Call) -> dict[str, Any]:
        body = read_json(call.raw, self._limits)
        for wire in call.segments.keys() - self._layout.segments.values():
            if body.setdefault(wire, call[wire]) != call[wire]:
                raise InvalidInput(wire, "names another run than the path", given=body[wire])
        return body


def _is_short(query: Mapping[str, Any]) -> bool:
    """Return whether *query* requests a page of a few consecutive rows.

    Such a page costs less than a switch to a thread and back. With contents or many rows it would
    delay other requests, and with a depth it may search many directories.
    """
    return (
        query.get("view") != "full" and "depth" not in query and query.get("limit", 0) <= SHORT_PAGE
    )


def response_of(operation: Operation, result: Any, arguments: Mapping[str, Any]) -> Response:
    """Return *result* of *operation*, called with *arguments*, as a response."""
    encode = operation.result.encode
    if result is None and operation.missing is not None:
        kind, parameter, advice = operation.missing
        raise NotFound(kind, arguments[parameter], next=advice)
    if operation.paged:
        page = cast("Page[Any]", result)
        listed = {"data": [encode(each) for each in page.data], "next_page": page.next_page}
        listed |= {"erased": page.erased} if page.erased else {}
        return of_json({**listed, "prev_page": page.prev_page} if operation.both_ways else listed)
    status = operation.status if isinstance(operation.status, int) else operation.status(result)
    encoded = encode(result)
    if operation.echo:
        encoded = {**{operation.wire(each): arguments[each] for each in operation.echo}, **encoded}
    return Response(body=encode_json(encoded), status=status)


def _name(operation: Operation, parameter: inspect.Parameter) -> Name:
    """Return the parameter of a query that *parameter* is, by its type."""
    special, wire = operation.special.get(parameter.name), operation.wire(parameter.name)
    kind: Any = special.type if special and special.type else parameter.annotation
    kinds = set(get_args(kind) if get_origin(kind) in _UNIONS else (kind,)) - {NoneType}
    first = next(iter(kinds))
    if kinds == {datetime, timedelta}:
        name = moment(wire)
    elif get_origin(first) is Literal:
        name = one_of(wire, *get_args(first))
    elif get_origin(first) is Iterable:
        name = several(wire, parameter.name)
    else:
        name = _BY_TYPE[first](wire)
    required = parameter.default is inspect.Parameter.empty
    return replace(name, library=parameter.name, required=required)


_RETRIEVALS: Final[Mapping[Existence, Callable[[Holdfast, Call], object]]] = {
    "store": lambda hf, call: hf.memory_stores.retrieve(call["s"]),
    "memory": lambda hf, call: hf.memory_stores.memories.retrieve(
        call["m"], memory_store_id=call["s"], view="basic"
    ),
    "version": lambda hf, call: hf.memory_stores.memory_versions.retrieve(
        call["v"], memory_store_id=call["s"], view="basic"
    ),
    "session": lambda hf, call: hf.sessions.retrieve(call["id"]),
    "agent": lambda hf, call: hf.agents.retrieve(call["id"]),
    "environment": lambda hf, call: hf.environments.retrieve(call["id"]),
}


def existence_check(kind: Existence, *, writes: bool) -> Callable[[Call], Awaitable[object]]:
    """Return the check that the object of *kind* exists and is accessible.

    If the request *writes*, it raises NotPermitted for a store attached `read_only`.
    """

    def look(call: Call, hf: Holdfast) -> None:
        if writes and call.visitor.session_id is not None:
            context = context_of(call)
            reach(context, context.engine, call["s"], write=True)
        _RETRIEVALS[kind](hf, call)

    return lambda call: call.quick(partial(look, call))


def context_of(call: Call) -> StoresContext:
    """Return the context of *call* for memory stores."""
    state, visitor = call.state, call.visitor
    return StoresContext(
        engine=state.hf.engine.scoped(Scope(workspace=visitor.workspace)),
        workspace=visitor.workspace,
        actor=visitor.actor,
        clock=state.clock,
        ids=state.ids,
        session_id=visitor.session_id,
    )
