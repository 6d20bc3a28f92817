"""The contract's routes for stores themselves."""

from msgspec import UNSET, UnsetType

from holdfast.doors.http.answers import Answer, of_page, of_record
from holdfast.doors.http.bodies import Body
from holdfast.doors.http.call import Call
from holdfast.doors.http.query import PAGE, flag, instants
from holdfast.doors.http.routes import Route
from holdfast.doors.http.there import store_there

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


async def create(call: Call) -> Answer:
    """Make a store."""
    body = call.body(CreateStore)
    return of_record(
        await call.write(
            lambda hf: hf.memory_stores.create(
                name=body.name, description=body.description, metadata=body.metadata
            )
        )
    )


async def list_all(call: Call) -> Answer:
    """List the stores."""
    query = call.query
    return await call.slow(lambda hf: of_page(hf.memory_stores.list(**query)))


async def retrieve(call: Call) -> Answer:
    """Tell of one store."""
    return of_record(await call.quick(lambda hf: hf.memory_stores.retrieve(call["s"])))


async def update(call: Call) -> Answer:
    """Change a store."""
    body = call.body(UpdateStore)
    return of_record(
        await call.write(
            lambda hf: hf.memory_stores.update(
                call["s"], name=body.name, description=body.description, metadata=body.metadata
            )
        )
    )


async def archive(call: Call) -> Answer:
    """Make a store read-only."""
    return of_record(await call.write(lambda hf: hf.memory_stores.archive(call["s"])))


async def delete(call: Call) -> Answer:
    """Delete a store, with the scrub that follows."""
    return of_record(await call.slow(lambda hf: hf.memory_stores.delete(call["s"])))


ROUTES = (
    Route(
        method="POST",
        path=STORES,
        needs="write",
        answer=create,
        body=CreateStore,
        summary="Create a memory store.",
    ),
    Route(
        method="GET",
        path=STORES,
        needs="read",
        answer=list_all,
        query=(*PAGE, flag("include_archived"), *instants("created_at", "gte", "lte")),
        summary="List memory stores, newest first.",
    ),
    Route(
        method="GET",
        path=STORE,
        needs="read",
        answer=retrieve,
        session="store",
        summary="Retrieve a memory store.",
    ),
    Route(
        method="POST",
        path=STORE,
        needs="write",
        answer=update,
        body=UpdateStore,
        behind=store_there,
        summary="Update a memory store's name, description or metadata.",
    ),
    Route(
        method="POST",
        path=f"{STORE}/archive",
        needs="write",
        answer=archive,
        summary="Make a memory store read-only for good.",
    ),
    Route(
        method="DELETE",
        path=STORE,
        needs="admin",
        answer=delete,
        summary="Delete a memory store with all that is in it.",
    ),
)
