"""Routes of one user's long-term memory: recall, items and turns.

What may be large is read and written on a thread, not on the event loop.
"""

from collections.abc import Mapping
from typing import Final, cast

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.longterm_asked import (
    data_of,
    memory_of,
    of_page,
    of_record,
    users_route,
)
from holdfast.doors.http.params import PAGE, flag, several, text
from holdfast.doors.http.request import Handler
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.longterm import RECALL, REMEMBER, PostItem, RecallBody
from holdfast.memories.longterm.records import ForgetResult, Item, Turn, What, to_wire
from holdfast.memories.longterm.validation import is_id

ITEMS, TURNS = "/items", "/turns"


async def recall(call: Call) -> Response:
    """Recall what answers a query; a key that may only read records no access."""
    body = call.body(RecallBody)

    def look(hf: Holdfast) -> Response:
        memory = memory_of(call, hf)
        found = memory.recall(
            body.query,
            body.k,
            what=cast("What", body.what),
            kinds=body.kinds,
            min_relevance=body.min_relevance,
            weights=body.weights.weights() if body.weights else None,
            touch=body.touch and call.visitor.scope != "read",
        )
        mode = found[0].why["mode"] if found else memory.status().mode
        return of_json({"results": [to_wire(each) for each in found], "mode": mode})

    return await call.slow(look)


async def remember(call: Call) -> Response:
    """Remember one sentence."""
    body = call.body(PostItem)

    def act(hf: Holdfast) -> Response:
        memory = memory_of(call, hf)
        done = (memory.by_tool() if body.origin == "tool" else memory).remember(
            body.text, body.kind, body.importance, source=body.source, turns=body.turns
        )
        return of_record(done)

    return await call.slow(act)


async def list_items(call: Call) -> Response:
    """List items, newest first."""
    query = call.query
    # A query cannot hold an empty list: one empty name stands for it.
    kinds = [each for each in query["kinds"] if each] if "kinds" in query else None

    def look(hf: Holdfast) -> Response:
        page = data_of(call, hf).list(
            kinds=kinds,
            query=query.get("query"),
            include_superseded=query.get("include_superseded", False),
            limit=query.get("limit"),
            page=query.get("page"),
        )
        return of_page(page)

    return await call.slow(look)


async def list_turns(call: Call) -> Response:
    """List turns, newest first."""
    query = call.query

    def look(hf: Holdfast) -> Response:
        page = data_of(call, hf).list(
            "turns", query=query.get("query"), limit=query.get("limit"), page=query.get("page")
        )
        return of_page(page)

    return await call.slow(look)


async def retrieve_item(call: Call) -> Response:
    """Retrieve an item."""
    return await _retrieve(call, "item")


async def retrieve_turn(call: Call) -> Response:
    """Retrieve a turn."""
    return await _retrieve(call, "turn")


async def _retrieve(call: Call, kind: str) -> Response:
    id = call["id"]
    found: Item | Turn | None = None
    if is_id(kind, id):
        found = await call.quick(lambda hf: data_of(call, hf).get(id))
    else:
        await call.quick(lambda hf: data_of(call, hf))
    if found is None:
        raise NotFound(kind, id, next="Check the id, or list the items and turns.")
    return of_record(found)


async def forget_item(call: Call) -> Response:
    """Forget an item, with the turns it came from."""
    return await _forget(call, "item")


async def forget_turn(call: Call) -> Response:
    """Forget a turn, with the items that came from it alone."""
    return await _forget(call, "turn")


async def _forget(call: Call, kind: str) -> Response:
    id = call["id"]

    def act(hf: Holdfast) -> ForgetResult:
        data = data_of(call, hf)
        return data.forget(id) if is_id(kind, id) else ForgetResult()

    return of_record(await call.slow(act))


_LISTED = (text("query"), *PAGE)

ROUTES = (
    users_route(
        "GET",
        ITEMS,
        "read",
        list_items,
        "List items, newest first.",
        query=(several("kinds", "kinds"), flag("include_superseded"), *_LISTED),
    ),
    users_route("GET", f"{ITEMS}/{{id}}", "read", retrieve_item, "Retrieve an item."),
    users_route(
        "DELETE",
        f"{ITEMS}/{{id}}",
        "write",
        forget_item,
        "Forget an item, with the turns it came from.",
    ),
    users_route("GET", TURNS, "read", list_turns, "List turns, newest first.", query=_LISTED),
    users_route("GET", f"{TURNS}/{{id}}", "read", retrieve_turn, "Retrieve a turn."),
    users_route(
        "DELETE",
        f"{TURNS}/{{id}}",
        "write",
        forget_turn,
        "Forget a turn, with the items that came from it alone.",
    ),
)

HANDLERS: Final[Mapping[str, Handler]] = {RECALL.name: recall, REMEMBER.name: remember}
