"""A route: what is asked for, who may ask, and who answers. And the table of all of them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from msgspec import Struct, field

from holdfast.doors.http.answers import LiveAnswer, Response
from holdfast.doors.http.params import Body
from holdfast.doors.http.query import Name
from holdfast.doors.http.response import WrongMethod
from holdfast.ground.errors import NotFound

MIB = 1_048_576
DURABLE_LIMIT = 4 * MIB
LONGTERM_LIMIT = 32 * MIB
THREADS_LIMIT = 32 * MIB

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Needs = Literal["nothing", "any", "read", "write", "admin"]
"""The least right: no credential at all, any credential, or a key of that scope."""

Handler = Callable[[Any], Awaitable[Response | LiveAnswer]]
"""Takes a Call, which stands above the routes."""


class HttpRoute(Struct, frozen=True, kw_only=True):
    """One method on one path.

    `path` has a `{name}` for each segment that is an id. `session` says whether a session token
    may ask: never, about its own session (`id`), or about stores attached to it (`s`). `behind`
    looks whether what the path names is there; it is asked when the body or the query is wrong,
    because an unknown id is told before a bad request. `bound` says whether a key may ask that is
    bound to the agent, or to the user, in the path. A `durable` route's errors carry a code.
    """

    method: Method
    path: str
    needs: Needs
    answer: Handler
    summary: str
    body: type[Body] | Literal["any", "lines"] | None = None
    query: tuple[Name, ...] = ()
    session: Literal["never", "own", "store"] = "never"
    behind: Callable[[Any], Awaitable[object]] | None = None
    limit: int = MIB
    bound: Literal["never", "agent", "user"] = "never"
    durable: bool = False

    @property
    def contract(self) -> bool:
        """Whether it is part of somebody else's contract."""
        return self.path.startswith("/v1/")

    @property
    def ours(self) -> bool:
        """Whether a name that its query does not know is refused."""
        return self.path.startswith("/api/")

    @property
    def changes(self) -> bool:
        """Whether asking may change something."""
        return self.method != "GET"


class RouteMatch(Struct, frozen=True):
    """A route, what stands in its path's places, and its query's names as they are written."""

    route: HttpRoute
    segments: Mapping[str, str]
    names: Mapping[str, Name]


class _Node(Struct):
    named: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])
    other: "_Node | None" = None
    name: str = ""
    routes: dict[str, tuple[HttpRoute, dict[str, Name]]] = field(
        default_factory=dict[str, tuple[HttpRoute, dict[str, Name]]]
    )


class RouteTable:
    """Finds the route of a request. Segments are decoded one by one: `%2F` divides nothing."""

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
        node.routes[route.method] = route, {name.wire: name for name in route.query}

    def find(self, method: str, raw_path: bytes) -> RouteMatch:
        """Return the route of *method* on *raw_path*; NotFound, or WrongMethod."""
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
        return RouteMatch(meant[0], found, meant[1])


def _segments(raw_path: bytes) -> list[str]:
    # What is no UTF-8 is no id either: the answer is that there is no such thing.
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
