"""The HTTP door: an ASGI app over one handle.

A request fails in this order: its host and origin, its route, its credential, what that may do,
the places of the server, its body's size and time, and only then what it says.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from time import perf_counter
from typing import TYPE_CHECKING

from holdfast.doors.http.auth import (
    LOOPBACK_HOSTS,
    WORKSPACE,
    HostPolicy,
    demand_right,
    demand_strictness,
)
from holdfast.doors.http.call import Call
from holdfast.doors.http.metrics import UNKNOWN
from holdfast.doors.http.params import (
    LIMITS,
    Bodies,
    IncomingBody,
    Message,
    Receive,
    RequestLimits,
    out_of_memory,
    read_query,
)
from holdfast.doors.http.request import HttpRoute, RouteMatch, RouteTable, Visitor
from holdfast.doors.http.response import (
    Headers,
    LiveAnswer,
    MisdirectedRequest,
    Response,
    Send,
    error_answer,
    log_fault,
    status_and_type,
)
from holdfast.doors.http.routes import routes
from holdfast.doors.http.state import House
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    NotAuthenticated,
    NotPermitted,
)
from holdfast.ground.events import Event
from holdfast.ground.ids import Ids
from holdfast.ground.scope import LOCAL
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.context import counts
from holdfast.memories.durable.records import give_code

if TYPE_CHECKING:
    from holdfast.runtime import Network


def make_app(
    hf: Holdfast,
    *,
    strict: bool = False,
    loopback: bool = True,
    policy: HostPolicy | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    limits: RequestLimits = LIMITS,
    networks: "Mapping[str, Network] | None" = None,
    models: Iterable[str] = (),
) -> "App":
    """Return the ASGI app that serves *hf*.

    With *loopback* everybody comes in until the first key is made. *policy* names the hosts and
    origins that are answered: those of this machine with *loopback*, else every host and no
    origin, unless given. With *strict* the contract's routes demand what the hosted service
    demands. *clock* and *ids* stand in for the machine's. *limits* bound what clients send.
    *networks* are run for whoever may write. *models*, each `provider:model`, are those that
    requests may name besides the configured ones.
    """
    house = House(
        hf,
        RouteTable(routes(strict=strict)),
        strict=strict,
        loopback=loopback,
        clock=clock or SystemClock(),
        ids=ids or Ids(),
    )
    house.served.networks = dict(networks or {})
    house.models = frozenset(models)
    policy = policy or HostPolicy(hosts=LOOPBACK_HOSTS if loopback else None)
    return App(house, policy, limits)


class _Asked:
    """What is known so far of a request under way, for its answer's headers and its counting."""

    __slots__ = ("contract", "method", "request_id", "route", "workspace")

    def __init__(self, method: str, request_id: str, *, contract: bool) -> None:
        self.method, self.request_id, self.contract = method, request_id, contract
        self.route: HttpRoute | None = None
        self.workspace = ""


class App:
    """Answers requests. `house.stopping` makes it refuse to be ready, and ends live answers."""

    def __init__(self, house: House, policy: HostPolicy, limits: RequestLimits) -> None:
        self.house, self.limits, self._policy = house, limits, policy
        self.bodies = Bodies(limits)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection's request, or the server's own words."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await receive()
            await send({"type": "websocket.close"})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        sweeping = asyncio.ensure_future(self.house.keep_swept())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        # How a run ended is kept before the database is closed.
        await self.house.served.stop()
        sweeping.cancel()
        self.house.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        began, house = perf_counter(), self.house
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        request_id = house.request_ids.new(to_microseconds(house.clock.now()))
        asked = _Asked(scope["method"], request_id, contract=raw_path.startswith(b"/v1/"))
        try:
            answer = await self._answer(asked, raw_path, scope, receive)
        except Exception as error:  # noqa: BLE001 - whatever rises is answered, none with its insides
            answer = self._failed(asked, error)
        headers = _headers(answer, request_id, asked.workspace)
        if isinstance(answer, Response):
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": answer.body})
            status = answer.status
        else:
            status = 200
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await self._live(answer, receive, send)
        path = asked.route.path if asked.route else UNKNOWN
        house.answered(path, asked.method, status, perf_counter() - began)

    def refusal(self, error: HoldfastError) -> tuple[int, Headers, bytes]:
        """Return status, headers and body of the response to a request whose head failed."""
        house = self.house
        request_id = house.request_ids.new(to_microseconds(house.clock.now()))
        answer = error_answer(error, request_id=request_id, contract=True)
        house.answered(UNKNOWN, UNKNOWN, answer.status, 0.0)
        return answer.status, _headers(answer, request_id, ""), answer.body

    async def _answer(
        self, asked: _Asked, raw_path: bytes, scope: Message, receive: Receive
    ) -> Response | LiveAnswer:
        house = self.house
        self._policy.check(scope["headers"])
        found = house.table.find(asked.method, raw_path)
        route = asked.route = found.route
        headers: dict[bytes, bytes] = dict(scope["headers"])
        visitor = _NOBODY
        if route.needs != "nothing":
            visitor = await house.gate.admit(headers)
            asked.workspace = visitor.workspace
            demand_right(visitor, found)
        if house.strict and route.contract:
            demand_strictness(scope["headers"], route.path)
        body, reads = IncomingBody(self.bodies, keyed=visitor.keyed), _has_body(headers, route)
        handles = house.shelf.of(visitor)
        call = Call(house, visitor, handles, found.segments, headers=headers, raw=b"")
        try:
            # Without a credential a request has a place once its body is complete.
            if reads and not visitor.keyed:
                call.raw = await body.read(headers, receive, route.limit)
            with nullcontext() if raw_path == b"/healthz" else house.place():
                if reads and visitor.keyed:
                    call.raw = await body.read(headers, receive, route.limit)
                return await _handled(call, found, scope["query_string"])
        finally:
            body.release()

    def _failed(self, asked: _Asked, error: Exception) -> Response:
        if isinstance(error, MemoryError):
            log_fault(error)
            error = out_of_memory(written=None)
        self.house.metrics.failed(error)
        if asked.route and asked.route.durable and isinstance(error, HoldfastError):
            self._tell_durable(asked, asked.route, error)
        if isinstance(error, NotAuthenticated | NotPermitted | MisdirectedRequest):
            self._tell_denied(asked, error)
        return error_answer(error, request_id=asked.request_id, contract=asked.contract)

    def _tell_durable(self, asked: _Asked, route: HttpRoute, error: HoldfastError) -> None:
        """Give *error* its code, and tell of a write that the library was not asked for."""
        if error.code is not None:
            return
        give_code(error)
        if route.changes and error.code is not None:
            counts.add("refused_total", error.code)
            self.house.hf.events.publish(
                Event(
                    type="durable.refused",
                    at=self.house.clock.now(),
                    workspace=asked.workspace,
                    ids={"request_id": asked.request_id},
                    data={"code": error.code},
                )
            )

    def _tell_denied(
        self, asked: _Asked, error: NotAuthenticated | NotPermitted | MisdirectedRequest
    ) -> None:
        self.house.hf.events.publish(
            Event(
                type="access.denied",
                at=self.house.clock.now(),
                workspace=asked.workspace,
                ids={"request_id": asked.request_id},
                data={
                    "status": status_and_type(type(error))[0],
                    "method": asked.method,
                    "route": asked.route.path if asked.route else UNKNOWN,
                },
            )
        )

    async def _live(self, answer: LiveAnswer, receive: Receive, send: Send) -> None:
        """Send pieces until *answer* ends, the client leaves, or the server stops."""

        async def piece(body: bytes) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        ends = [
            asyncio.ensure_future(each)
            for each in (answer.run(piece), _left(receive), self.house.stopping.wait())
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ends:
                each.cancel()
            ran, *_ = await asyncio.gather(*ends, return_exceptions=True)
        if isinstance(ran, Exception):
            log_fault(ran)
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b""})


_NOBODY = Visitor(actor=LOCAL, scope="read", workspace="default", keyed=False)


def _headers(answer: Response | LiveAnswer, request_id: str, workspace: str) -> Headers:
    """Return all the headers of *answer*."""
    length = (
        ((b"content-length", b"%d" % len(answer.body)),) if isinstance(answer, Response) else ()
    )
    return (
        (b"content-type", answer.type),
        (b"request-id", request_id.encode()),
        (WORKSPACE, (workspace or "default").encode()),
        *answer.headers,
        *length,
    )


def _has_body(headers: Mapping[bytes, bytes], route: HttpRoute) -> bool:
    """Tell whether a body may follow that *route* reads; without a credential none is read."""
    if route.needs == "nothing":
        return False
    declared = headers.get(b"content-length")
    return route.changes or declared not in {None, b"0"} or b"transfer-encoding" in headers


async def _handled(call: Call, found: RouteMatch, query_string: bytes) -> Response | LiveAnswer:
    """Return what the route answers; an unknown id is reported before a bad request."""
    route = found.route
    try:
        if found.names or query_string:
            call.query = read_query(query_string, found.names, strict=route.ours)
        return await route.answer(call)
    except InvalidInput:
        if route.behind is not None:
            await route.behind(call)
        raise


async def _left(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
