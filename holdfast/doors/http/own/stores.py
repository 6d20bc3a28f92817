"""Our own routes of memory stores, beyond the contract of the official SDK."""

from holdfast.doors.http.call import Call, store_there, store_writable
from holdfast.doors.http.params import Body, integer, text
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json, of_record, of_records
from holdfast.ground.errors import NotFound
from holdfast.ground.ids import KINDS

STORE = "/api/memory_stores/{s}"


class RenameBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Old and new path of a memory or a directory."""

    old_path: str
    new_path: str


class DeleteUnder(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Path of a memory or a directory to delete."""

    path: str


async def at(call: Call) -> Response:
    """Retrieve the memory at a path."""
    path: str = call.query["path"]
    memory = await call.quick(lambda hf: hf.memory_stores.memories.at(call["s"], path))
    if memory is None:
        raise NotFound(KINDS["mem"], path, next="Check the path, or list the memories.")
    return of_record(memory)


async def search(call: Call) -> Response:
    """Find memories by their words."""
    query = call.query
    return await call.slow(
        lambda hf: of_records(hf.memory_stores.memories.search(call["s"], **query))
    )


async def diff(call: Call) -> Response:
    """Compare two versions."""
    query = call.query
    text = await call.slow(
        lambda hf: hf.memory_stores.memory_versions.diff(
            query["from"], query["to"], memory_store_id=call["s"]
        )
    )
    fields = {"type": "memory_diff", "from": query["from"], "to": query["to"], "diff": text}
    return of_json(fields)


async def restore(call: Call) -> Response:
    """Restore the content of a version."""
    requested_at = call.house.clock.now()
    memory = await call.write(
        lambda hf: hf.memory_stores.memory_versions.restore(call["v"], memory_store_id=call["s"])
    )
    if memory.updated_at < requested_at:
        call.house.metrics.unchanged()
    return of_record(memory)


async def rename(call: Call) -> Response:
    """Move a memory, or all below a directory."""
    body = call.body(RenameBody)
    return of_records(
        await call.write(
            lambda hf: hf.memory_stores.memories.rename(call["s"], body.old_path, body.new_path)
        )
    )


async def delete_under(call: Call) -> Response:
    """Delete a memory, or all below a directory."""
    body = call.body(DeleteUnder)
    deleted = await call.write(
        lambda hf: hf.memory_stores.memories.delete_under(call["s"], body.path)
    )
    return of_json({"deleted": deleted})


ROUTES = (
    HttpRoute(
        method="GET",
        path=f"{STORE}/at",
        needs="read",
        answer=at,
        query=(text("path", required=True, nul=True),),
        session="store",
        behind=store_there,
        summary="Retrieve the memory at a path.",
    ),
    HttpRoute(
        method="GET",
        path=f"{STORE}/search",
        needs="read",
        answer=search,
        query=(
            text("q", "query", required=True, nul=True),
            integer("limit"),
            text("path_prefix"),
        ),
        session="store",
        behind=store_there,
        summary="Find memories by the words of their paths and contents.",
    ),
    HttpRoute(
        method="GET",
        path=f"{STORE}/diff",
        needs="read",
        answer=diff,
        query=(text("from", required=True), text("to", required=True)),
        session="store",
        behind=store_there,
        summary="Compare two versions as a unified diff.",
    ),
    HttpRoute(
        method="POST",
        path=f"{STORE}/memory_versions/{{v}}/restore",
        needs="write",
        answer=restore,
        session="store",
        behind=store_writable,
        summary="Make a version's content the memory's again.",
    ),
    HttpRoute(
        method="POST",
        path=f"{STORE}/rename",
        needs="write",
        answer=rename,
        body=RenameBody,
        session="store",
        behind=store_writable,
        summary="Move a memory, or everything below a directory, at once.",
    ),
    HttpRoute(
        method="POST",
        path=f"{STORE}/delete_under",
        needs="write",
        answer=delete_under,
        body=DeleteUnder,
        session="store",
        behind=store_writable,
        summary="Delete a memory, or everything below a directory, at once.",
    ),
)
