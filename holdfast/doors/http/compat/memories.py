"""The contract's routes for the memories of a store."""

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
)
from holdfast.doors.http.compat.stores import STORE
from holdfast.doors.http.params import PAGE, VIEW, Body, fixed, integer, text
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_page, of_record

MEMORIES = f"{STORE}/memories"
MEMORY = f"{STORE}/memories/{{m}}"

SHORT_PAGE = 20
"""Rows of a page that is read on the event loop; also what comes when no limit is given."""


class CreateMemory(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes a memory."""

    path: str
    content: str | None


class UpdateMemory(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What changes a memory, and the content that must still be there."""

    content: str | UnsetType | None = UNSET
    path: str | UnsetType | None = UNSET
    precondition: dict[str, str] | UnsetType | None = UNSET


async def create_memory(call: Call) -> Response:
    """Write a new memory."""
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
    lane = call.quick if _is_short(query) else call.slow
    return await lane(lambda hf: of_page(hf.memory_stores.memories.list(call["s"], **query)))


def _is_short(query: Mapping[str, Any]) -> bool:
    """Return whether the page that *query* asks for is a few rows that follow one another.

    Such a page costs less than the way to a thread and back. With contents or many rows it would
    keep other requests waiting, and with a depth it may look below many directories.
    """
    return (
        query.get("view") != "full" and "depth" not in query and query.get("limit", 0) <= SHORT_PAGE
    )


async def retrieve_memory(call: Call) -> Response:
    """Tell of one memory."""
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
    body, query, asked_at = call.body(UpdateMemory), call.query, call.house.clock.now()
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
    if memory.updated_at < asked_at:
        call.house.metrics.unchanged()
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


# The oldest clients can ask for an order. There is one, that of the paths.
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
