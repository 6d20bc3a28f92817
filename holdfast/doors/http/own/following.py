"""Routes for mounts: snapshot, changes and idempotent edits of a store."""

import msgspec

from holdfast.doors.http.call import Call, caller_of, store_there, store_writable
from holdfast.doors.http.own.stores import STORE
from holdfast.doors.http.params import Body, integer, number
from holdfast.doors.http.request import MIB, HttpRoute
from holdfast.doors.http.response import Response, encodable, of_json, of_record, of_records
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.changes import Awaited
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import Applied, record_to_wire


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
    query, house, context = call.query, call.house, caller_of(call)
    awaited = Awaited(context, call["s"], query["after"], wait=query.get("wait", 0.0))

    def look() -> Response | None:
        found = awaited.look()
        return found and of_record(found)

    answer = await house.lanes.slow(look)
    if answer is not None:
        return answer
    async with house.bell.waiting(context.workspace, call["s"]) as waiting:
        while (answer := await house.lanes.slow(look)) is None:
            await waiting.ring(awaited.left)
            if house.stopping.is_set():
                awaited.hurry()
    return answer


async def apply(call: Call) -> Response:
    """Apply edits together, and once."""

    def act(hf: Holdfast) -> list[Applied]:
        body = call.body(Apply)
        return hf.memory_stores.memories.apply(call["s"], body.edits, edit_id=body.edit_id)

    applied = await call.write(act)
    if not any(each.changed for each in applied):
        call.house.metrics.unchanged()
    return of_records(applied)


ROUTES = (
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
