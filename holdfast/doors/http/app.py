"""The ASGI app that serves one handle, and its table of routes.

A request is checked in this order: host and origin, route, credential, the credential's rights,
requests in flight, size and time of the body, and only then its content.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from itertools import chain
from time import perf_counter
from typing import Final

from holdfast.doors import http
from holdfast.doors.http.auth import (
    LOOPBACK_HOSTS,
    WORKSPACE,
    HostPolicy,
    demand_right,
    demand_strictness,
)
from holdfast.doors.http.call import Call, table_routes
from holdfast.doors.http.metrics import UNKNOWN
from holdfast.doors.http.own import (
    admin,
    dreams,
    durable,
    longterm,
    networks,
    runs,
    stores,
    streams,
)
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
from holdfast.doors.http.request import (
    HttpRoute,
    MakeSubApp,
    RouteTable,
    SubApp,
    Visitor,
)
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
from holdfast.doors.http.state import MakeSite, ServerState, Site, SiteServer
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
from holdfast.library.operations import durable as durable_operations
from holdfast.library.operations import longterm as longterm_operations
from holdfast.library.operations import runs as run_operations
from holdfast.library.operations import sessions as session_operations
from holdfast.library.operations import stores as store_operations
from holdfast.library.operations import threads
from holdfast.memories.durable.records import give_code
from holdfast.memories.durable.transaction import REFUSED


def make_app(
    hf: Holdfast,
    *,
    strict: bool = False,
    loopback: bool = True,
    policy: HostPolicy | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    limits: RequestLimits = LIMITS,
    definitions: "http.Definitions | None" = None,
    models: Iterable[str] = (),
    dream_model: object = None,
    make_subapp: MakeSubApp | None = None,
    make_site: MakeSite | None = None,
) -> "App":
    """Return the ASGI app that serves *hf*.

    With *loopback* no credential is required until the first key is created. *policy* names the
    hosts and origins that are answered; by default those of this machine with *loopback*, else
    every host and no origin. With *strict* the contract's routes demand what the hosted service
    demands. *clock* and *ids* replace the machine's. *limits* bound what clients send. Clients
    with the right to write may start *definitions*: networks, agents and others. *models*, each
    `provider:model`, are those that requests may name besides the configured ones; *dream_model* is
    the one that does dreams, a name, a model of pydantic-ai's or a function. *make_subapp* makes
    the app of another interface, which answers its own path; *make_site* that of pages for people.
    """
    state = ServerState(
        hf,
        RouteTable(routes(strict=strict)),
        strict=strict,
        loopback=loopback,
        clock=clock or SystemClock(),
        ids=ids or Ids(),
    )
    if definitions:
        state.registry.serve(definitions)
    state.models, state.dream_model = frozenset(models), dream_model
    policy = policy or HostPolicy(hosts=LOOPBACK_HOSTS if loopback else None)
    site = make_site(SiteServer(state, policy.public_url)) if make_site else None
    return App(state, policy, limits, make_subapp, site)


SITE_ROUTE: Final = "/console"
"""The route of all pages for people, in metrics and the access log."""


class _RequestFacts:
    """Facts of a request in flight, for its response's headers and the metrics."""

    __slots__ = ("contract", "method", "request_id", "route", "workspace")

    def __init__(self, method: str, request_id: str, *, contract: bool) -> None:
        self.method, self.request_id, self.contract = method, request_id, contract
        self.route: HttpRoute | None = None
        self.workspace = ""


class App:
    """The ASGI app of one server.

    Once `state.stopping` is set, `/readyz` fails and live responses end.
    """

    def __init__(
        self,
        state: ServerState,
        policy: HostPolicy,
        limits: RequestLimits,
        make_subapp: MakeSubApp | None = None,
        site: Site | None = None,
    ) -> None:
        self.state, self.limits, self._policy, self.site = state, limits, policy, site
        self.bodies = Bodies(limits)
        self._subapp = make_subapp(state.hf, state.executor.slow) if make_subapp else None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan; close a WebSocket."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await receive()
            await send({"type": "websocket.close"})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        sweeping = asyncio.ensure_future(self.state.keep_swept())
        async with self._subapp.running() if self._subapp else nullcontext():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        # The ends of runs are recorded before the database is closed.
        await self.state.registry.stop()
        sweeping.cancel()
        self.state.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        began, state = perf_counter(), self.state
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        request_id = state.request_ids.new(to_microseconds(state.clock.now()))
        facts = _RequestFacts(scope["method"], request_id, contract=raw_path.startswith(b"/v1/"))
        subapp = self._subapp if self._subapp and raw_path == self._subapp.path else None
        try:
            if subapp is not None:
                status = await self._pass_on(subapp, facts, scope, receive, send)
                state.answered(subapp.route, facts.method, status, perf_counter() - began)
                return
            if self.site is not None and self._site_of(raw_path):
                status = await self._show(self.site, facts, scope, receive, send)
                state.answered(SITE_ROUTE, facts.method, status, perf_counter() - began)
                return
            answer = await self._answer(facts, raw_path, scope, receive)
        except Exception as error:  # noqa: BLE001 - each error is answered, without internals
            answer = self._failed(facts, error)
        headers = _headers(answer, request_id, facts.workspace)
        if isinstance(answer, Response):
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": answer.body})
            status = answer.status
        else:
            status = 200
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await self._live(answer, receive, send)
        path = facts.route.path if facts.route else subapp.route if subapp else UNKNOWN
        state.answered(path, facts.method, status, perf_counter() - began)

    async def _pass_on(
        self, subapp: SubApp, facts: _RequestFacts, scope: Message, receive: Receive, send: Send
    ) -> int:
        """Let *subapp* answer a request once its credential is known; return the status."""
        state, status = self.state, 0
        headers: dict[bytes, bytes] = dict(scope["headers"])
        with ExitStack() as counted:

            async def sent(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    own = (
                        (b"request-id", facts.request_id.encode()),
                        (WORKSPACE, (facts.workspace or "default").encode()),
                    )
                    if (b"content-type", b"text/event-stream") in message["headers"]:
                        counted.close()
                    message = {**message, "headers": [*message["headers"], *own]}
                await send(message)

            self._policy.check(scope["headers"])
            visitor = await state.gate.admit(headers)
            facts.workspace = visitor.workspace
            body = IncomingBody(self.bodies, keyed=visitor.keyed)
            try:
                counted.enter_context(state.count_in_flight())
                raw = await body.read(headers, receive, subapp.limit)
                await subapp.answer(
                    scope,
                    _replayed(raw, receive),
                    sent,
                    principal=visitor,
                    hf=state.shelf.of(visitor).plain,
                    admitted=lambda: state.gate.admit(headers),
                )
            except Exception as error:
                if not status:
                    raise
                # The response has begun, so no other can be sent.
                log_fault(error)
            finally:
                body.release()
        return status

    def _site_of(self, raw_path: bytes) -> bool:
        """Return whether *raw_path* is a page for people."""
        prefix = self.site.prefix if self.site else b""
        return bool(prefix) and (raw_path == prefix or raw_path.startswith(prefix + b"/"))

    async def _show(
        self, site: Site, facts: _RequestFacts, scope: Message, receive: Receive, send: Send
    ) -> int:
        """Let the pages for people answer a request; return the status.

        The visitor and the `Origin` are the site's to check: forms of pages that send no referrer
        have the origin `null`. Limits of size, time and number hold as elsewhere.
        """
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._policy.check(scope["headers"], origin=False)
        body = IncomingBody(self.bodies, keyed=False)
        try:
            if facts.method == "POST":
                receive = _replayed(await body.read(headers, receive, site.limit), receive)
            with ExitStack() as counted:
                counted.enter_context(self.state.count_in_flight())

                async def sent(message: Message) -> None:
                    if (b"content-type", b"text/event-stream") in message.get("headers", ()):
                        counted.close()
                    if message["type"] == "http.response.start":
                        own = (b"request-id", facts.request_id.encode())
                        message = {**message, "headers": [*message["headers"], own]}
                    await send(message)

                return await site(scope, receive, sent)
        finally:
            body.release()

    def refusal(self, error: HoldfastError) -> tuple[int, Headers, bytes]:
        """Return status, headers and body of the response to an invalid head."""
        state = self.state
        request_id = state.request_ids.new(to_microseconds(state.clock.now()))
        answer = error_answer(error, request_id=request_id, contract=True)
        state.answered(UNKNOWN, UNKNOWN, answer.status, 0.0)
        return answer.status, _headers(answer, request_id, ""), answer.body

    async def _answer(
        self, facts: _RequestFacts, raw_path: bytes, scope: Message, receive: Receive
    ) -> Response | LiveAnswer:
        state = self.state
        self._policy.check(scope["headers"])
        if raw_path == b"/" and self.site is not None and _wants_page(scope["headers"]):
            return Response(body=b"", status=303, headers=((b"location", self.site.prefix),))
        found = state.table.find(facts.method, raw_path)
        route = facts.route = found.route
        headers: dict[bytes, bytes] = dict(scope["headers"])
        visitor = _ANONYMOUS
        if route.needs != "nothing":
            visitor = await state.gate.admit(headers)
            facts.workspace = visitor.workspace
            demand_right(visitor, found)
        if state.strict and route.contract:
            demand_strictness(scope["headers"], route.path)
        body, reads = IncomingBody(self.bodies, keyed=visitor.keyed), _has_body(headers, route)
        handles = state.shelf.of(visitor)
        call = Call(state, visitor, handles, found.segments, headers=headers, raw=b"")
        try:
            # Without a credential a request counts as in flight once its body is complete.
            if reads and not visitor.keyed:
                call.raw = await body.read(headers, receive, route.limit)
            with nullcontext() if raw_path == b"/healthz" else state.count_in_flight():
                if reads and visitor.keyed:
                    call.raw = await body.read(headers, receive, route.limit)
                try:
                    if found.required or scope["query_string"]:
                        query = scope["query_string"]
                        call.query = read_query(query, found.names, strict=route.ours)
                    return await route.answer(call)
                except InvalidInput:
                    # An unknown id is reported before invalid input.
                    if route.behind is not None:
                        await route.behind(call)
                    raise
        finally:
            body.release()

    def _failed(self, facts: _RequestFacts, error: Exception) -> Response:
        if isinstance(error, MemoryError):
            log_fault(error)
            error = out_of_memory(written=None)
        self.state.metrics.failed(error)
        if facts.route and facts.route.durable and isinstance(error, HoldfastError):
            self._publish_refused(facts, facts.route, error)
        if isinstance(error, NotAuthenticated | NotPermitted | MisdirectedRequest):
            self._publish_denied(facts, error)
        return error_answer(error, request_id=facts.request_id, contract=facts.contract)

    def _publish_refused(
        self, facts: _RequestFacts, route: HttpRoute, error: HoldfastError
    ) -> None:
        """Set the code of an *error* that did not come from the library.

        A write that was so refused is counted and published here.
        """
        if error.code is not None:
            return
        give_code(error)
        if route.changes and error.code is not None:
            REFUSED.add(error.code)
            self.state.hf.events.publish(
                Event(
                    type="durable.refused",
                    at=self.state.clock.now(),
                    workspace=facts.workspace,
                    ids={"request_id": facts.request_id},
                    data={"code": error.code},
                )
            )

    def _publish_denied(
        self, facts: _RequestFacts, error: NotAuthenticated | NotPermitted | MisdirectedRequest
    ) -> None:
        self.state.hf.events.publish(
            Event(
                type="access.denied",
                at=self.state.clock.now(),
                workspace=facts.workspace,
                ids={"request_id": facts.request_id},
                data={
                    "status": status_and_type(type(error))[0],
                    "method": facts.method,
                    "route": facts.route.path if facts.route else UNKNOWN,
                },
            )
        )

    async def _live(self, answer: LiveAnswer, receive: Receive, send: Send) -> None:
        """Send pieces until *answer* ends, the client disconnects, or the server stops."""

        async def piece(body: bytes) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        ends = [
            asyncio.ensure_future(each)
            for each in (answer.run(piece), _disconnected(receive), self.state.stopping.wait())
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


_ANONYMOUS = Visitor(actor=LOCAL, scope="read", workspace="default", keyed=False)


def _headers(answer: Response | LiveAnswer, request_id: str, workspace: str) -> Headers:
    """Return the headers of *answer*, with those of every response."""
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


def _wants_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a browser asks, which takes HTML."""
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a function that returns *body* first, then what *receive* does."""
    first = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _has_body(headers: Mapping[bytes, bytes], route: HttpRoute) -> bool:
    """Return whether a body may follow that *route* reads.

    A route that needs no credential reads none.
    """
    if route.needs == "nothing":
        return False
    declared = headers.get(b"content-length")
    return route.changes or declared not in {None, b"0"} or b"transfer-encoding" in headers


async def _disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def routes(*, strict: bool) -> tuple[HttpRoute, ...]:
    """Return every route; a *strict* server knows no PATCH of the contract's."""
    every = chain(_OPERATIONS, *(part.ROUTES for part in _HANDWRITTEN))
    return tuple(
        each for each in every if not (strict and each.contract and each.method == "PATCH")
    )


_HANDWRITTEN: Final = (stores, dreams, durable, longterm, networks, runs, streams, admin)
_OF_STORES: Final = (
    store_operations.MEMORY_STORES,
    store_operations.MEMORIES,
    store_operations.PAST_MEMORIES,
    store_operations.VERSIONS,
    session_operations.SESSIONS,
    session_operations.AGENTS,
    session_operations.ENVIRONMENTS,
    session_operations.KEYS,
)
_OPERATIONS: Final = (
    *(
        route
        for table in _OF_STORES
        for route in table_routes(
            table, handlers=stores.HANDLERS, acts=stores.ACTS, further=stores.QUERIES
        )
    ),
    *table_routes(durable_operations.WORKSPACE, acts=admin.ACTS),
    *table_routes(durable_operations.ENTRIES, durable.opened, durable.HANDLERS, acts=durable.ACTS),
    *table_routes(durable_operations.MEMORY, durable.opened),
    *table_routes(durable_operations.RUN, durable.opened, acts=durable.ACTS),
    *table_routes(
        longterm_operations.DATA,
        longterm.opened_data,
        scope=longterm.SCOPE,
        acts=longterm.DATA_ACTS,
    ),
    *table_routes(
        longterm_operations.MEMORY, longterm.opened, scope=longterm.SCOPE, acts=longterm.ACTS
    ),
    *table_routes(threads.THREADS),
    *table_routes(run_operations.RECORDS, acts=runs.ACTS),
)
