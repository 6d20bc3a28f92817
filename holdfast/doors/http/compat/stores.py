"""The contract's routes for stores themselves."""

from msgspec import UNSET, UnsetType

from holdfast.doors.http.call import Call, store_there
from holdfast.doors.http.params import PAGE, Body, flag, instants
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_page, of_record

STORES = "/v1/memory_stores"
STORE = "/v1/memory_stores/{s}"


class CreateStore(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes a store."""

    name: str
    description: str | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType | None = UNSET


class UpdateStore(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What changes a store; null leaves a field as it is, and takes a pair out of metadata."""

    name: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET


async def create_store(call: Call) -> Response:
    """Make a store."""
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
    """Tell of one store."""
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
