"""Asks an app without a socket, and keeps what it said."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import Struct

from holdfast.doors.http.app import App
from holdfast.library.holdfast import Holdfast

HOST = "127.0.0.1:8420"
"""The `Host` of requests that name no other."""


class Said(Struct, frozen=True):
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return self.json()["error"]

    @property
    def facts(self) -> dict[str, Any]:
        return json.loads(self.headers["holdfast-error"])


class Asker:
    """Asks one app, one request after the other, as whoever sends *headers*.

    One that `stays` does not leave before a live answer is over.
    """

    def __init__(
        self, app: App, runner: asyncio.Runner, headers: Mapping[str, str] | None = None
    ) -> None:
        self.app, self.runner, self._headers = app, runner, dict(headers or {})
        self.stays = False

    def as_(self, **headers: str) -> "Asker":
        return Asker(self.app, self.runner, {k.replace("_", "-"): v for k, v in headers.items()})

    def get(self, target: str, **headers: str) -> Said:
        return self("GET", target, headers=headers)

    def post(self, target: str, body: object = None) -> Said:
        return self("POST", target, body)

    def __call__(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        chunks: int = 1,
    ) -> Said:
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        return self.runner.run(self._ask(method, target, raw, headers or {}, chunks))

    async def awaited(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Said:
        """Return the answer to a request that is one of several at a time."""
        raw = b"" if body is None else json.dumps(body).encode()
        return await self._ask(method, target, raw, headers or {}, 1)

    async def _ask(
        self, method: str, target: str, raw: bytes, headers: Mapping[str, str], chunks: int
    ) -> Said:
        path, _, query = target.partition("?")
        told = {"host": HOST, **self._headers, **headers}
        if chunks == 1 and raw:
            told["content-length"] = str(len(raw))
        if chunks > 1:
            told["transfer-encoding"] = "chunked"
        size = -(-len(raw) // chunks) or 1
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)] or [b""]
        messages = [
            {"type": "http.request", "body": piece, "more_body": at < len(pieces) - 1}
            for at, piece in enumerate(pieces)
        ]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not messages and self.stays:
                await asyncio.Event().wait()
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": quote(path, safe="/%:@!$&'()*+,;=~").encode(),
            "query_string": quote(query, safe="/%:@!$&'()*+,;=~?[]").encode(),
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in told.items()],
        }
        await self.app(scope, receive, send)
        start, *bodies = sent
        found = {k.decode(): v.decode("latin-1") for k, v in start["headers"]}
        return Said(start["status"], found, b"".join(each["body"] for each in bodies))


class SharedApp(NamedTuple):
    """A handle that tests share, and what asks its app."""

    hf: Holdfast
    ask: Asker
