"""Responses of the console: headers, static files, live events, statuses."""

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from contextlib import suppress
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import Any, Final

from holdfast.doors.console.views import Live, Visit, read_pairs
from holdfast.doors.console.visitors import ConsoleVisitor
from holdfast.ground.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    MissingExtra,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    NotRunnable,
    Refused,
    TooLarge,
    Unavailable,
    Unsupported,
)
from holdfast.ground.metrics import REGISTRY, WORK_SECONDS

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

LIVE_MOST: Final = 50
"""Live pages at once; further ones poll."""
BEAT: Final = 15.0
"""Seconds between two comments on a live page without events."""
_COMPRESSED_FROM: Final = 512
"""Bytes."""

PAGES: Final = REGISTRY.counter(
    "console_pages_total", "Pages of the console, by page and status.", page=(), status=()
)
SECONDS: Final = REGISTRY.histogram(
    "console_seconds", "Time to answer a page of the console.", WORK_SECONDS, page=()
)
LIVE: Final = REGISTRY.gauge("console_live", "Open live pages of the console.")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_SECURITY: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

STATUSES: Final[Sequence[tuple[type[HoldfastError], int]]] = (
    (NotAuthenticated, 401),
    (NotPermitted, 403),
    (NotFound, 404),
    (TooLarge, 413),
    (Unsupported, 501),
    (Conflict, 409),
    (MissingExtra, 501),
    (NotRunnable, 409),
    (Unavailable, 503),
    (InvalidInput, 400),
    (Refused, 400),
)
"""The status of a page that an error answers, by the first class that fits; 500 by others."""


def status_of(error: HoldfastError) -> int:
    """Return the status of the page that *error* answers."""
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


class ConsoleRequest:
    """The head of a request to the console."""

    def __init__(self, scope: Message) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope.get("raw_path") or self.path.encode()
        self.raw_query: bytes = scope["query_string"]
        self.query = read_pairs(self.raw_query)
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.cookies = cookies_of(self.headers.get("cookie", ""))
        self.route = "unknown"
        """The path of its route, for the metrics."""
        self.visitor: ConsoleVisitor | None = None
        self.visit: Visit | None = None
        self.open_questions = ""
        """How many questions are open, for the menu."""
        self.set_cookies: list[str] = []

    @property
    def takes_gzip(self) -> bool:
        """Whether the browser takes a compressed response."""
        return "gzip" in self.headers.get("accept-encoding", "")

    @property
    def here(self) -> str:
        """The path with its query."""
        path = self.raw_path.decode("latin-1")
        return f"{path}?{self.raw_query.decode('latin-1')}" if self.raw_query else path


def cookies_of(header: str) -> dict[str, str]:
    """Return the cookies of a request by name; none if they cannot be parsed."""
    try:
        parsed = SimpleCookie(header)
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in parsed.items()}


class ConsoleResponse:
    """A response of the console, which `send` gives the headers that all of them have.

    A `secret` one is not compressed.
    """

    def __init__(self, *, cookies: list[str]) -> None:
        self.status, self.secret = 200, False
        self.body, self.type = b"", "text/html; charset=utf-8"
        self.headers: Headers = []
        self.cookies = cookies

    async def send(self, request: ConsoleRequest, send: Send) -> None:
        """Send the response at once."""
        body, headers = self.body, [*_SECURITY, *self.headers]
        if not any(name == b"content-security-policy" for name, _ in headers):
            headers.append((b"content-security-policy", POLICY.encode()))
        if not self.secret and len(body) >= _COMPRESSED_FROM and request.takes_gzip:
            body = gzip.compress(body, 5, mtime=0)
            headers.append((b"content-encoding", b"gzip"))
        headers += [
            (b"content-type", self.type.encode()),
            (b"cache-control", b"no-store"),
            (b"vary", b"accept-encoding, cookie"),
            (b"content-length", b"%d" % len(body)),
            *((b"set-cookie", each.encode("latin-1")) for each in self.cookies),
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def send_live(
    live: Live,
    stopping: asyncio.Event,
    receive: Receive,
    send: Send,
    *,
    signed_out: Coroutine[Any, Any, None],
) -> None:
    """Send events until they end, the browser disconnects, or the server stops.

    Once *signed_out* returns the browser is sent `close`, after which it does not come back.
    """
    headers = [
        *_SECURITY,
        (b"content-security-policy", POLICY.encode()),
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    LIVE.add()

    async def piece(body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})

    async def pieces() -> None:
        await piece(b": open\n\n")
        async for id, kind, html in live.source:
            await piece(frame(id, kind, html))

    async def beats() -> None:
        while True:
            await asyncio.sleep(BEAT)
            await piece(b": beat\n\n")

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    out = asyncio.ensure_future(signed_out)
    others = (pieces(), gone(), stopping.wait(), beats())
    ends = [out, *(asyncio.ensure_future(each) for each in others)]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if out.done() and out.exception() is None:
            await piece(frame(None, "close", ""))
    finally:
        LIVE.add(by=-1)
        for each in ends:
            each.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
    with suppress(OSError):
        await send({"type": "http.response.body", "body": b""})


_LINE_END: Final = re.compile("\r\n|\r|\n")
"""What ends a line of an event; `str.splitlines` would split at more."""


def frame(id: int | None, kind: str, html: str) -> bytes:
    """Return one server-sent event; *kind* '' is an unnamed one."""
    lines = [] if id is None else [f"id: {id}"]
    if kind:
        lines.append(f"event: {kind}")
    lines += [f"data: {each}" for each in _LINE_END.split(html)]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


class Asset:
    """A static file, with its compressed form."""

    def __init__(self, type: str, body: bytes) -> None:
        self._type, self.body, self._packed = type, body, gzip.compress(body, 9, mtime=0)

    async def send(self, request: ConsoleRequest, send: Send) -> None:
        """Send the file, to be cached for a year: its address has its hash."""
        body = self._packed if request.takes_gzip else self.body
        headers = [
            *_SECURITY,
            (b"content-type", self._type.encode()),
            (b"content-security-policy", POLICY.encode()),
            (b"cache-control", b"public, max-age=31536000, immutable"),
            (b"vary", b"accept-encoding"),
            (b"content-length", b"%d" % len(body)),
        ]
        if request.takes_gzip:
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Assets:
    """Style, script and pictures, under an address that changes with their content."""

    def __init__(self) -> None:
        folder = files("holdfast.doors.console").joinpath("static")
        found = [*folder.iterdir(), *folder.joinpath("vendor").iterdir()]
        self._files = {
            each.name: Asset(_TYPES[ending], each.read_bytes())
            for each in found
            if each.is_file() and (ending := each.name.rpartition(".")[2]) in _TYPES
        }
        digest = sha256()
        for name, asset in sorted(self._files.items()):
            digest.update(name.encode() + asset.body)
        self.root = f"/console/static/{digest.hexdigest()[:16]}/"

    def address(self, name: str) -> str:
        """Return the address of the file *name*."""
        if name not in self._files:
            raise NotFound("static file", name)
        return self.root + name

    def find(self, path: str) -> Asset | None:
        """Return the file at *path*, None if there is none."""
        return self._files.get(path[len(self.root) :]) if path.startswith(self.root) else None


TITLES: Final = {
    400: "Not understood",
    401: "Sign in",
    403: "Not permitted",
    404: "Not found",
    409: "Conflict",
    413: "Too large",
    500: "Failed",
    501: "Not available",
    503: "Unavailable",
}
