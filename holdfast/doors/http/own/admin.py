"""Routes for health, metrics, OpenAPI, a workspace as a whole, and forgetting."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from io import BytesIO
from typing import Any, Final

import msgspec

from holdfast.doors.http.auth import demand_scope
from holdfast.doors.http.call import Act, Call, table_routes
from holdfast.doors.http.own.longterm import demand_model
from holdfast.doors.http.params import flag, integer, several, text
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import TEXT, Response, of_json
from holdfast.ground.errors import InvalidInput, ScopeDenied, Unavailable
from holdfast.library.erasure import ForgetReport
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.base import MIB
from holdfast.library.operations.consolidations import CONSOLIDATIONS
from holdfast.library.operations.durable import FORGET
from holdfast.library.operations.erasures import ERASURES, SUBJECTS
from holdfast.library.operations.workspace import WORKSPACE
from holdfast.memories.stores.records import JSONObject

_REF = "#/components/schemas/{name}"
_LINES = "application/x-ndjson"
_PLACE = re.compile(r"\{(\w+)\}")
_PLACES = {
    "s": "The id of a memory store.",
    "m": "The id of a memory.",
    "v": "The id of a memory version.",
    "id": "The id of the object.",
    "rid": "The id of the attached store.",
    "tid": "The id of the session token.",
    "agent": "The name of an agent.",
    "user": "The id of a user.",
    "key": "The key of an entry.",
    "kind": "The program that a file comes from: mem0, langmem, letta, mcp-graph, chatgpt, claude.",
    "run_id": "The id of a run.",
    "run": "The id of a run.",
    "question": "The id of a question of a run.",
    "version": "The number of a version of a run, or newest.",
    "seq": "The number of a change.",
    "name": "The name of a network.",
}
_ERROR: JSONObject = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
        "request_id": {"type": "string"},
    },
}


def described(routes: Sequence[HttpRoute]) -> JSONObject:
    """Return the OpenAPI description of *routes*."""
    bodies = {each.body for each in routes if isinstance(each.body, type)}
    ordered = sorted(bodies, key=lambda body: body.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=_REF)
    paths: dict[str, JSONObject] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": version("holdfast")},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(route: HttpRoute) -> JSONObject:
    operation: JSONObject = {
        "operationId": _name(route),
        "summary": route.summary,
        "parameters": [*_places(route.path), *_names(route)],
        "responses": {
            "200": {"description": "Done.", "content": _content(route)},
            "default": {
                "description": "Refused, or failed.",
                "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}},
            },
        },
        "security": [] if route.needs == "nothing" else [{"key": []}, {"bearer": []}],
        "x-holdfast-scope": route.needs,
    }
    if route.body is not None:
        kind = _LINES if route.body == "lines" else "application/json"
        operation["requestBody"] = {"content": {kind: {"schema": _body(route.body)}}}
    return operation


def _name(route: HttpRoute) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join((route.method.lower(), *words))


def _places(path: str) -> Iterable[JSONObject]:
    return (
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PLACES[name],
            "schema": {"type": "string"},
        }
        for name in _PLACE.findall(path)
    )


def _names(route: HttpRoute) -> Iterable[JSONObject]:
    return (
        {"name": name.wire, "in": "query", "required": name.required, "schema": dict(name.schema)}
        for name in route.query
    )


def _body(body: Any) -> JSONObject:
    if isinstance(body, str):
        return {"type": "object" if body == "any" else "string"}
    return {"$ref": _REF.format(name=body.__name__)}


def _content(route: HttpRoute) -> JSONObject:
    kinds = {
        "/metrics": "text/plain",
        "/api/events": "text/event-stream",
        "/api/runs/{run}/events": "text/event-stream",
        "/api/longterm/{user}/export": _LINES,
    }
    if route.method != "GET":
        return {"application/json": {}}
    return {kinds.get(route.path, "application/json"): {}}


DESCRIPTION = "/openapi.json"


async def healthz(call: Call) -> Response:
    """Report that the process answers; the database is not used."""
    del call
    return of_json({"status": "ok"})


async def readyz(call: Call) -> Response:
    """Report that a request would be served.

    Raise Unavailable if the server is stopping, or a row cannot be read.
    """
    if call.state.stopping.is_set():
        raise Unavailable(
            "The server is stopping.", reason="closed", next="Retry on another server."
        )
    await call.slow(_demand_ready)
    return of_json({"status": "ready"})


def _demand_ready(hf: Holdfast) -> None:
    hf.memory_stores.settings()
    status = hf.engine.status()
    if not status.ready:
        raise Unavailable(
            f"The database is not ready: {status.reason}.",
            reason="io",
            next="Run holdfast doctor where the server runs.",
        )


async def metrics(call: Call) -> Response:
    """Return the metrics as text for Prometheus."""
    gauges = await call.slow(lambda _: call.state.gauges())
    return Response(body=call.state.metrics.text(gauges).encode(), type=TEXT)


async def root(call: Call) -> Response:
    """Return the server's name, and where its routes are described."""
    del call
    return of_json({"name": "holdfast", "version": version("holdfast"), "openapi": DESCRIPTION})


async def openapi(call: Call) -> Response:
    """Return the OpenAPI description of every route."""
    return of_json(described(call.state.table.routes))


def forget(_: Call, hf: Holdfast, given: dict[str, Any]) -> ForgetReport:
    """Forget everything of an agent or of a user."""
    agent, user, options = given.pop("agent"), given.pop("user"), given
    if agent is not None and user is None:
        return hf.forget_agent(agent, **options)
    if user is not None and agent is None:
        return hf.forget_user(user, **options)
    raise InvalidInput("agent", "or user is required, and not both")


IMPORT_LIMIT: Final = 32 * MIB
_IMPORT_QUERY: Final = (
    *map(text, ("user", "agent", "store", "namespace", "workspace_id")),
    several("human", "human"),
    flag("dry_run"),
    flag("mine"),
    integer("limit"),
    flag("enabled"),
)


async def import_file(call: Call) -> Response:
    """Import the body, a file that another program exported.

    A key that is bound to a user imports into this user's memory alone, any other key needs the
    scope `admin`.
    """
    visitor = call.visitor
    given: dict[str, Any] = {"enabled": None, **call.query}
    if visitor.user is None:
        demand_scope(visitor, "admin")
    elif given.setdefault("user", visitor.user) != visitor.user or "store" in given:
        raise ScopeDenied(
            "This key is bound to one user's memory.",
            needed="a key of scope admin that is not bound",
            next="Leave out store, and any other user.",
        )

    def act(hf: Holdfast) -> Response:
        report = hf.import_(call["kind"], [BytesIO(call.raw)], **given)
        return of_json(msgspec.to_builtins(report))

    return await call.slow(act)


def consolidate(call: Call, hf: Holdfast, given: dict[str, Any], *, act: str) -> object:
    """Call *act* of consolidations, with a model that requests may name."""
    model = given.get("model")
    if isinstance(model, str):
        demand_model(call, "model", model)
    return getattr(hf.consolidations, act)(**given)


ACTS: Final[Mapping[str, Act]] = {FORGET.name: forget}
_MODELLED: Final[Mapping[str, Act]] = {
    f"consolidations.{act}": partial(consolidate, act=act) for act in ("create", "resume", "policy")
}

ROUTES = (
    *table_routes(WORKSPACE),
    *table_routes(CONSOLIDATIONS, acts=_MODELLED),
    *table_routes(ERASURES),
    *table_routes(SUBJECTS),
    HttpRoute(
        "POST",
        "/api/import/{kind}",
        "write",
        import_file,
        "Import a file that another program exported.",
        body="lines",
        query=_IMPORT_QUERY,
        limit=IMPORT_LIMIT,
        bound="named",
    ),
    HttpRoute("GET", "/metrics", "read", metrics, "Numbers for Prometheus."),
    HttpRoute(
        "GET", "/", "nothing", root, "The server's name, and where its routes are described."
    ),
    HttpRoute("GET", DESCRIPTION, "nothing", openapi, "This description."),
    HttpRoute("GET", "/healthz", "nothing", healthz, "Whether the process answers."),
    HttpRoute("GET", "/readyz", "nothing", readyz, "Whether a request would be served."),
)
