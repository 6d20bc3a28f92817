"""Several hosts on one database: no write is lost, and each is notified of the others' changes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from doors.mcp.hosting import Notices, text_of
from doors.mcp.process import parameters
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import holdfast
from holdfast.doors.mcp.http import HttpHosts
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio

HOSTS = 3
WRITES = 100
"""Calls of each host: 300 writes in all."""


async def write(client: Client, name: str) -> None:
    """Add observations, one call after the other."""
    for number in range(WRITES):
        entry = {"entityName": "Ada", "contents": [f"{name} {number}"]}
        await call(client, "add_observations", observations=[entry])


async def call(client: Client, tool: str, **arguments: Any) -> types.CallToolResult:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, types.CallToolResult)
    assert not result.is_error, text_of(result)
    return result


@asynccontextmanager
async def hosts(
    tmp_path: Path, mode: str, profile: str, query: str
) -> AsyncGenerator[tuple[Holdfast, list[Client], list[Notices]]]:
    """Connect two clients over stdio and one over HTTP to one file."""
    target, notices = str(tmp_path / "holdfast.db"), [Notices() for _ in range(HOSTS)]
    arguments = ["--db", target, "--profile", profile]
    with (
        holdfast.open(target) as hf,
        serving(hf, clock=SystemClock(), make_subapp=HttpHosts) as url,
    ):
        hf.memory_stores.create(name="Notes")
        servers = [
            parameters(tmp_path, *arguments),
            parameters(tmp_path, *arguments),
            streamable_http_client(f"{url}/mcp?profile={profile}&{query}"),
        ]
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    Client(server, mode=mode, message_handler=received.receive)
                )
                for server, received in zip(servers, notices, strict=True)
            ]
            yield hf, clients, notices


async def test_three_hosts_at_once_lose_no_write(tmp_path: Path, mode: str) -> None:
    async with hosts(tmp_path, mode, "graph", "") as (_, clients, _):
        entity = {"name": "Ada", "entityType": "person", "observations": ["writes"]}
        await call(clients[0], "create_entities", entities=[entity])

        await asyncio.gather(
            *(write(client, f"host {number}") for number, client in enumerate(clients))
        )

        result = await call(clients[0], "open_nodes", names=["Ada"])
    assert result.structured_content is not None
    (ada,) = result.structured_content["entities"]
    assert sorted(ada["observations"]) == sorted(
        ["writes"]
        + [f"host {number} {write}" for number in range(HOSTS) for write in range(WRITES)]
    )


async def test_each_host_is_notified_of_the_others_changes(tmp_path: Path, mode: str) -> None:
    async with (
        hosts(tmp_path, mode, "files", "store=Notes") as (hf, clients, notices),
        AsyncExitStack() as stack,
    ):
        (store,) = hf.memory_stores.list().data
        notes = [f"holdfast://stores/{store.id}/{number}.md" for number in range(HOSTS)]
        for client, received in zip(clients, notices, strict=True):
            await stack.enter_async_context(received.following(client, *notes))

        for number, client in enumerate(clients):
            path = f"/memories/{number}.md"
            await call(client, "memory", command="create", path=path, file_text="tabs")
            noticed = [asyncio.ensure_future(each.until(notes[number])) for each in notices]
            # A client over HTTP opens its stream some time after it has connected.
            while not all(each.done() for each in noticed):
                await asyncio.wait(noticed, timeout=1)
                await call(
                    client, "memory", command="insert", path=path, insert_line=0, insert_text="x"
                )
            await asyncio.gather(*noticed)
