"""A server that says what a test wants it to say, and what its records look like on the wire."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import HoldfastError

JSON = dict[str, Any]
AT = "2026-11-21T10:00:00.123456Z"
STORE: JSON = {
    "type": "memory_store",
    "id": "memstore_1",
    "name": "Notes",
    "description": "",
    "metadata": {},
    "created_at": AT,
    "updated_at": AT,
    "archived_at": None,
}
MEMORY: JSON = {
    "type": "memory",
    "id": "mem_1",
    "memory_store_id": "memstore_1",
    "memory_version_id": "memver_1",
    "path": "/a.md",
    "content": "tabs",
    "content_sha256": "0" * 64,
    "content_size_bytes": 4,
    "created_at": AT,
    "updated_at": AT,
}
VERSION: JSON = {
    "type": "memory_version",
    "id": "memver_1",
    "memory_store_id": "memstore_1",
    "memory_id": "mem_1",
    "operation": "created",
    "path": "/a.md",
    "content": "tabs",
    "content_size_bytes": 4,
    "content_sha256": "0" * 64,
    "created_at": AT,
    "created_by": {"type": "api_actor", "api_key_id": "apikey_1"},
    "redacted_at": None,
    "redacted_by": None,
}
ME: JSON = {
    "type": "identity",
    "actor": {"type": "api_actor", "api_key_id": "apikey_1"},
    "scope": "write",
    "workspace": "w1",
    "agent": None,
    "user": None,
    "at": "2026-01-01T00:00:00.000000Z",
}


@dataclass
class Answer:
    """What the server says next; a status of 0 hangs up without a word."""

    body: object = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> object:
        return json.loads(self.body)


HANG_UP = Answer(status=0)


class Scripted(ThreadingHTTPServer):
    """Gives the answers it was handed, one after the other, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Asked] = []
        self.answers: list[Answer] = []

    def says(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = cast("Scripted", self.server)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        server.asked.append(Asked(self.command, self.path, headers, body))
        answer = server.answers.pop(0)
        if answer.status == 0:
            self.close_connection = True
            return
        content = (
            answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        )
        self.send_response(answer.status)
        for name, value in {"content-length": str(len(content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""


def refusal(error: HoldfastError, status: int) -> Answer:
    """Return the answer of a server that met *error* on a compat route."""
    facts = {
        name: to_rfc3339(value) if isinstance(value, datetime) else value
        for name, value in error.carried().items()
    }
    told = {"class": type(error).__name__, "next": error.next, "facts": facts}
    body = {"type": "error", "error": {"type": "x_error", "message": str(error)}}
    return Answer(body, status, {"holdfast-error": json.dumps(told)})
