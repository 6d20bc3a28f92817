"""Routes of threads: messages to networks of agents and results, over many runs.

Bodies and pages may be large, so they are read and written on a worker thread, but for the row of
one thread.
"""

from typing import Any

from msgspec import Struct

from holdfast.doors.http.call import Call
from holdfast.doors.http.params import PAGE, WIDE, Body, one_of
from holdfast.doors.http.request import THREADS_LIMIT, HttpRoute
from holdfast.doors.http.response import Response, of_json
from holdfast.library.holdfast import Holdfast
from holdfast.memories.state.serialize import exported
from holdfast.memories.state.thread import Appended

THREADS = "/api/threads"
ONE = f"{THREADS}/{{id}}"


class PostThreadTurns(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Turns of a thread.

    Each is `{"kind": "user", "message": …}` or `{"kind": "result", "result": …}`.
    """

    turns: list[Any]


class _Deleted(Struct, frozen=True, kw_only=True):
    id: str
    deleted: bool


async def list_threads(call: Call) -> Response:
    """List threads, newest first."""
    query = call.query
    page = await call.slow(lambda hf: hf.threads.list(**query))
    return of_json({"data": [exported(each) for each in page.data], "next_page": page.next_page})


async def retrieve(call: Call) -> Response:
    """Retrieve a thread."""
    return of_json(exported(await call.quick(lambda hf: hf.threads.retrieve(call["id"]))))


async def delete(call: Call) -> Response:
    """Delete a thread with its turns and runs; wait for the erasure."""
    deleted = await call.slow(lambda hf: hf.threads.delete(call["id"]))
    return of_json(exported(_Deleted(id=call["id"], deleted=deleted)))


async def list_turns(call: Call) -> Response:
    """List the turns of a thread, oldest first."""
    query = call.query

    def look(hf: Holdfast) -> Response:
        page = hf.threads.turns(call["id"], **query)
        return of_json({"data": [each.export() for each in page], "next_page": page.next_page})

    return await call.slow(look)


async def append(call: Call) -> Response:
    """Add turns to a thread, all or none."""
    appended: Appended = await call.write(
        lambda hf: hf.threads.append(call["id"], call.body(PostThreadTurns, WIDE).turns)
    )
    return of_json(exported(appended))


ROUTES = (
    HttpRoute(
        method="GET",
        path=THREADS,
        needs="read",
        answer=list_threads,
        summary="List threads, newest first.",
        query=PAGE,
    ),
    HttpRoute(method="GET", path=ONE, needs="read", answer=retrieve, summary="Retrieve a thread."),
    HttpRoute(
        method="DELETE",
        path=ONE,
        needs="write",
        answer=delete,
        summary="Delete a thread with its turns and runs.",
    ),
    HttpRoute(
        method="GET",
        path=f"{ONE}/turns",
        needs="read",
        answer=list_turns,
        summary="List the turns of a thread, oldest first.",
        query=(one_of("kind", "user", "result"), *PAGE),
    ),
    HttpRoute(
        method="POST",
        path=f"{ONE}/turns",
        needs="write",
        answer=append,
        summary="Add turns to a thread, all or none.",
        body=PostThreadTurns,
        limit=THREADS_LIMIT,
    ),
)
