"""A host in this process, connected to a server object through the official client."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import mcp_types as types
from mcp import Client

from holdfast.doors.mcp.changes import ChangeHub, feed_of
from holdfast.doors.mcp.owners import HostMemories, Owners
from holdfast.doors.mcp.server import MemoryServer, host_of
from holdfast.doors.mcp.stdio import Calls
from holdfast.library.holdfast import Holdfast

NOTES = Owners(user="ada", store="Notes")


@asynccontextmanager
async def hosted(
    hf: Holdfast, owners: Owners = NOTES, mode: str = "auto", **options: Any
) -> AsyncGenerator[Client]:
    """Connect a client to what *owners* reach in *hf*."""
    calls = Calls()
    hub = ChangeHub(feed_of(hf), calls.run)
    host = host_of(HostMemories(hf, owners))
    served = MemoryServer(lambda _: host, calls.run, hub)
    try:
        async with Client(served.server, mode=cast("Any", mode), **options) as client:
            yield client
    finally:
        hub.close()
        assert calls.finish(60)


def text_of(result: types.CallToolResult) -> str:
    """Return the only text block of *result*."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def done(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, which must succeed, and return its structured result."""
    result = await client.call_tool(name, arguments)
    assert isinstance(result, types.CallToolResult)
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return result.structured_content


async def refused(client: Client, name: str, **arguments: Any) -> str:
    """Call a tool, which must refuse, and return its text."""
    result = await client.call_tool(name, arguments)
    assert isinstance(result, types.CallToolResult)
    assert result.is_error
    assert result.structured_content is None
    return text_of(result)


async def said(client: Client, **arguments: Any) -> str:
    """Call the tool `memory`, which must succeed, and return its text."""
    result = await client.call_tool("memory", arguments)
    assert isinstance(result, types.CallToolResult)
    assert not result.is_error, text_of(result)
    return text_of(result)


def parsed(text: str) -> Any:
    """Return *text* as JSON."""
    return json.loads(text)
