"""The least that a server can do: a bare Starlette app, on the settings that ours runs with."""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

from datetime import UTC, datetime
from socket import socket

import msgspec
import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Memory(Struct):
    """As many fields as the contract's memory has."""

    type: str
    id: str
    memory_store_id: str
    memory_version_id: str
    path: str
    content: str | None
    content_sha256: str
    content_size_bytes: int
    created_at: datetime
    updated_at: datetime


class Create(Struct):
    """What makes a memory."""

    path: str
    content: str


_NOW = datetime.now(UTC)


def _memory(content: str | None) -> Memory:
    return Memory(
        type="memory",
        id="mem_" + "0" * 24,
        memory_store_id="memstore_" + "0" * 24,
        memory_version_id="memver_" + "0" * 24,
        path="/notes/0000001.md",
        content=content,
        content_sha256="0" * 64,
        content_size_bytes=len(content or ""),
        created_at=_NOW,
        updated_at=_NOW,
    )


_KEPT = _memory("x" * int(sys.argv[1]))
_MADE = _memory(None)


async def _get(_: Request) -> Response:
    return Response(msgspec.json.encode(_KEPT), media_type="application/json")


async def _post(request: Request) -> Response:
    msgspec.json.decode(await request.body(), type=Create)
    return Response(msgspec.json.encode(_MADE), media_type="application/json")


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    app = Starlette(routes=[Route("/memory", _get), Route("/memories", _post, methods=["POST"])])
    _Server(
        uvicorn.Config(
            app,
            port=0,
            loop="uvloop",
            http="httptools",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
    ).run()
