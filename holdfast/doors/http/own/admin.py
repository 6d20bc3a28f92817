"""The routes, as OpenAPI tells them: made from the table that answers them."""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from holdfast.doors.http.request import HttpRoute
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
    "run_id": "The id of a run.",
    "run": "The id of a run.",
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
        "/api/network_runs/{id}/events": "text/event-stream",
        "/api/longterm/{user}/export": _LINES,
    }
    if route.method != "GET":
        return {"application/json": {}}
    return {kinds.get(route.path, "application/json"): {}}
