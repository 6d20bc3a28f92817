"""A host with a 1.x client of the protocol: does what hosts do, and prints what it got as JSON.

A program for the environment that has such a client. Its arguments are the URL of a server, or the
command that starts one.
"""

# The types at hand are those of release 2, which has other names.
# pyright: basic, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportCallIssue=false

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl

NOTE = "/memories/style.md"
SECONDS = 60


class Notices:
    """The notices that the server sent: the URI of each, or `list`."""

    def __init__(self) -> None:
        self._received: asyncio.Queue[str] = asyncio.Queue()

    async def receive(self, message: object) -> None:
        """Take a message of the server."""
        if not isinstance(message, types.ServerNotification):
            return
        if isinstance(message.root, types.ResourceUpdatedNotification):
            self._received.put_nowait(str(message.root.params.uri))
        elif isinstance(message.root, types.ResourceListChangedNotification):
            self._received.put_nowait("list")

    async def until(self, notice: str) -> str:
        """Return *notice* once it has come."""
        async with asyncio.timeout(SECONDS):
            while await self._received.get() != notice:
                pass
        return notice


@asynccontextmanager
async def connected(address: list[str], notices: Notices) -> AsyncGenerator[ClientSession]:
    """Connect to the server at *address*."""
    if address[0].startswith("http"):
        transport = streamablehttp_client(address[0])
    else:
        server = StdioServerParameters(command=address[0], args=address[1:], env=dict(os.environ))
        transport = stdio_client(server)
    async with (
        transport as (received, sent, *_),
        ClientSession(received, sent, message_handler=notices.receive) as session,
    ):
        yield session


async def call(session: ClientSession, name: str, **arguments: object) -> list[Any]:
    """Return the text of a tool's result, and whether it is an error."""
    result = await session.call_tool(name, arguments)
    (block,) = result.content
    return [block.text, result.isError]


async def code_of(request: Awaitable[object]) -> int | None:
    """Return the code of the error that *request* ends with."""
    try:
        await request
    except McpError as error:
        return error.error.code
    return None


async def tools(session: ClientSession) -> dict[str, Any]:
    """List the tools, and call some."""
    listed = (await session.list_tools()).tools
    remembered = await call(session, "ltm_remember", text="Prefers tabs to spaces")
    recalled = await call(session, "ltm_recall", query="tabs")
    return {
        "tools": [each.name for each in listed],
        "read_only": [
            each.name for each in listed if each.annotations and each.annotations.readOnlyHint
        ],
        "remembered": json.loads(remembered[0])["stored"],
        "recalled": json.loads(recalled[0])["results"][0]["text"],
        "refused": await call(session, "memory", command="view", path="/memories/none.md"),
        "unknown_tool": await code_of(session.call_tool("sing", {})),
    }


async def resources(session: ClientSession, notices: Notices) -> dict[str, Any]:
    """Write a note, subscribe to it, and read it before and after a change."""
    await session.list_resources()
    created = await call(session, "memory", command="create", path=NOTE, file_text="tabs")
    listed_again = await notices.until("list")
    listed = (await session.list_resources()).resources
    (note,) = [str(each.uri) for each in listed if each.name == "/style.md"]
    before = (await session.read_resource(AnyUrl(note))).contents[0]
    await session.subscribe_resource(AnyUrl(note))
    edit = {"command": "str_replace", "path": NOTE, "old_str": "tabs", "new_str": "spaces"}
    await call(session, "memory", **edit)
    noticed = await notices.until(note)
    after = (await session.read_resource(AnyUrl(note))).contents[0]
    await session.unsubscribe_resource(AnyUrl(note))
    templates = (await session.list_resource_templates()).resourceTemplates
    return {
        "created": created,
        "noticed": [listed_again, noticed == note],
        "note": [before.text, after.text, after.mimeType],
        "resources": [each.name for each in listed],
        "templates": [each.uriTemplate for each in templates],
        "unknown_resource": await code_of(session.read_resource(AnyUrl(f"{note}x"))),
    }


async def prompts(session: ClientSession) -> dict[str, Any]:
    """List the prompts, and get one."""
    listed = (await session.list_prompts()).prompts
    recall = await session.get_prompt("recall", {"topic": "tabs"})
    return {
        "prompts": {each.name: [one.name for one in each.arguments or ()] for each in listed},
        "recall": [[each.role, each.content.text] for each in recall.messages],
    }


async def main(address: list[str]) -> None:
    """Print what a host gets from the server at *address*."""
    notices = Notices()
    async with connected(address, notices) as session:
        begun = await session.initialize()
        await session.send_ping()
        found = {
            "client": version("mcp"),
            "revision": begun.protocolVersion,
            "instructions": begun.instructions,
            "subscribe": begun.capabilities.model_dump()["resources"]["subscribe"],
            **await tools(session),
            **await resources(session, notices),
            **await prompts(session),
        }
    sys.stdout.write(json.dumps(found))


asyncio.run(main(sys.argv[1:]))
