"""Routes, the principal of a request, and the executor of its calls."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from datetime import datetime
from functools import partial
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from msgspec import Struct, field

from holdfast.doors.http.params import Message, Name, Receive
from holdfast.doors.http.response import LiveAnswer, Response, Send, WrongMethod
from holdfast.engines.async_writes import awaited_writes
from holdfast.ground.errors import NotFound
from holdfast.ground.scope import Actor
from holdfast.ground.trust import WriterTier
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.base import MIB, Bound, Method, Needs, Session
from holdfast.memories.stores.records import KeyScope

MOST_KEPT = 1_024
"""Visitors with cached handles; beyond that the cache is emptied."""


class Visitor(Struct, frozen=True):
    """The principal of a request, and its rights."""

    actor: Actor
    scope: KeyScope
    workspace: str
    agent: str | None = None
    user: str | None = None
    session_id: str | None = None
    keyed: bool = True
    key: str | None = None
    """The name of its API key."""
    subject: str | None = None
    """The person to whom its writes are linked."""
    since: datetime | None = None
    """When its work about that person began; later erasures refuse it."""
    tier: WriterTier | None = None
    """The tier of its writes, unless its own is lower."""


class LibraryHandles(Struct, frozen=True):
    """Handles of the library that act as one visitor.

    Writes through `plain` block until they are durable; through `awaited` they return an awaitable.
    """

    plain: Holdfast
    awaited: Holdfast


class HandleShelf:
    """Cache of handles by visitor, since most requests are by a known one."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._cache: dict[Visitor, LibraryHandles] = {}

    def of(self, visitor: Visitor) -> LibraryHandles:
        """Return the handles that act as *visitor*."""
        handles = self._cache.get(visitor)
        if handles is None:
            if len(self._cache) >= MOST_KEPT:
                self._cache = {}
            handles = self._cache[visitor] = self._make(visitor)
        return handles

    def _make(self, visitor: Visitor) -> LibraryHandles:
        plain = self._hf.acting(
            workspace=visitor.workspace, actor=visitor.actor, session_id=visitor.session_id
        )
        awaited = self._hf.acting(
            workspace=visitor.workspace,
            actor=visitor.actor,
            session_id=visitor.session_id,
            through=awaited_writes,
        )
        if visitor.subject is not None:
            fenced = visitor.since is not None
            plain = plain.for_subject(visitor.subject, fenced=fenced, since=visitor.since)
            awaited = awaited.for_subject(visitor.subject, fenced=fenced, since=visitor.since)
        if visitor.tier is not None:
            plain, awaited = plain.for_tier(visitor.tier), awaited.for_tier(visitor.tier)
        return LibraryHandles(plain, awaited)


# A point read or a short page on SQLite takes less time than a switch to a thread and back. Work
# that may wait (a scan, a search, a commit, a database across a network) goes to one of a few
# threads.

T = TypeVar("T")

THREADS = 16
"""Threads for requests. More would not finish more: the interpreter runs one at a time."""


class CallExecutor:
    """Executor of the work of requests; with *direct*, quick work runs on the loop.

    *live* is the number of threads that may wait for events at the same time.
    """

    def __init__(self, *, direct: bool, live: int) -> None:
        self._direct = direct
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-http")
        self._waiting = ThreadPoolExecutor(live, thread_name_prefix="holdfast-live")

    async def quick(self, work: Callable[[], T]) -> T:
        """Return *work*(), which reads one row or a few consecutive ones."""
        return work() if self._direct else await self.slow(work)

    async def slow(self, work: Callable[[], T]) -> T:
        """Return *work*(), run on a thread with the request's context variables."""
        bound = partial(copy_context().run, work)
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)

    async def live(self, wait: Callable[[], T]) -> T:
        """Return *wait*(), which waits for events, run on a thread for that purpose."""
        return await asyncio.get_running_loop().run_in_executor(self._waiting, wait)

    def close(self) -> None:
        """Shut the threads down without waiting for them."""
        self._waiting.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(wait=False, cancel_futures=True)


Handler = Callable[[Any], Awaitable[Response | LiveAnswer]]
"""Takes a Call, which is defined in a layer above."""


class HttpRoute(Struct, frozen=True):
    """One method on one path.

    `path` has a `{name}` for each segment that is an id. `session` says what a session token may
    access: nothing, its own session (`id`), or stores attached to it (`s`). `behind` checks that
    the objects of the path exist; it is called if the body or the query is invalid, because an
    unknown id is reported first. `bound` says whether a key may access the route that is bound to
    the agent, or to the user, in the path, or to a user whom the object names. A `durable` route's
    errors carry a code.
    """

    method: Method
    path: str
    needs: Needs
    answer: Handler
    summary: str
    body: type[Struct] | Literal["any", "lines"] | None = None
    query: tuple[Name, ...] = ()
    session: Session = "never"
    behind: Callable[[Any], Awaitable[object]] | None = None
    limit: int = MIB
    bound: Bound = "never"
    durable: bool = False

    @property
    def contract(self) -> bool:
        """Whether it is part of the contract of the official SDK."""
        return self.path.startswith("/v1/")

    @property
    def ours(self) -> bool:
        """Whether it is our own: it refuses an unknown name in the query."""
        return self.path.startswith("/api/")

    @property
    def changes(self) -> bool:
        """Whether a request may change something."""
        return self.method != "GET"


class RouteMatch(Struct, frozen=True):
    """A route, the values of its path parameters, and its query by wire name.

    `required` says whether the query must have a parameter.
    """

    route: HttpRoute
    segments: Mapping[str, str]
    names: Mapping[str, Name]
    required: bool


class _Node(Struct):
    named: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])
    other: "_Node | None" = None
    name: str = ""
    routes: dict[str, RouteMatch] = field(default_factory=dict[str, RouteMatch])


class RouteTable:
    """Look-up of the route of a request.

    Segments are decoded one by one, so that `%2F` does not separate segments.
    """

    def __init__(self, routes: Iterable[HttpRoute]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            self._add(route)

    def _add(self, route: HttpRoute) -> None:
        node = self._root
        for segment in route.path.split("/")[1:]:
            if segment.startswith("{"):
                node.other = node.other or _Node()
                node = node.other
                node.name = segment[1:-1]
            else:
                node = node.named.setdefault(segment, _Node())
        names = {name.wire: name for name in route.query}
        required = any(name.required for name in route.query)
        node.routes[route.method] = RouteMatch(route, {}, names, required)

    def find(self, method: str, raw_path: bytes) -> RouteMatch:
        """Return the route of *method* on *raw_path*; raise NotFound or WrongMethod."""
        node = self._root
        found: dict[str, str] = {}
        for segment in _segments(raw_path):
            below = node.named.get(segment)
            if below is None:
                below = node.other if segment else None
                if below is None:
                    raise _unknown(raw_path)
                found[below.name] = segment
            node = below
        if not node.routes or not raw_path.startswith(b"/"):
            raise _unknown(raw_path)
        meant = node.routes.get(method)
        if meant is None:
            raise WrongMethod(method, ", ".join(sorted(node.routes)))
        return RouteMatch(meant.route, found, meant.names, meant.required)


def _segments(raw_path: bytes) -> list[str]:
    # A segment that is not UTF-8 is no id either: the response is not found.
    if b"%" not in raw_path:
        return raw_path.decode("utf-8", "replace").split("/")[1:]
    raw = raw_path.split(b"/")[1:]
    return [unquote_to_bytes(each).decode("utf-8", "replace") for each in raw]


_RUNS_NOTHING = "Holdfast keeps sessions as attachment records: stores, access, and who writes."
_NOT_HERE = frozenset({"files", "vaults", "deployments", "events", "threads", "work", "skills"})


def _unknown(raw_path: bytes) -> NotFound:
    path = raw_path.decode("utf-8", "replace")
    segments = path.split("/")
    foreign = segments[1:2] == ["v1"] and not _NOT_HERE.isdisjoint(segments[2:5:2])
    return NotFound(
        "route", path, next=_RUNS_NOTHING if foreign else "See /openapi.json for every route."
    )


class SubApp(Protocol):
    """The app of another interface, for the requests to one path of the server.

    `limit` is the greatest body in bytes.
    """

    path: bytes
    route: str
    limit: int

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve within the block."""
        ...

    async def answer(
        self,
        scope: Message,
        receive: Receive,
        send: Send,
        *,
        principal: Visitor,
        hf: Holdfast,
        admitted: Callable[[], Awaitable[object]],
    ) -> None:
        """Answer a request of *principal*; *admitted* raises once it may not go on."""
        ...


MakeSubApp = Callable[[Holdfast, Callable[[Callable[[], Any]], Awaitable[Any]]], SubApp]
"""Takes the handle that is served, and what runs blocking work on a thread."""
