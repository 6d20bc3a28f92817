"""Routes of stores, sessions and keys that need more than the table of operations.

A long poll for changes, pages of a session's resources, and what depends on the visitor.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.doors.http.call import Act, Call, context_of, response_of
from holdfast.doors.http.params import PAGE, Name, fixed, refused
from holdfast.doors.http.request import Handler, HttpRoute, Method
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput, ScopeDenied, Unsupported
from holdfast.ground.pages import Key, digest, read_cursor, write_cursor
from holdfast.ground.validation import check_limit
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.sessions import RESOURCES
from holdfast.library.operations.stores import CHANGES
from holdfast.memories.stores.history import Awaited
from holdfast.memories.stores.records import (
    ApiKey,
    ChangesPage,
    Identity,
    JSONObject,
    Resource,
    SessionRecord,
    record_to_wire,
)

RESOURCES_MOST: Final = 1_000


async def changes(call: Call) -> Response:
    """Return the changes once there are any; a waiting request holds no thread."""
    query, state, context = call.query, call.state, context_of(call)
    awaited = Awaited(context, call["s"], query["after"], wait=query.get("wait", 0.0))

    def look() -> Response | None:
        found: ChangesPage | None = awaited.look()
        return found and response_of(CHANGES, found, query)

    answer = await state.executor.slow(look)
    if answer is not None:
        return answer
    async with state.notifier.waiting(context.workspace, call["s"]) as waiting:
        while (answer := await state.executor.slow(look)) is None:
            await waiting.wait(awaited.left)
            if state.stopping.is_set():
                awaited.hurry()
    return answer


def create_session(call: Call, hf: Holdfast, arguments: dict[str, Any]) -> SessionRecord:
    """Create a session; a strict server requires that its agent and environment exist."""
    return hf.sessions.create(**arguments, strict=call.state.strict)


async def list_resources(call: Call) -> Response:
    """List what a session attaches: all of it, unless a limit is given."""
    query = call.query
    resources = await call.quick(lambda hf: hf.sessions.resources(call["id"]))
    return of_json(resource_page(resources, call["id"], **query))


def resource_page(
    resources: tuple[Resource, ...],
    session_id: str,
    limit: int | None = None,
    page: str | None = None,
) -> JSONObject:
    """Return the page of *resources* that comes after the cursor *page*."""
    most = check_limit(limit, most=RESOURCES_MOST, default=RESOURCES_MOST)
    mark = digest(session_id)
    start = 0 if page is None else _start(read_cursor("resources", mark, page)[0])
    end = start + most
    more = write_cursor("resources", mark, [end]) if end < len(resources) else None
    return {**RESOURCES.result.encode(resources[start:end]), "next_page": more}


def _start(key: Key) -> int:
    if len(key) != 1 or not isinstance(key[0], int) or key[0] < 0:
        raise InvalidInput("page", "is not a cursor of this list", next="Start again without it.")
    return key[0]


async def refuse_change(call: Call) -> Response:
    """Raise Unsupported: stores attach at the creation of a session only."""
    await call.quick(lambda hf: hf.sessions.retrieve(call["id"]))
    raise Unsupported(
        "Changing what a session attaches",
        next="Memory stores attach at session creation only: create another session.",
    )


async def me(call: Call) -> Response:
    """Return the client's identity and scope."""
    visitor = call.visitor
    identity = Identity(
        actor=visitor.actor,
        scope=visitor.scope,
        workspace=visitor.workspace,
        agent=visitor.agent,
        user=visitor.user,
        at=call.state.clock.now(),
    )
    return of_json(record_to_wire(identity))


def create_key(call: Call, hf: Holdfast, arguments: dict[str, Any]) -> ApiKey:
    """Create a key; its secret is in this response only."""
    if call.visitor.keyed and arguments["workspace"] not in {None, call.visitor.workspace}:
        raise ScopeDenied(
            "A key makes keys to its own workspace only.",
            needed="a key of that workspace",
            next="Leave workspace out.",
        )
    return hf.keys.create(**arguments)


HANDLERS: Final[Mapping[str, Handler]] = {
    CHANGES.name: changes,
    RESOURCES.name: list_resources,
}
ACTS: Final[Mapping[str, Act]] = {
    "sessions.create": create_session,
    "keys.create": create_key,
}
QUERIES: Final[Mapping[str, tuple[Name, ...]]] = {
    # The oldest clients may send an order. There is one, by path.
    "memory_stores.memories.list": (fixed("order_by", "path"), fixed("order", "asc")),
    "sessions.list": (refused("deployment_id", "is not kept here: no session has a deployment"),),
    RESOURCES.name: PAGE,
}
"""Parameters of queries that the library does not have, by operation."""

_REFUSED: Final[tuple[tuple[Method, str], ...]] = (
    ("POST", ""),
    ("POST", "/{rid}"),
    ("DELETE", "/{rid}"),
)
ROUTES = (
    *(
        HttpRoute(
            method=method,
            path=RESOURCES.path + below,
            needs="write",
            answer=refuse_change,
            summary="Refused: stores attach at session creation only.",
        )
        for method, below in _REFUSED
    ),
    HttpRoute(
        method="GET",
        path="/api/me",
        needs="any",
        answer=me,
        session="store",
        summary="Retrieve the caller's identity and scope.",
    ),
)
