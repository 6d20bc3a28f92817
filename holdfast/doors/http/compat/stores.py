"""Routes below `/v1/memory_stores`."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.doors.http.call import (
    Call,
    memory_there,
    memory_writable,
    store_there,
    store_writable,
    version_there,
)
from holdfast.doors.http.params import (
    PAGE,
    VIEW,
    Body,
    fixed,
    flag,
    instants,
    integer,
    one_of,
    text,
)
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_page, of_record

STORES = "/v1/memory_stores"
STORE = "/v1/memory_stores/{s}"


class CreateStore(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a new store."""

    name: str
    description: str | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType | None = UNSET


class UpdateStore(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a store: null leaves a field, and removes a pair of metadata."""

    name: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET


async def create_store(call: Call) -> Response:
    """Create a store."""
    body = call.body(CreateStore)
    return of_record(
        await call.write(
            lambda hf: hf.memory_stores.create(
                name=body.name, description=body.description, metadata=body.metadata
            )
        )
    )


async def list_stores(call: Call) -> Response:
    """List the stores."""
    query = call.query
    return await call.slow(lambda hf: of_page(hf.memory_stores.list(**query)))


async def retrieve_store(call: Call) -> Response:
    """Retrieve one store."""
    return of_record(await call.quick(lambda hf: hf.memory_stores.retrieve(call["s"])))


async def update_store(call: Call) -> Response:
    """Change a store."""
    body = call.body(UpdateStore)
    return of_record(
        await call.write(
            lambda hf: hf.memory_stores.update(
                call["s"], name=body.name, description=body.description, metadata=body.metadata
            )
        )
    )


async def archive_store(call: Call) -> Response:
    """Make a store read-only."""
    return of_record(await call.write(lambda hf: hf.memory_stores.archive(call["s"])))


async def delete_store(call: Call) -> Response:
    """Delete a store, with the scrub that follows."""
    return of_record(await call.slow(lambda hf: hf.memory_stores.delete(call["s"])))


ROUTES = (
    HttpRoute(
        method="POST",
        path=STORES,
        needs="write",
        answer=create_store,
        body=CreateStore,
        summary="Create a memory store.",
    ),
    HttpRoute(
        method="GET",
        path=STORES,
        needs="read",
        answer=list_stores,
        query=(*PAGE, flag("include_archived"), *instants("created_at", "gte", "lte")),
        summary="List memory stores, newest first.",
    ),
    HttpRoute(
        method="GET",
        path=STORE,
        needs="read",
        answer=retrieve_store,
        session="store",
        summary="Retrieve a memory store.",
    ),
    HttpRoute(
        method="POST",
        path=STORE,
        needs="write",
        answer=update_store,
        body=UpdateStore,
        behind=store_there,
        summary="Update a memory store's name, description or metadata.",
    ),
    HttpRoute(
        method="POST",
        path=f"{STORE}/archive",
        needs="write",
        answer=archive_store,
        summary="Make a memory store read-only for good.",
    ),
    HttpRoute(
        method="DELETE",
        path=STORE,
        needs="admin",
        answer=delete_store,
        summary="Delete a memory store with all that is in it.",
    ),
)


MEMORIES = f"{STORE}/memories"
MEMORY = f"{STORE}/memories/{{m}}"

SHORT_PAGE = 20
"""Most rows of a page that is read on the event loop; also the limit by default."""


class CreateMemory(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a new memory."""

    path: str
    content: str | None


class UpdateMemory(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a memory; the precondition is about its current content."""

    content: str | UnsetType | None = UNSET
    path: str | UnsetType | None = UNSET
    precondition: dict[str, str] | UnsetType | None = UNSET


async def create_memory(call: Call) -> Response:
    """Create a memory."""
    body, query = call.body(CreateMemory), call.query
    return of_record(
        await call.write(
            lambda hf: hf.memory_stores.memories.create(
                call["s"], path=body.path, content=body.content, **query
            )
        )
    )


async def list_memories(call: Call) -> Response:
    """List memories, and prefixes among them."""
    query = call.query
    run = call.quick if _is_short(query) else call.slow
    return await run(lambda hf: of_page(hf.memory_stores.memories.list(call["s"], **query)))


def _is_short(query: Mapping[str, Any]) -> bool:
    """Return whether *query* requests a page of a few consecutive rows.

    Such a page costs less than a switch to a thread and back. With contents or many rows it would
    delay other requests, and with a depth it may search many directories.
    """
    return (
        query.get("view") != "full" and "depth" not in query and query.get("limit", 0) <= SHORT_PAGE
    )


async def retrieve_memory(call: Call) -> Response:
    """Retrieve one memory."""
    query = call.query
    return of_record(
        await call.quick(
            lambda hf: hf.memory_stores.memories.retrieve(
                call["m"], memory_store_id=call["s"], **query
            )
        )
    )


async def update_memory(call: Call) -> Response:
    """Change content, path or both."""
    body, query, requested_at = call.body(UpdateMemory), call.query, call.state.clock.now()
    memory = await call.write(
        lambda hf: hf.memory_stores.memories.update(
            call["m"],
            memory_store_id=call["s"],
            content=body.content,
            path=body.path,
            precondition=body.precondition,
            **query,
        )
    )
    if memory.updated_at < requested_at:
        call.state.metrics.unchanged()
    return of_record(memory)


async def delete_memory(call: Call) -> Response:
    """Delete a memory; its versions stay."""
    query = call.query
    return of_record(
        await call.write(
            lambda hf: hf.memory_stores.memories.delete(
                call["m"], memory_store_id=call["s"], **query
            )
        )
    )


# The oldest clients may send an order. There is one, by path.
_ORDER = (fixed("order_by", "path"), fixed("order", "asc"))

_UPDATE = HttpRoute(
    method="POST",
    path=MEMORY,
    needs="write",
    answer=update_memory,
    body=UpdateMemory,
    query=(VIEW,),
    session="store",
    behind=memory_writable,
    summary="Update a memory's content, path or both.",
)

MEMORY_ROUTES = (
    HttpRoute(
        method="POST",
        path=MEMORIES,
        needs="write",
        answer=create_memory,
        body=CreateMemory,
        query=(VIEW,),
        session="store",
        behind=store_writable,
        summary="Create a memory at a path that is free.",
    ),
    HttpRoute(
        method="GET",
        path=MEMORIES,
        needs="read",
        answer=list_memories,
        query=(text("path_prefix"), integer("depth"), *PAGE, VIEW, *_ORDER),
        session="store",
        behind=store_there,
        summary="List memories by path.",
    ),
    HttpRoute(
        method="GET",
        path=MEMORY,
        needs="read",
        answer=retrieve_memory,
        query=(VIEW,),
        session="store",
        behind=memory_there,
        summary="Retrieve a memory.",
    ),
    _UPDATE,
    msgspec.structs.replace(_UPDATE, method="PATCH"),
    HttpRoute(
        method="DELETE",
        path=MEMORY,
        needs="write",
        answer=delete_memory,
        query=(text("expected_content_sha256"),),
        session="store",
        behind=memory_writable,
        summary="Delete a memory; its versions stay.",
    ),
)


VERSIONS = f"{STORE}/memory_versions"
VERSION = f"{STORE}/memory_versions/{{v}}"


async def list_versions(call: Call) -> Response:
    """List versions."""
    query = call.query
    return await call.slow(
        lambda hf: of_page(hf.memory_stores.memory_versions.list(call["s"], **query))
    )


async def retrieve_version(call: Call) -> Response:
    """Retrieve one version."""
    query = call.query
    return of_record(
        await call.quick(
            lambda hf: hf.memory_stores.memory_versions.retrieve(
                call["v"], memory_store_id=call["s"], **query
            )
        )
    )


async def redact_version(call: Call) -> Response:
    """Redact a version, with the scrub that follows."""
    return of_record(
        await call.slow(
            lambda hf: hf.memory_stores.memory_versions.redact(call["v"], memory_store_id=call["s"])
        )
    )


VERSION_ROUTES = (
    HttpRoute(
        method="GET",
        path=VERSIONS,
        needs="read",
        answer=list_versions,
        query=(
            text("memory_id"),
            one_of("operation", "created", "modified", "deleted"),
            text("session_id"),
            text("api_key_id"),
            text("service_account_id"),
            *instants("created_at", "gte", "lte"),
            *PAGE,
            VIEW,
        ),
        session="store",
        behind=store_there,
        summary="List versions of memories, newest first.",
    ),
    HttpRoute(
        method="GET",
        path=VERSION,
        needs="read",
        answer=retrieve_version,
        query=(VIEW,),
        session="store",
        behind=version_there,
        summary="Retrieve a version.",
    ),
    HttpRoute(
        method="POST",
        path=f"{VERSION}/redact",
        needs="admin",
        answer=redact_version,
        summary="Clear a version's content, hash and path for good.",
    ),
)
