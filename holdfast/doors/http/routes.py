"""The table of routes: those of the operations, and the handwritten ones."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast.doors.http.call import Call
from holdfast.doors.http.compat import sessions, stores
from holdfast.doors.http.compat.sessions import AGENT_ROUTES
from holdfast.doors.http.compat.stores import MEMORY_ROUTES, VERSION_ROUTES
from holdfast.doors.http.own import (
    admin,
    durable,
    durable_runs,
    durable_upkeep,
    durable_workspace,
    files,
    following,
    identity,
    longterm,
    longterm_upkeep,
    networks,
    runs,
    settings,
    streams,
    tokens,
)
from holdfast.doors.http.own import stores as own_stores
from holdfast.doors.http.own.runs import REPORT_ROUTES
from holdfast.doors.http.own.streams import RUN_EVENT_ROUTES
from holdfast.doors.http.params import (
    USUAL,
    WIDE,
    Name,
    flag,
    integer,
    moment,
    number,
    one_of,
    several,
    text,
)
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.pages import Page
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations import threads
from holdfast.library.operations.base import Operation, OperationTable, ParamLayout

_UNIONS: Final = (Union, UnionType)
_BY_TYPE: Final[Mapping[Any, Callable[[str], Name]]] = {
    str: text,
    int: integer,
    float: number,
    bool: flag,
}


def routes(*, strict: bool) -> tuple[HttpRoute, ...]:
    """Return every route; a *strict* server knows no PATCH of the contract's."""
    every = (
        *stores.ROUTES,
        *MEMORY_ROUTES,
        *VERSION_ROUTES,
        *sessions.ROUTES,
        *AGENT_ROUTES,
        *identity.ROUTES,
        *tokens.TOKEN_ROUTES,
        *settings.ROUTES,
        *own_stores.ROUTES,
        *following.ROUTES,
        *durable_workspace.ROUTES,
        *durable.ROUTES,
        *durable_runs.ROUTES,
        *files.ROUTES,
        *durable_upkeep.ROUTES,
        *longterm_upkeep.ROUTES,
        *longterm.ROUTES,
        *_THREADS,
        *networks.ROUTES,
        *_NETWORK_RUNS,
        *runs.ROUTES,
        *REPORT_ROUTES,
        *RUN_EVENT_ROUTES,
        *streams.ROUTES,
        *admin.ROUTES,
    )
    return tuple(
        each for each in every if not (strict and each.contract and each.method == "PATCH")
    )


def _table_routes(table: OperationTable[Any]) -> Iterator[HttpRoute]:
    """Yield the routes of the operations of *table*."""
    for each in table.operations:
        handler = _Handler(each, table.layout(each))
        yield HttpRoute(
            method=each.method,
            path=each.path,
            needs=each.scope,
            answer=handler.answer,
            summary=each.summary,
            body="any" if each.body else each.params,
            query=handler.query,
            limit=table.limit if each.limit is None else each.limit,
        )


class _Handler:
    """Decode the arguments of an operation, call the library, encode its result."""

    def __init__(self, operation: Operation, layout: ParamLayout) -> None:
        self._operation, self._layout = operation, layout
        self._limits = WIDE if operation.deep else USUAL
        self._method = attrgetter(operation.name)
        self._decoders = {
            name: special.decode for name, special in operation.special.items() if special.decode
        }
        self.query = tuple(_name(operation, each) for each in layout.query)

    async def answer(self, call: Call) -> Response:
        """Return the response to *call*."""
        match self._operation.lane:
            case "slow":
                return await call.slow(lambda hf: self._response(call, self._result(call, hf)))
            case "write":
                return self._response(call, await call.write(lambda hf: self._result(call, hf)))
            case "quick":
                return self._response(call, await call.quick(lambda hf: self._result(call, hf)))

    def _result(self, call: Call, hf: Holdfast) -> Any:
        arguments = self._arguments(call)
        return self._method(hf)(**arguments)

    def _arguments(self, call: Call) -> dict[str, Any]:
        operation, layout = self._operation, self._layout
        given = {name: call[wire] for name, wire in layout.segments.items()} | call.query
        if operation.body:
            given[operation.body] = self._whole_body(call)
        elif operation.params is not None:
            body: Struct = call.body(operation.params, self._limits)
            fields = {name: getattr(body, wire) for name, wire in layout.body.items()}
            given |= {name: each for name, each in fields.items() if each is not UNSET}
        for name, decode in self._decoders.items():
            if name in given:
                given[name] = decode(given[name])
        return given

    def _whole_body(self, call: Call) -> dict[str, Any]:
        body = call.json(self._limits)
        for wire in call.segments.keys() - self._layout.segments.values():
            if body.setdefault(wire, call[wire]) != call[wire]:
                raise InvalidInput(wire, "names another run than the path", given=body[wire])
        return body

    def _response(self, call: Call, result: Any) -> Response:
        operation, encode = self._operation, self._operation.result.encode
        if result is None and operation.missing is not None:
            kind, advice = operation.missing
            *_, last = call.segments.values()
            raise NotFound(kind, last, next=advice)
        if operation.paged:
            page = cast("Page[Any]", result)
            return of_json({"data": [encode(e) for e in page.data], "next_page": page.next_page})
        echo = {name: call[operation.wire(name)] for name in operation.echo}
        return of_json({**echo, **encode(result)})


def _name(operation: Operation, parameter: inspect.Parameter) -> Name:
    """Return the parameter of a query that *parameter* is, by its type."""
    special, wire = operation.special.get(parameter.name), operation.wire(parameter.name)
    kind: Any = special.type if special and special.type else parameter.annotation
    if isinstance(kind, Name):
        return kind
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


_THREADS: Final = tuple(_table_routes(threads.THREADS))
_NETWORK_RUNS: Final = tuple(_table_routes(threads.NETWORK_RUNS))
