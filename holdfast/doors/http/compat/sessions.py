"""Routes of sessions, agents and environments below `/v1`."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, UnsetType

from holdfast.doors.http.call import Call, agent_there, environment_there, session_there
from holdfast.doors.http.params import (
    PAGE,
    Body,
    Name,
    flag,
    instants,
    integer,
    one_of,
    refused,
    several,
    text,
)
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json, of_page, of_record
from holdfast.ground.errors import InvalidInput, Unsupported
from holdfast.ground.pages import Key, Page, digest, read_cursor, write_cursor
from holdfast.ground.validation import check_limit
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Resource

SESSIONS = "/v1/sessions"
SESSION = "/v1/sessions/{id}"
RESOURCES = f"{SESSION}/resources"
RESOURCE = f"{SESSION}/resources/{{rid}}"

RESOURCES_MOST = 1_000


class CreateSession(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a new session; the library validates each of them."""

    agent: Any
    environment_id: str
    resources: Any = ()
    title: str | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType | None = UNSET
    initial_events: Any = UNSET
    budget: Any = UNSET
    vault_ids: Any = UNSET


class UpdateSession(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a session."""

    title: str | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET
    agent: Any = UNSET
    budget: Any = UNSET
    vault_ids: Any = UNSET


async def create(call: Call) -> Response:
    """Create a session."""
    body = call.body(CreateSession)
    return of_record(
        await call.write(
            lambda hf: hf.sessions.create(
                agent=body.agent,
                environment_id=body.environment_id,
                resources=body.resources,
                title=body.title,
                metadata=body.metadata,
                initial_events=body.initial_events,
                budget=body.budget,
                vault_ids=body.vault_ids,
                strict=call.state.strict,
            )
        )
    )


async def list_all(call: Call) -> Response:
    """List sessions."""
    query = call.query
    return await call.slow(lambda hf: of_page(hf.sessions.list(**query), both_ways=True))


async def retrieve(call: Call) -> Response:
    """Retrieve one session."""
    return of_record(await call.quick(lambda hf: hf.sessions.retrieve(call["id"])))


async def update(call: Call) -> Response:
    """Update a session."""
    body = call.body(UpdateSession)
    return of_record(
        await call.write(
            lambda hf: hf.sessions.update(
                call["id"],
                title=body.title,
                metadata=body.metadata,
                agent=body.agent,
                budget=body.budget,
                vault_ids=body.vault_ids,
            )
        )
    )


async def archive(call: Call) -> Response:
    """End a session."""
    return of_record(await call.write(lambda hf: hf.sessions.archive(call["id"])))


async def delete(call: Call) -> Response:
    """Delete a session, with the scrub that follows."""
    return of_record(await call.slow(lambda hf: hf.sessions.delete(call["id"])))


async def list_resources(call: Call) -> Response:
    """List what a session attaches: all of it, unless a limit is given."""
    query = call.query
    resources = await call.quick(lambda hf: hf.sessions.resources(call["id"]))
    return of_page(resource_page(resources, call["id"], **query))


def resource_page(
    resources: tuple[Resource, ...],
    session_id: str,
    limit: int | None = None,
    page: str | None = None,
) -> Page[Resource]:
    """Return the page of *resources* that comes after the cursor *page*."""
    most = check_limit(limit, most=RESOURCES_MOST, default=RESOURCES_MOST)
    mark = digest(session_id)
    start = 0 if page is None else _start(read_cursor("resources", mark, page)[0])
    end = start + most
    more = write_cursor("resources", mark, [end]) if end < len(resources) else None
    return Page(list(resources[start:end]), more)


def _start(key: Key) -> int:
    if len(key) != 1 or not isinstance(key[0], int) or key[0] < 0:
        raise InvalidInput("page", "is not a cursor of this list", next="Start again without it.")
    return key[0]


async def retrieve_resource(call: Call) -> Response:
    """Retrieve one attached store."""
    return of_record(await call.quick(lambda hf: hf.sessions.resource(call["id"], call["rid"])))


async def refuse_change(call: Call) -> Response:
    """Raise Unsupported: stores attach at the creation of a session only."""
    await session_there(call)
    raise Unsupported(
        "Changing what a session attaches",
        next="Memory stores attach at session creation only: create another session.",
    )


ROUTES = (
    HttpRoute(
        method="POST",
        path=SESSIONS,
        needs="write",
        answer=create,
        body=CreateSession,
        summary="Create a session that attaches memory stores.",
    ),
    HttpRoute(
        method="GET",
        path=SESSIONS,
        needs="read",
        answer=list_all,
        query=(
            text("agent_id"),
            integer("agent_version"),
            *instants("created_at", "gt", "gte", "lt", "lte"),
            flag("include_archived"),
            text("memory_store_id"),
            one_of("order", "asc", "desc"),
            several("statuses[]", "statuses"),
            refused("deployment_id", "is not kept here: no session has a deployment"),
            *PAGE,
        ),
        summary="List sessions.",
    ),
    HttpRoute(
        method="GET",
        path=SESSION,
        needs="read",
        answer=retrieve,
        session="own",
        summary="Retrieve a session.",
    ),
    HttpRoute(
        method="POST",
        path=SESSION,
        needs="write",
        answer=update,
        body=UpdateSession,
        behind=session_there,
        summary="Update a session's title or metadata.",
    ),
    HttpRoute(
        method="DELETE",
        path=SESSION,
        needs="write",
        answer=delete,
        summary="Delete a session and its tokens.",
    ),
    HttpRoute(
        method="POST",
        path=f"{SESSION}/archive",
        needs="write",
        answer=archive,
        summary="End a session and revoke its tokens.",
    ),
    HttpRoute(
        method="GET",
        path=RESOURCES,
        needs="read",
        answer=list_resources,
        query=PAGE,
        session="own",
        behind=session_there,
        summary="List what a session attaches.",
    ),
    HttpRoute(
        method="POST",
        path=RESOURCES,
        needs="write",
        answer=refuse_change,
        summary="Refused: stores attach at session creation only.",
    ),
    HttpRoute(
        method="GET",
        path=RESOURCE,
        needs="read",
        answer=retrieve_resource,
        session="own",
        summary="Retrieve an attached store.",
    ),
    HttpRoute(
        method="POST",
        path=RESOURCE,
        needs="write",
        answer=refuse_change,
        summary="Refused: stores attach at session creation only.",
    ),
    HttpRoute(
        method="DELETE",
        path=RESOURCE,
        needs="write",
        answer=refuse_change,
        summary="Refused: stores attach at session creation only.",
    ),
)


async def list_agent_versions(call: Call) -> Response:
    """List an agent's versions."""
    query = call.query
    return await call.slow(lambda hf: of_page(hf.agents.versions(call["id"], **query)))


Handler = Callable[[Call], Awaitable[Response]]


def _object_handlers(objects: Callable[[Holdfast], Any]) -> tuple[Handler, ...]:
    """Return the handlers of create, list, retrieve, update and archive.

    *objects* returns agents or environments, whose methods have the same names.
    """

    async def create(call: Call) -> Response:
        body = call.json()
        return of_json(await call.write(lambda hf: objects(hf).create(body)))

    async def list_all(call: Call) -> Response:
        query = call.query
        return await call.slow(lambda hf: of_page(objects(hf).list(**query)))

    async def retrieve(call: Call) -> Response:
        query = call.query
        return of_json(await call.quick(lambda hf: objects(hf).retrieve(call["id"], **query)))

    async def update(call: Call) -> Response:
        body = call.json()
        return of_json(await call.write(lambda hf: objects(hf).update(call["id"], body)))

    async def archive(call: Call) -> Response:
        return of_json(await call.write(lambda hf: objects(hf).archive(call["id"])))

    return create, list_all, retrieve, update, archive


def _object_routes(
    path: str,
    noun: str,
    objects: Callable[[Holdfast], Any],
    behind: Callable[[Call], Awaitable[None]],
    *,
    filters: tuple[Name, ...] = (),
    version: tuple[Name, ...] = (),
) -> tuple[HttpRoute, ...]:
    """Return the routes of agents or environments; only agents have versions."""
    create, list_all, retrieve, update, archive = _object_handlers(objects)
    one, as_of = f"{path}/{{id}}", ", as it is or as it was in a version" if version else ""
    return (
        HttpRoute(
            method="POST",
            path=path,
            needs="write",
            answer=create,
            body="any",
            summary=f"Create an {noun}{', version 1' if version else ''}.",
        ),
        HttpRoute(
            method="GET",
            path=path,
            needs="read",
            answer=list_all,
            query=(*PAGE, flag("include_archived"), *filters),
            summary=f"List {noun}s, newest first.",
        ),
        HttpRoute(
            method="GET",
            path=one,
            needs="read",
            answer=retrieve,
            query=version,
            behind=behind if version else None,
            summary=f"Retrieve an {noun}{as_of}.",
        ),
        HttpRoute(
            method="POST",
            path=one,
            needs="write",
            answer=update,
            body="any",
            behind=behind,
            summary=f"Update an {noun}{': its next version' if version else ''}.",
        ),
        HttpRoute(
            method="POST",
            path=f"{one}/archive",
            needs="write",
            answer=archive,
            summary=f"Archive an {noun}.",
        ),
    )


AGENT_ROUTES = (
    *_object_routes(
        "/v1/agents",
        "agent",
        lambda hf: hf.agents,
        agent_there,
        filters=instants("created_at", "gte", "lte"),
        version=(integer("version"),),
    ),
    HttpRoute(
        method="GET",
        path="/v1/agents/{id}/versions",
        needs="read",
        answer=list_agent_versions,
        query=PAGE,
        behind=agent_there,
        summary="List an agent's versions, newest first.",
    ),
    *_object_routes(
        "/v1/environments", "environment", lambda hf: hf.environments, environment_there
    ),
)
