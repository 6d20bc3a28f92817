"""Our own routes of memory stores: settings, and what a mount needs.

They go beyond the contract of the official SDK.
"""

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.doors.http.call import Call, context_of, store_there, store_writable
from holdfast.doors.http.params import Body, integer, number, text
from holdfast.doors.http.request import MIB, HttpRoute
from holdfast.doors.http.response import Response, encodable, of_json, of_record, of_records
from holdfast.ground.errors import NotFound
from holdfast.ground.ids import KINDS
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.changes import Awaited
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import Applied, record_to_wire

STORE = "/api/memory_stores/{s}"
SETTINGS = "/api/settings/memory_stores"


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
    requested_at = call.state.clock.now()
    memory = await call.write(
        lambda hf: hf.memory_stores.memory_versions.restore(call["v"], memory_store_id=call["s"])
    )
    if memory.updated_at < requested_at:
        call.state.metrics.unchanged()
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


class ChangeSettings(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings to change; what is left out stays."""

    memories_cap: int | UnsetType = UNSET


async def retrieve_settings(call: Call) -> Response:
    """Return the settings."""
    return of_record(await call.quick(lambda hf: hf.memory_stores.settings()))


async def change_settings(call: Call) -> Response:
    """Change the settings; they hold for the next write."""
    body = call.body(ChangeSettings)
    return of_record(
        await call.slow(lambda hf: hf.memory_stores.configure(memories_cap=body.memories_cap))
    )


class Apply(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Edits to apply together, and the id under which they are applied once."""

    edit_id: str
    edits: list[Edit]


async def snapshot(call: Call) -> Response:
    """Return a store with all its memories, at one moment."""

    def look(hf: Holdfast) -> Response:
        found = hf.memory_stores.memories.snapshot(call["s"])
        fields = record_to_wire(msgspec.structs.replace(found, memories=()))
        return of_json({**fields, "memories": [encodable(memory) for memory in found.memories]})

    return await call.slow(look)


async def changes(call: Call) -> Response:
    """Return the changes once there are any; a waiting request holds no thread."""
    query, state, context = call.query, call.state, context_of(call)
    awaited = Awaited(context, call["s"], query["after"], wait=query.get("wait", 0.0))

    def look() -> Response | None:
        found = awaited.look()
        return found and of_record(found)

    answer = await state.executor.slow(look)
    if answer is not None:
        return answer
    async with state.notifier.waiting(context.workspace, call["s"]) as waiting:
        while (answer := await state.executor.slow(look)) is None:
            await waiting.wait(awaited.left)
            if state.stopping.is_set():
                awaited.hurry()
    return answer


async def apply(call: Call) -> Response:
    """Apply edits together, and once."""

    def act(hf: Holdfast) -> list[Applied]:
        body = call.body(Apply)
        return hf.memory_stores.memories.apply(call["s"], body.edits, edit_id=body.edit_id)

    applied = await call.write(act)
    if not any(each.changed for each in applied):
        call.state.metrics.unchanged()
    return of_records(applied)


ROUTES = (
    HttpRoute(
        method="GET",
        path=SETTINGS,
        needs="read",
        answer=retrieve_settings,
        summary="Retrieve the settings of the workspace's stores.",
    ),
    HttpRoute(
        method="POST",
        path=SETTINGS,
        needs="admin",
        answer=change_settings,
        body=ChangeSettings,
        summary="Change the settings of the workspace's stores.",
    ),
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
    HttpRoute(
        method="GET",
        path=f"{STORE}/snapshot",
        needs="read",
        answer=snapshot,
        session="store",
        behind=store_there,
        summary="Retrieve all memories of a store at one moment.",
    ),
    HttpRoute(
        method="GET",
        path=f"{STORE}/changes",
        needs="read",
        answer=changes,
        query=(integer("after", required=True), number("wait")),
        session="store",
        behind=store_there,
        summary="Retrieve what changed after a number, with an optional wait.",
    ),
    HttpRoute(
        method="POST",
        path=f"{STORE}/apply",
        needs="write",
        answer=apply,
        body=Apply,
        session="store",
        behind=store_writable,
        limit=32 * MIB,
        summary="Do several edits at once, and only once.",
    ),
)
