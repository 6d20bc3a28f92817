"""A host in this process, connected to a server object through the official client."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

import mcp_types as types
from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ResourceUpdated

from holdfast.doors.mcp.changes import ChangeHub, feed_of
from holdfast.doors.mcp.owners import HostMemories, Owners
from holdfast.doors.mcp.server import Host, MemoryServer, host_of
from holdfast.doors.mcp.stdio import Calls
from holdfast.library.holdfast import Holdfast

NOTES = Owners(user="ada", store="Notes")
GRAPH = [
    "create_entities",
    "create_relations",
    "add_observations",
    "delete_entities",
    "delete_observations",
    "delete_relations",
    "read_graph",
    "search_nodes",
    "open_nodes",
]
"""The tools of profile `graph`."""


@asynccontextmanager
async def hosted(
    hf: Holdfast, owners: Owners = NOTES, mode: str = "auto", **options: Any
) -> AsyncGenerator[Client]:
    """Connect a client to what *owners* reach in *hf*."""
    async with served(hf, host_of(HostMemories(hf, owners)), mode, **options) as client:
        yield client


@asynccontextmanager
async def served(hf: Holdfast, host: Host, mode: str, **options: Any) -> AsyncGenerator[Client]:
    """Connect a client to *host*."""
    calls = Calls()
    hub = ChangeHub(feed_of(hf), calls.run)
    server = MemoryServer(lambda _: host, calls.run, hub).server
    try:
        async with Client(server, mode=cast("Any", mode), **options) as client:
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


LISTED = "list"
"""The notice that the list of resources changed."""


async def subscribe(client: Client, uri: str) -> None:
    """Subscribe to *uri* as the handshake era does."""
    params = types.SubscribeRequestParams(uri=uri)
    await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)


async def unsubscribe(client: Client, uri: str) -> None:
    """End a subscription as the handshake era does."""
    params = types.UnsubscribeRequestParams(uri=uri)
    await client.session.send_request(types.UnsubscribeRequest(params=params), types.EmptyResult)


class Notices:
    """The notices that a client receives: the URI of each, or LISTED."""

    def __init__(self) -> None:
        self._received: asyncio.Queue[str] = asyncio.Queue()
        self._listening = False

    async def receive(self, message: IncomingMessage) -> None:
        """Take a notice of the handshake era: the handler of a client's messages."""
        if self._listening:
            return
        if isinstance(message, types.ResourceUpdatedNotification):
            self._received.put_nowait(message.params.uri)
        elif isinstance(message, types.ResourceListChangedNotification):
            self._received.put_nowait(LISTED)

    @asynccontextmanager
    async def following(self, client: Client, *uris: str) -> AsyncGenerator[None]:
        """Subscribe *client* to *uris* and to the list, as its era does."""
        if client.protocol_version < "2026":
            await client.list_resources()
            for uri in uris:
                await subscribe(client, uri)
            yield
            return
        self._listening = True
        async with client.listen(resource_subscriptions=uris, resources_list_changed=True) as found:

            async def read() -> None:
                async for event in found:
                    uri = event.uri if isinstance(event, ResourceUpdated) else LISTED
                    self._received.put_nowait(uri)

            reading = asyncio.ensure_future(read())
            try:
                yield
            finally:
                reading.cancel()

    async def until(self, notice: str) -> list[str]:
        """Return the notices before *notice*, once that has come."""
        found = list[str]()
        async with asyncio.timeout(60):
            while (each := await self._received.get()) != notice:
                found.append(each)
        return found


class Fence:
    """Writes after which every earlier notice has been sent: two, for a resource of its own."""

    uri = "holdfast://durable/fence"

    def __init__(self, hf: Holdfast) -> None:
        self._write = partial(hf.durable("fence").set, "passed", category="core")
        self._number = 0

    async def passed(self, notices: Notices) -> list[str]:
        """Return the notices until now."""
        found = list[str]()
        for _ in range(2):
            self._number += 1
            await asyncio.to_thread(self._write, str(self._number))
            found += await notices.until(self.uri)
        return found


@contextmanager
def writes_held(hf: Holdfast) -> Generator[Callable[[], None]]:
    """Let every write wait until the function that is yielded is called, or the block ends."""
    held, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        held.set()
        assert go_on.wait(60)

    holding = threading.Thread(target=hf.engine.write, args=(wait,))
    holding.start()
    assert held.wait(60)
    try:
        yield go_on.set
    finally:
        go_on.set()
        holding.join()
