"""A visitor of the console without a browser: sends forms, keeps cookies, reads pages."""

import asyncio
import gzip
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from holdfast.doors.http.app import App

HOST = "127.0.0.1:8420"
ORIGIN = f"http://{HOST}"
Fields = Mapping[str, str | Sequence[str]]
_VOID = {"input", "meta", "link", "br", "hr", "img", "use", "rect", "path", "circle", "line"}


class Skeleton(HTMLParser):
    """The elements of a page with the names of their attributes, in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.named: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(" ".join((tag, *sorted(name for name, _ in attrs))))
        self.named.append((tag, dict(attrs)))
        self.links += [value or "" for name, value in attrs if name == "href" and tag == "a"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@lru_cache(maxsize=8)
def _parsed(html: str) -> Skeleton:
    found = Skeleton()
    found.feed(html)
    return found


class Shown(Struct, frozen=True):
    """One answer of the console."""

    status: int
    headers: dict[str, str]
    cookies: tuple[str, ...]
    body: bytes

    @property
    def html(self) -> str:
        packed = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.body) if packed else self.body).decode()

    @property
    def page(self) -> Skeleton:
        return _parsed(self.html)

    @property
    def text(self) -> str:
        """The text of the page, with single spaces."""
        return " ".join(" ".join(self.page.texts).split())

    @property
    def skeleton(self) -> list[str]:
        """Its elements, without the marks of hidden characters and titles of cut texts."""
        shown = (each.replace("bdi title", "bdi") for each in self.page.elements)
        return [each for each in shown if each != "span class title"]

    @property
    def location(self) -> str:
        return self.headers["location"]

    def named(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """Return the elements *tag* that have all of *attributes* (`aria_label` for a hyphen)."""
        meant = {name.replace("_", "-").rstrip("-"): value for name, value in attributes.items()}
        return [
            given
            for name, given in self.page.named
            if name == tag and all(given.get(each) == value for each, value in meant.items())
        ]


class ConsoleClient:
    """One visitor, with the cookies that the console set."""

    def __init__(self, app: App, runner: asyncio.Runner) -> None:
        self.app, self.runner = app, runner
        self.cookies: dict[str, str] = {}

    def get(self, target: str, **headers: str) -> Shown:
        """Open the page at *target*, an address that begins with `/console`."""
        return self.send("GET", target, headers={"accept": "text/html", **headers})

    def post(self, target: str, fields: Fields | None = None, **headers: str) -> Shown:
        """Send a form with *fields*, as a browser does from a page of the console."""
        body = urlencode(fields or {}, doseq=True).encode()
        site = {"sec-fetch-site": "same-origin", "origin": ORIGIN}
        return self.send("POST", target, body, headers={**site, **headers})

    def follow(self, shown: Shown) -> Shown:
        """Open the page that *shown* redirects to."""
        assert shown.status == 303, shown.text
        return self.get(shown.location)

    def sign_in(self, key: str) -> Shown:
        """Sign in with *key*."""
        return self.post("/console/sign-in", {"key": key})

    def send(
        self, method: str, target: str, body: bytes = b"", *, headers: Mapping[str, str]
    ) -> Shown:
        """Send one request, and keep the cookies of its answer."""
        shown = self.runner.run(self._send(method, target, body, headers))
        for each in shown.cookies:
            for name, morsel in SimpleCookie(each).items():
                self.cookies[name] = morsel.value
                if morsel["max-age"] == "0":
                    del self.cookies[name]
        return shown

    async def _send(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> Shown:
        path, _, query = target.partition("?")
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        given = {"host": HOST, **({"cookie": cookie} if cookie else {}), **headers}
        if method == "POST":
            given |= {
                "content-type": "application/x-www-form-urlencoded",
                "content-length": str(len(body)),
            }
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        sent: list[dict[str, Any]] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        head = sent[0]
        pairs = [(name.decode(), value.decode()) for name, value in head["headers"]]
        return Shown(
            head["status"],
            dict(pairs),
            tuple(value for name, value in pairs if name == "set-cookie"),
            b"".join(each.get("body", b"") for each in sent[1:]),
        )


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</textarea><script>alert(1)</script>",
    "</title></pre></table><base href=//evil.example><meta http-equiv=refresh content=0>",
    "<form action=//evil.example><iframe src=javascript:alert(1)></iframe><style>*{}</style>",
    '" hx-get="/x" hx-trigger="load" onclick="alert(1)',
    "{{ 7*7 }}{% raw %}${7*7}",
    "javascript:alert(1)",
    "\u202edrow\u202c \u2066x\u2069 \u200b\u2066 e\u0301\u0301\u0301 \U0001f600",
)
"""Texts that would do harm where they were not escaped."""
