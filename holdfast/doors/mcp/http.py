"""Serve hosts over streamable HTTP, at `/mcp` of the server.

The owners of a request follow from its credential, and from what its headers or its address name.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, cast, get_args
from urllib.parse import parse_qsl

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from msgspec import Struct
from msgspec.structs import replace

from holdfast.doors.mcp.changes import ChangeHub, Run, feed_of
from holdfast.doors.mcp.owners import GRAPH, HostMemories, Owners, Profile
from holdfast.doors.mcp.server import CallLimit, Context, Host, MemoryServer, host_of
from holdfast.ground.errors import HoldfastError, InvalidInput, NotFound, ScopeDenied
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import Actor, checked_name
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import KeyScope

BODY_BYTES: Final = 1_048_576
SESSIONS_MOST: Final = 1_000
IDLE: Final = 1_800.0
"""Seconds without a request after which a session ends."""
CHECKS_EVERY: Final = 3.0
"""Seconds between two looks at the credential of an open stream."""
HOSTS_CACHED: Final = 1_024
_HOST: Final = "holdfast.host"
_NAMES: Final = ("user", "agent", "store", "profile")

SESSIONS: Final = REGISTRY.gauge("mcp_sessions", "Open sessions of hosts over HTTP.")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Principal(Protocol):
    """Who sent a request, and what it may reach."""

    @property
    def actor(self) -> Actor: ...  # noqa: D102
    @property
    def scope(self) -> KeyScope: ...  # noqa: D102
    @property
    def agent(self) -> str | None: ...  # noqa: D102
    @property
    def user(self) -> str | None: ...  # noqa: D102
    @property
    def session_id(self) -> str | None: ...  # noqa: D102
    @property
    def keyed(self) -> bool: ...  # noqa: D102


class RequestedOwners(Struct, frozen=True):
    """What the headers and the address of a request name."""

    user: str | None = None
    agent: str | None = None
    store: str | None = None
    profile: Profile = "standard"
    read_only: bool = False


class _Response:
    """The response to one request, which may be ended before it is complete."""

    def __init__(self, send: Send) -> None:
        self._send, self._open = send, False

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        await self._send(message)
        started = message["type"] == "http.response.start"
        self._open = started or message.get("more_body", False)

    async def end(self) -> None:
        """Complete a response that has begun."""
        if self._open:
            self._open = False
            await self._send({"type": "http.response.body", "body": b""})


class _Sessions(dict[str, StreamableHTTPServerTransport]):
    """The open sessions by id, counted by the gauge at each change."""

    def __setitem__(self, id: str, transport: StreamableHTTPServerTransport) -> None:
        super().__setitem__(id, transport)
        SESSIONS.set(len(self))

    def pop(self, id: str, default: Any = None) -> Any:
        transport = super().pop(id, default)
        SESSIONS.set(len(self))
        return transport

    def clear(self) -> None:
        super().clear()
        SESSIONS.set(0)


class HttpHosts:
    """Answers requests to `/mcp` of one server process.

    With several *workers* clients of the handshake era are served without sessions. A session ends
    after *idle* seconds without a request; there are *sessions_most* at a time. The credential of
    an open stream is checked every *checks_every* seconds.
    """

    path = b"/mcp"
    route = "/mcp"
    limit = BODY_BYTES

    def __init__(
        self,
        hf: Holdfast,
        run: Run,
        *,
        workers: int = 1,
        sessions_most: int = SESSIONS_MOST,
        idle: float = IDLE,
        checks_every: float = CHECKS_EVERY,
    ) -> None:
        self._run, self._checks_every = run, checks_every
        self._hub = ChangeHub(feed_of(hf), run)
        self._limits: dict[str, CallLimit] = {}
        self._hosts: dict[object, Host] = {}
        sessions = self._sessions = workers == 1
        served = MemoryServer(_host_of, run, self._hub, sessions=sessions)
        self._manager = StreamableHTTPSessionManager(
            served.server,
            json_response=True,
            stateless=not sessions,
            session_idle_timeout=idle if sessions else None,
            max_request_body_size=BODY_BYTES,
            max_sessions=sessions_most,
        )
        # The SDK counts its sessions only there.
        self._manager._server_instances = _Sessions()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve within the block."""
        async with self._manager.run():
            try:
                yield
            finally:
                self._hub.close()

    async def answer(
        self,
        scope: Message,
        receive: Receive,
        send: Send,
        *,
        principal: Principal,
        hf: Holdfast,
        admitted: Callable[[], Awaitable[object]],
    ) -> None:
        """Answer one request of *principal* through *hf*.

        *admitted* raises once the credential is no longer valid, which ends a stream.
        """
        requested = _requested(dict(scope["headers"]), scope["query_string"])
        if scope["method"] == "GET" and not self._sessions:
            # The SDK would open a stream on which nothing is ever sent.
            headers = [(b"allow", b"POST"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 405, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return

        async def still() -> bool:
            try:
                await admitted()
            except HoldfastError:
                return False
            return True

        shared = await self._run(lambda: self._shared_host(principal, hf, requested))
        credential = str(principal.actor) if principal.keyed else ""
        host = replace(shared, limit=self._limit(credential), allowed=still)
        inner: Message = {**scope, _HOST: host}
        if credential:
            token = AccessToken(token="", client_id=credential, scopes=[])
            inner["user"] = AuthenticatedUser(token)
        response = _Response(send)
        work = self._manager.handle_request(inner, receive, response.send)
        serving = asyncio.ensure_future(work)
        try:
            while not serving.done():
                await asyncio.wait({serving}, timeout=self._checks_every)
                if not serving.done() and not await still():
                    break
        finally:
            if not serving.done():
                serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
            await response.end()

    def _limit(self, credential: str) -> CallLimit:
        if len(self._limits) >= HOSTS_CACHED:
            self._limits = {}
        return self._limits.setdefault(credential, CallLimit())

    def _shared_host(self, principal: Principal, hf: Holdfast, requested: RequestedOwners) -> Host:
        """Return what all requests of one kind share: a session holds its last one."""
        may_write = principal.scope != "read"
        # What is attached to a session may change, so its owners are read for each request.
        owners = _owners(principal, hf, requested)
        key = (hf.workspace, str(principal.actor), owners, may_write)
        known = self._hosts.get(key)
        if known is None:
            if len(self._hosts) >= HOSTS_CACHED:
                self._hosts = {}
            memories = HostMemories(hf, owners, enabled=None)
            known = self._hosts[key] = host_of(memories, may_write=may_write)
        return known


def _host_of(ctx: Context) -> Host:
    """Return the host of a request over HTTP."""
    return cast("Host", cast("Any", ctx.request).scope[_HOST])


def _requested(headers: Mapping[bytes, bytes], query_string: bytes) -> RequestedOwners:
    """Return what headers and address name; raise InvalidInput if they differ."""
    query = dict[str, str]()
    for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        if name not in {*_NAMES, "read_only"}:
            known = ", ".join((*_NAMES, "read_only"))
            raise InvalidInput(name, "is not known in this address", next=f"There are: {known}.")
        if query.setdefault(name, value) != value:
            raise InvalidInput(name, "is given twice", next="Give it once.")
    found = dict[str, str]()
    for name in _NAMES:
        header = headers.get(f"holdfast-{name}".encode(), b"").decode("utf-8", "replace")
        if header and name in query and query[name] != header:
            raise InvalidInput(name, "differs in header and address", next="Give it in one place.")
        if value := query.get(name) or header:
            found[name] = value
    for name in ("user", "agent"):
        if name in found:
            checked_name(name, found[name])
    flag = query.get("read_only", "false")
    if flag not in {"true", "false"}:
        raise InvalidInput("read_only", "must be true or false", given=flag)
    return RequestedOwners(
        found.get("user"),
        found.get("agent"),
        found.get("store"),
        _profile(found.get("profile", "standard")),
        flag == "true",
    )


def _profile(given: str) -> Profile:
    for each in get_args(Profile):
        if each == given:
            return each
    known = ", ".join(get_args(Profile))
    raise InvalidInput("profile", f"must be one of {known}", given=given)


def _owners(principal: Principal, hf: Holdfast, requested: RequestedOwners) -> Owners:
    """Return the owners that *principal* may name; raise ScopeDenied for others."""
    store = requested.store or (GRAPH if requested.profile == "graph" else None)
    if principal.session_id is not None:
        return _of_session(principal.session_id, hf, requested)
    user, agent = requested.user, requested.agent
    if principal.user is not None or principal.agent is not None:
        _refuse_other("user", user, principal.user)
        _refuse_other("agent", agent, principal.agent)
        _refuse_other("store", store, None)
        user, agent = principal.user, principal.agent
    return Owners(
        user=user,
        agent=agent,
        store=store,
        profile=requested.profile,
        read_only=requested.read_only,
    )


def _refuse_other(kind: str, named: str | None, own: str | None) -> None:
    if named is not None and named != own:
        raise ScopeDenied(
            f"This credential does not reach the {kind} that is named.",
            needed=f"a credential for that {kind}",
            next=f"Leave {kind} out, or use another credential.",
        )


def _of_session(session_id: str, hf: Holdfast, requested: RequestedOwners) -> Owners:
    _refuse_other("user", requested.user, None)
    _refuse_other("agent", requested.agent, None)
    attached = {each.memory_store_id: each for each in hf.sessions.resources(session_id)}
    names = _names_of(attached, hf)
    chosen = [id for id, name in names.items() if requested.store in {None, id, name}]
    if requested.store is not None and not chosen:
        _refuse_other("store", requested.store, None)
    if len(chosen) > 1:
        shown = ", ".join(f"{names[id]} ({id})" for id in chosen)
        raise InvalidInput(
            "store",
            "must be named: several stores are attached to the session",
            next=f"Name one of: {shown}.",
        )
    id = chosen[0] if chosen else None
    read_only = id is not None and attached[id].access == "read_only"
    return Owners(store=id, profile=requested.profile, read_only=requested.read_only or read_only)


def _names_of(ids: Iterable[str], hf: Holdfast) -> dict[str, str]:
    """Return the names of stores by id; those that were deleted are left out."""
    names = dict[str, str]()
    for id in ids:
        with suppress(NotFound):
            names[id] = hf.memory_stores.retrieve(id).name
    return names
