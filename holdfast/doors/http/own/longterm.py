"""Routes of one user's long-term memory: recall, items and turns.

What may be large is read and written on a thread, not on the event loop.
"""

from collections.abc import Mapping
from functools import partial
from math import isfinite
from time import monotonic
from types import NoneType
from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import FieldInfo, asdict, fields, replace

from holdfast.doors.http.call import Act, Call
from holdfast.doors.http.params import (
    PAGE,
    Body,
    Name,
    flag,
    instant,
    read_body,
    read_lines,
    several,
    text,
)
from holdfast.doors.http.request import Handler, HttpRoute, Method, Needs
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput, LongTermOff, NotFound, NotPermitted, shortened
from holdfast.library.holdfast import Holdfast
from holdfast.library.longterm import configured_embedder, extractor_variable
from holdfast.library.operations.base import Operation
from holdfast.library.operations.longterm import (
    LIMIT,
    RECALL,
    REMEMBER,
    USER,
    Weighing,
    session_of,
)
from holdfast.library.spans import traced_as
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.records import (
    Flushed,
    ForgetResult,
    Item,
    LongTermOptions,
    LongTermStatus,
    Remembered,
    Turn,
    to_wire,
)
from holdfast.memories.longterm.validation import is_id
from holdfast.memories.longterm.vectors.embedder import checked_model

NO_MODEL = "none"
"""As an embedder, it turns off the comparison by meaning; as an extractor, mining."""


def _wire_type(option: FieldInfo) -> Any:
    if option.name == "weights":
        return Weighing
    kinds = get_args(option.type)
    return kinds[0] if NoneType in kinds else option.type


LongTermBody = msgspec.defstruct(
    "LongTermBody",
    [(e.name, _wire_type(e), UNSET) for e in fields(LongTermOptions) if e.name != "credentials"],
    forbid_unknown_fields=True,
)
"""The options that differ from the defaults."""


def _options(_field: str, given: str) -> LongTermOptions:
    """Parse the library's options; raise InvalidInput for one out of range."""
    body = asdict(read_body(given.encode(), LongTermBody))
    options = {name: value for name, value in body.items() if value is not UNSET}
    if "weights" in options:
        options["weights"] = options["weights"].weights()
    return LongTermOptions(**options)


def _model(field: str, given: str) -> str:
    return given if given == NO_MODEL else checked_model(field, given)


_PLACE: Final = ("namespace", "workspace_id")
SCOPE: Final = (
    *map(text, _PLACE),
    flag("enabled"),
    Name("embedder", _model, {"type": "string"}),
    Name("extractor", _model, {"type": "string"}),
    Name("options", _options, {"type": "string", "contentMediaType": "application/json"}),
)
"""Parameters that name the collection, switch it on, and set its models and options."""


def _route(
    method: Method, below: str, needs: Needs, answer: Handler, summary: str, **more: Any
) -> HttpRoute:
    """Return a route of one user's memory; a key bound to that user may use it."""
    query: tuple[Name, ...] = (*SCOPE, *more.pop("query", ()))
    return HttpRoute(
        method,
        USER + below,
        needs,
        answer,
        summary,
        query=query,
        limit=LIMIT,
        bound="user",
        **more,
    )


def data_of(call: Call, hf: Holdfast) -> LongTermData:
    """Return the data that *call* is about; it is accessible even if memory is off."""
    place = {name: call.query[name] for name in _PLACE if name in call.query}
    return hf.longterm_data(call["user"], **place)


def memory_if_on(call: Call, hf: Holdfast) -> LongTermMemory | None:
    """Return the memory that *call* is about, or None if it is off.

    The operator pays for the models: raise NotPermitted for one that the server neither allows nor
    is configured with.
    """
    given = {each.key: call.query[each.key] for each in SCOPE if each.key in call.query}
    embedder, extractor = given.get("embedder"), given.get("extractor")
    if embedder == NO_MODEL:
        given["embedder"] = False
    elif embedder not in (None, configured_embedder()):
        _demand_allowed(call, "embedder", embedder)
    if extractor is not None:
        demand_model(call, "extractor", extractor)
    return hf.longterm(call["user"], **given)


def demand_model(call: Call, field: str, model: str) -> None:
    """Raise NotPermitted unless requests may name *model* to read memories."""
    if model != NO_MODEL and checked_model(field, model) != extractor_variable():
        _demand_allowed(call, field, model)


def _demand_allowed(call: Call, field: str, model: str) -> None:
    """Raise NotPermitted unless requests may name *model*."""
    if model not in call.state.models:
        raise NotPermitted(
            f"Requests to this server may not name the model {shortened(model)}.",
            needed=f"--allow-model {shortened(model)}",
            next=f"Leave {field} out, or start the server with --allow-model.",
        )


def opened(call: Call, hf: Holdfast, operation: Operation) -> LongTermMemory:
    """Return the memory of *operation*; an item is changed even if memory is off.

    It is the user's own data.
    """
    if operation.name == "longterm.update":
        memory = memory_if_on(call, hf)
        if memory is None:
            data = data_of(call, hf)
            memory = traced_as(data, LongTermMemory(data.context))
        return memory
    return memory_of(call, hf)


def opened_data(call: Call, hf: Holdfast, _operation: Operation) -> LongTermData:
    """Return the data of *call*."""
    return data_of(call, hf)


def memory_of(call: Call, hf: Holdfast) -> LongTermMemory:
    """Return the memory that *call* is about; raise LongTermOff if it is off.

    The error says whether the request or the server switched it off.
    """
    memory = memory_if_on(call, hf)
    if memory is None:
        raise LongTermOff("request" if call.query.get("enabled") is False else "server")
    return memory


def of_record(record: Struct) -> Response:
    """Return *record* as a response."""
    return of_json(to_wire(record))


def recall(call: Call, memory: LongTermMemory, given: dict[str, Any]) -> object:
    """Recall what answers a query; a key that may only read records no access."""
    given["touch"] = given["touch"] and call.visitor.scope != "read"
    found = memory.recall(**given)
    return found, found[0].why["mode"] if found else memory.status().mode


def remember(_: Call, memory: LongTermMemory, given: dict[str, Any]) -> Remembered:
    """Remember one sentence."""
    origin, evidence, echo = (given.pop(name) for name in ("origin", "evidence", "echo"))
    if origin != "tool":
        return memory.remember(**given)
    session = session_of(given["text"], evidence, echo=echo)
    return memory.by_tool(session).remember(**given)


def configure(call: Call, data: LongTermData, given: dict[str, Any]) -> LongTermStatus:
    """Set the collection's own extractor, which the operator pays for."""
    extractor = given.get("extractor")
    if isinstance(extractor, str):
        demand_model(call, "extractor", extractor)
    return data.configure(**given)


ACTS: Final[Mapping[str, Act]] = {RECALL.name: recall, REMEMBER.name: remember}
DATA_ACTS: Final[Mapping[str, Act]] = {"longterm_data.configure": configure}


async def list_rows(call: Call, what: str) -> Response:
    """List items or turns, newest first."""
    filters = {name: value for name, value in call.query.items() if name in _FILTERS}
    if "kinds" in filters:
        # A query cannot hold an empty list: one empty name stands for it.
        filters["kinds"] = [each for each in filters["kinds"] if each]

    def look(hf: Holdfast) -> Response:
        page = data_of(call, hf).list(what, **filters)
        erased = {"erased": page.erased} if page.erased else {}
        rows = [to_wire(each) for each in page.data]
        return of_json({"data": rows, "next_page": page.next_page, **erased})

    return await call.slow(look)


async def retrieve(call: Call, kind: str) -> Response:
    """Retrieve an item or a turn."""
    id = call["id"]

    def look(hf: Holdfast) -> Item | Turn | None:
        data = data_of(call, hf)
        return data.get(id, at=call.query.get("at")) if is_id(kind, id) else None

    found = await call.quick(look)
    if found is None:
        raise NotFound(kind, id, next="Check the id, or list the items and turns.")
    return of_record(found)


async def forget(call: Call, kind: str) -> Response:
    """Forget an item or a turn."""
    id = call["id"]

    def act(hf: Holdfast) -> ForgetResult:
        data = data_of(call, hf)
        return data.forget(id) if is_id(kind, id) else ForgetResult()

    return of_record(await call.slow(act))


MOST_SECONDS: Final = 60.0
SECONDS: Final = 30.0
"""Time that a flush waits by default."""
_PIECE: Final = 1.0
"""Seconds of one wait, so that a server can stop between two."""


class Wait(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds to wait for the background work."""

    timeout: float | None = None


async def status(call: Call) -> Response:
    """Return the status of the collection, and whether memory is on."""

    def look(hf: Holdfast) -> Response:
        memory = memory_if_on(call, hf)
        found = (memory or data_of(call, hf)).status()
        return of_json({**to_wire(found), "enabled": memory is not None})

    return await call.slow(look)


async def flush(call: Call) -> Response:
    """Wait for the background work."""
    seconds = _seconds(call, SECONDS)
    memory = await call.slow(lambda hf: memory_of(call, hf))
    return of_record(await _flushed(call, memory, seconds))


async def retry(call: Call) -> Response:
    """Queue failed jobs again, and wait for them if a timeout is given."""
    seconds = _seconds(call, 0.0)
    memory = await call.slow(lambda hf: memory_of(call, hf))
    queued = await call.slow(lambda _: memory.retry())
    flushed = await _flushed(call, memory, seconds)
    return of_json({"queued": queued, **to_wire(flushed)})


async def export(call: Call) -> Response:
    """Export every turn and every item."""

    def look(hf: Holdfast) -> Response:
        lines = msgspec.json.Encoder().encode_lines(data_of(call, hf).export())
        return Response(body=lines, type=b"application/x-ndjson")

    return await call.slow(look)


async def take_in(call: Call) -> Response:
    """Import the lines of an export."""

    def act(hf: Holdfast) -> Response:
        memory = memory_of(call, hf)
        given = {each.key: call.query[each.key] for each in _INTAKE if each.key in call.query}
        return of_record(memory.import_(read_lines(call.raw), **given))

    return await call.slow(act)


async def _flushed(call: Call, memory: LongTermMemory, seconds: float) -> Flushed:
    """Wait at most *seconds*, on a thread that is reserved for waiting."""
    end = monotonic() + seconds
    results: tuple[Remembered, ...] = ()
    with call.state.count_live():
        while True:
            left = min(_PIECE, max(0.0, end - monotonic()))
            begun = monotonic()
            flushed = await call.state.executor.live(lambda left=left: memory.flush(left))
            results += flushed.results
            idle = monotonic() - begun < left
            over = monotonic() >= end or call.state.stopping.is_set()
            if flushed.done or idle or over:
                return replace(flushed, results=results)


def _seconds(call: Call, otherwise: float) -> float:
    given = call.body(Wait).timeout if call.raw.strip() else None
    if given is None:
        return otherwise
    if not (isfinite(given) and 0 <= given <= MOST_SECONDS):
        reason = f"must be 0 to {MOST_SECONDS:g} seconds"
        raise InvalidInput("timeout", reason, limit=int(MOST_SECONDS), given=given)
    return given


_INTAKE: Final = (flag("foreign"), flag("dry_run"), flag("mine"))
_LISTED: Final = (text("query"), flag("held"), instant("at"), instant("valid_at"), *PAGE)
_AT: Final = (instant("at"),)
_OF_ITEMS: Final = (several("kinds", "kinds"), flag("include_superseded"), *_LISTED)
_FILTERS: Final = frozenset(each.wire for each in _OF_ITEMS)
_FORGET_ITEM: Final = "Forget an item, with the turns it came from."
_FORGET_TURN: Final = "Forget a turn, with the items that came from it alone."
ITEMS, ITEM, TURNS, TURN = "/items", "/items/{id}", "/turns", "/turns/{id}"

ROUTES: Final = (
    _route("GET", "/status", "read", status, "Retrieve the status of the collection."),
    _route("POST", "/flush", "write", flush, "Wait for the background work.", body=Wait),
    _route("POST", "/retry", "write", retry, "Queue again what failed.", body=Wait),
    _route("GET", "/export", "read", export, "Give out every turn and item, a line each."),
    _route(
        "POST",
        "/import",
        "write",
        take_in,
        "Take in lines as they were given out.",
        body="lines",
        query=_INTAKE,
    ),
    _route(
        "GET",
        ITEMS,
        "read",
        partial(list_rows, what="items"),
        "List items, newest first.",
        query=_OF_ITEMS,
    ),
    _route("GET", ITEM, "read", partial(retrieve, kind="item"), "Retrieve an item.", query=_AT),
    _route("DELETE", ITEM, "write", partial(forget, kind="item"), _FORGET_ITEM),
    _route(
        "GET",
        TURNS,
        "read",
        partial(list_rows, what="turns"),
        "List turns, newest first.",
        query=_LISTED,
    ),
    _route("GET", TURN, "read", partial(retrieve, kind="turn"), "Retrieve a turn.", query=_AT),
    _route("DELETE", TURN, "write", partial(forget, kind="turn"), _FORGET_TURN),
)
