"""The contract's routes for the versions of a store's memories."""

from holdfast.doors.http.call import Call, store_there, version_there
from holdfast.doors.http.compat.stores import STORE
from holdfast.doors.http.params import PAGE, VIEW, instants, one_of, text
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_page, of_record

VERSIONS = f"{STORE}/memory_versions"
VERSION = f"{STORE}/memory_versions/{{v}}"


async def list_versions(call: Call) -> Response:
    """List versions."""
    query = call.query
    return await call.slow(
        lambda hf: of_page(hf.memory_stores.memory_versions.list(call["s"], **query))
    )


async def retrieve_version(call: Call) -> Response:
    """Tell of one version."""
    query = call.query
    return of_record(
        await call.quick(
            lambda hf: hf.memory_stores.memory_versions.retrieve(
                call["v"], memory_store_id=call["s"], **query
            )
        )
    )


async def redact_version(call: Call) -> Response:
    """Clear a version for good, with the scrub that follows."""
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
