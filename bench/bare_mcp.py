"""The least that a host can be served: the SDK's server over stdio, with one tool."""

import sys

# What lies beside comes last: the `mcp.py` here must not stand before the SDK.
sys.path.append(sys.path.pop(0))

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

ECHO = types.Tool(
    name="echo",
    description="Return the text.",
    input_schema={
        "type": "object",
        "required": ["text"],
        "properties": {"text": {"type": "string"}},
    },
)


async def listed(_: object, __: object) -> types.ListToolsResult:
    """List the tool."""
    return types.ListToolsResult(tools=[ECHO])


async def called(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Return the text that the tool was called with."""
    text = str((params.arguments or {})["text"])
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main() -> None:
    """Serve one host until it closes standard input."""
    server: Server[Any] = Server("bare", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
