"""Requests to `/mcp` of a server, as clients of both eras send them."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from served import TLS

from holdfast.library.holdfast import Holdfast

JSON_OR_STREAM = {"accept": "application/json, text/event-stream"}
MODERN = "2026-07-28"
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
EVERY = "user=ada&agent=scout&store=Notes&profile=full"
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
USERS = ["ltm_recall", "ltm_remember", "ltm_forget"]
AGENTS = ["memory_store", "memory_recall", "memory_list", "memory_forget"]
STORES = ["memory", "memory_search", "memory_history", "memory_restore"]
ALL = [*USERS, *AGENTS, *STORES]
READ = {"ltm_recall", "memory_recall", "memory_list", "memory", "memory_search", "memory_history"}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "ltm_recall": {"query": "tea"},
    "ltm_remember": {"text": "Ada has a dog."},
    "ltm_forget": {"id": "item_none"},
    "memory_store": {"key": "other", "category": "core", "content": "x"},
    "memory_recall": {"key": "target"},
    "memory_list": {},
    "memory_forget": {"key": "target"},
    "memory": {"command": "view", "path": "/memories/a.md"},
    "memory_search": {"query": "tabs"},
    "memory_history": {"path": "/memories/a.md"},
    "memory_restore": {"version_id": "memver_none"},
}


def filled(hf: Holdfast) -> str:
    """Fill each memory of ada and scout with one text, and return the id of the store Notes."""
    store = hf.memory_stores.create(name="Notes").id
    hf.memory_stores.memories.create(store, path="/a.md", content="tabs")
    hf.durable("scout").set("target", "fly.io", category="core")
    ltm = hf.longterm("ada", enabled=True)
    assert ltm is not None
    ltm.remember("Ada drinks tea.")
    return store


def key(hf: Holdfast, **more: Any) -> str:
    """Return the secret of a new key."""
    return str(hf.keys.create("k", **more).secret)


def token(hf: Holdfast, *stores: str, access: str = "read_write") -> str:
    """Return a token of a new session with *stores* attached."""
    resources = [
        {"type": "memory_store", "memory_store_id": each, "access": access} for each in stores
    ]
    session = hf.sessions.create(agent="a", environment_id="e", resources=resources).id
    return str(hf.sessions.create_token(session).token)


@asynccontextmanager
async def connected(
    url: str,
    query: str = "",
    mode: str = "auto",
    *,
    secret: str | None = None,
    headers: dict[str, str] | None = None,
    **options: Any,
) -> AsyncGenerator[Client]:
    """Connect a client to the server at *url*."""
    sent = dict(headers or {})
    if secret is not None:
        sent["authorization"] = f"Bearer {secret}"
    async with httpx2.AsyncClient(headers=sent, timeout=60, verify=TLS) as http:
        transport = streamable_http_client(f"{url}?{query}" if query else url, http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


def post(url: str, body: object = INITIALIZE, **headers: str) -> httpx2.Response:
    """Send one request; names of *headers* have underscores, and bytes are sent as they are."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": "application/json", **JSON_OR_STREAM, **names}
    return httpx2.post(url, content=content, headers=sent, timeout=60, verify=TLS)


META = {
    PROTOCOL_VERSION_META_KEY: MODERN,
    CLIENT_INFO_META_KEY: {"name": "test", "version": "1"},
    CLIENT_CAPABILITIES_META_KEY: {},
}


def modern(url: str, method: str, **headers: str) -> httpx2.Response:
    """Send a request of the modern era, which needs no session."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META}}
    return post(url, body, mcp_protocol_version=MODERN, mcp_method=method, **headers)


async def tools(client: Client) -> list[str]:
    """Return the names of the tools that *client* lists."""
    return [each.name for each in (await client.list_tools()).tools]
