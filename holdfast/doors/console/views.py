"""Requests to pages of the console, what answers them, and the table of routes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode

from msgspec import Struct, field

from holdfast.doors.console.visitors import ConsoleServer, ConsoleVisitor
from holdfast.ground.errors import HoldfastError, InvalidInput, NotFound
from holdfast.ground.pages import Page
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import KeyScope

ROWS: Final = 50
ROWS_MOST: Final = 100
"""Rows of a page."""
DIGITS: Final = 18
TOKEN_MOST: Final = 40
"""Characters of a name that is typed to confirm."""

Bound = Literal["never", "agent", "user", "any"]
"""Which bound keys may open a page: of the agent or the person in its path, or any."""


def address(*segments: str, **query: object) -> str:
    """Return the address of a page of the console.

    Each of *segments* is one percent-encoded segment. Values of *query* that are None or empty are
    left out; a list or tuple is given once for each of its values.
    """
    path = "/".join(("/console", *(quote(each, safe="") for each in segments)))
    pairs = [(name, each) for name, value in query.items() for each in _several(value)]
    given = [(name, str(each)) for name, each in pairs if each is not None and each != ""]
    return f"{path}?{urlencode(given)}" if given else path


def _several(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)  # pyright: ignore[reportUnknownVariableType] - rendered with str


Render = Callable[[str, Mapping[str, Any]], str]
"""Takes a template and its values, and returns HTML."""


class Visit:
    """A request to the console: its visitor, what it names, and their handle.

    `query` and `form` hold the last value of each name; `ticks` gives all of them. `error` is what
    refused the form that is shown again. `render` makes a part of a page, for a live one, which
    goes on after `last_event_id` where its connection broke.
    """

    __slots__ = (
        "_pairs",
        "chat_models",
        "error",
        "form",
        "hf",
        "last_event_id",
        "now",
        "query",
        "render",
        "segments",
        "server",
        "visitor",
    )

    def __init__(
        self,
        server: ConsoleServer,
        visitor: ConsoleVisitor,
        segments: Mapping[str, str],
        query: Sequence[tuple[str, str]],
        form: Sequence[tuple[str, str]] = (),
        *,
        render: Render,
    ) -> None:
        self.server, self.visitor, self.segments = server, visitor, segments
        self.hf: Holdfast = server.hf.acting(workspace=visitor.workspace, actor=visitor.actor)
        self.query, self.form = dict(query), dict(form)
        self._pairs = (*query, *form)
        self.now: datetime = server.clock.now()
        self.error: HoldfastError | None = None
        self.render = render
        self.last_event_id: str | None = None
        self.chat_models: Sequence[str] = ()

    def __getitem__(self, name: str) -> str:
        """Return the segment *name* of the address."""
        return self.segments[name]

    def ticks(self, name: str) -> list[str]:
        """Return every value of *name*, such as those of ticked rows, in their order."""
        return [value for each, value in self._pairs if each == name]

    def text(self, name: str) -> str | None:
        """Return the value of *name* in the address; None if it is missing or empty."""
        return self.query.get(name) or None

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return the number *name* of the address; raise InvalidInput outside the limits."""
        given = self.query.get(name, "").strip()
        if not given:
            return default
        if not given.isdecimal() or len(given) > DIGITS or not least <= int(given) <= most:
            reason = f"must be a number from {least:,} to {most:,}"
            raise InvalidInput(name, reason, limit=most, given=given)
        return int(given)

    @property
    def limit(self) -> int:
        """The rows of a page that the address asks for."""
        return self.number("limit", ROWS, least=1, most=ROWS_MOST)

    @property
    def page(self) -> str | None:
        """The cursor in the address."""
        return self.text("page")

    def typed(self, name: str, default: str | None = "") -> str:
        """Return what was typed into the field *name* of a form that is shown again."""
        return self.form.get(name, default or "")

    def written(self, name: str) -> str:
        """Return the text that a form sent in the field *name*."""
        if name not in self.form:
            raise InvalidInput(name, "is missing", next="Send the form of the page.")
        # Browsers send \r\n for each end of a line.
        return self.form[name].replace("\r\n", "\n")

    def confirm(self, token: str) -> None:
        """Raise InvalidInput unless the form's confirmation is *token*."""
        given = self.form.get("confirmation", "").strip()
        if given != token:
            raise InvalidInput(
                "confirmation",
                "is not the text that is shown",
                given=given,
                next="Type the text shown in the dialog.",
            )


def confirmation(name: str, id: str) -> str:
    """Return what is to be typed to confirm an act that cannot be undone.

    The *name* if it is printable ASCII of at most `TOKEN_MOST` characters, else the end of *id*.
    """
    plain = name.isascii() and name.isprintable() and name == name.strip()
    return name if plain and 0 < len(name) <= TOKEN_MOST else id[-6:]


class Undo(Struct, frozen=True):
    """The form that undoes what was just done."""

    action: str
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    label: str = "Undo"


class PageView(Struct, frozen=True, kw_only=True):
    """A page: its template, and the values that it shows.

    `up` are the links above the heading, outermost first. `section` is the entry of the menu. A
    `secret` one is not compressed. `done` is a sentence about what was just done, with `undo`: the
    address and the fields of the form that undoes it. `sign_in` is a key that the visitor is
    signed in with.
    """

    template: str
    title: str
    section: str
    values: Mapping[str, Any]
    up: Sequence[tuple[str, str]] = ()
    status: int = 200
    secret: bool = False
    done: str | None = None
    undo: Undo | None = None
    sign_in: str | None = None


class Redirect(Struct, frozen=True):
    """Go on at another page: an answer to a form that was carried out."""

    to: str


class Download(Struct, frozen=True, kw_only=True):
    """A file for the visitor to keep."""

    name: str
    type: Literal["text/plain", "application/json", "application/x-ndjson", "application/zip"]
    body: bytes


class Fragment(Struct, frozen=True, kw_only=True):
    """A part of a page, to be put into one that is open."""

    template: str
    values: Mapping[str, Any]


class Live(Struct, frozen=True):
    """Events for an open page, each as id, type and HTML.

    Without an id the browser cannot go on from the event.
    """

    source: AsyncIterator[tuple[int | None, str, str]]


Answer = PageView | Redirect | Download | Fragment
Handler = Callable[[Visit], Answer]
Streamer = Callable[[Visit], Awaitable[Live | Answer]]


class ConsoleRoute(Struct, frozen=True, kw_only=True):
    """One method on one path below `/console`.

    `answer` runs on a thread, `stream` on the event loop. `again` shows the form that was refused.
    """

    method: Literal["GET", "POST"]
    path: str
    needs: KeyScope
    bound: Bound
    answer: Handler | None = None
    stream: Streamer | None = None
    again: Handler | None = None


def page(
    path: str, answer: Handler, *, needs: KeyScope = "read", bound: Bound = "never"
) -> ConsoleRoute:
    """Return the route of a page, which changes nothing."""
    return ConsoleRoute(method="GET", path=path, needs=needs, bound=bound, answer=answer)


def act(
    path: str,
    answer: Handler,
    *,
    needs: KeyScope = "write",
    bound: Bound = "never",
    again: Handler | None = None,
) -> ConsoleRoute:
    """Return the route of a form; *again* shows what was typed, if it is refused."""
    return ConsoleRoute(
        method="POST", path=path, needs=needs, bound=bound, answer=answer, again=again
    )


def stream(
    path: str,
    answer: Streamer,
    *,
    method: Literal["GET", "POST"] = "GET",
    needs: KeyScope = "read",
    bound: Bound = "never",
) -> ConsoleRoute:
    """Return the route of live events for a page."""
    return ConsoleRoute(method=method, path=path, needs=needs, bound=bound, stream=answer)


class ConsoleRoutes:
    """Look-up of the route of a request by its segments, decoded one by one."""

    def __init__(self, routes: Iterable[ConsoleRoute]) -> None:
        self.routes = tuple(routes)
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, ConsoleRoute]]]] = {}
        for route in self.routes:
            self._add(route)

    def _add(self, route: ConsoleRoute) -> None:
        parts = tuple(route.path.split("/")[1:])
        same = self._by_length.setdefault(len(parts), [])
        for known, methods in same:
            if known == parts:
                methods[route.method] = route
                return
        same.append((parts, {route.method: route}))
        # A segment that is written out comes before one that is an id.
        same.sort(key=lambda each: [part.startswith("{") for part in each[0]])

    def find(self, raw_path: bytes) -> tuple[Mapping[str, ConsoleRoute], dict[str, str]]:
        """Return the routes at *raw_path* by method, and its segments; raise NotFound."""
        raw = raw_path.removeprefix(b"/console").removeprefix(b"/")
        given = [unquote_to_bytes(each).decode("utf-8", "replace") for each in raw.split(b"/")]
        if not raw:
            given = [""]
        for parts, methods in self._by_length.get(len(given), ()):
            pairs = list(zip(parts, given, strict=True))
            if all(part == value or (part.startswith("{") and value) for part, value in pairs):
                return methods, {p[1:-1]: value for p, value in pairs if p.startswith("{")}
        raise NotFound("page", raw_path.decode("utf-8", "replace"), next="Go to the overview.")


def read_pairs(raw: bytes) -> list[tuple[str, str]]:
    """Return the names and values of a query or a form."""
    try:
        return parse_qsl(
            raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=2_000
        )
    except ValueError:
        raise InvalidInput("form", "has more than 2,000 fields", limit=2_000) from None


class Pager(Struct, frozen=True):
    """Links from one page of a list to others; None where there is none."""

    first: str | None
    next: str | None


def pager(visit: Visit, found: Page[Any], *segments: str, name: str = "page") -> Pager:
    """Return the links between pages of the list *found* at *segments*."""
    query = {key: value for key, value in visit.query.items() if key not in {name, "done", "undo"}}
    first = address(*segments, **query) if visit.query.get(name) else None
    following = address(*segments, **{**query, name: found.next_page}) if found.next_page else None
    return Pager(first, following)
