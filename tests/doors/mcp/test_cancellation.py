"""Calls that are cancelled, or whose client disconnects, in the middle of a write."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec
import pytest
from doors.mcp.hosting import GRAPH, done, hosted, said, served, text_of, writes_held
from doors.mcp.process import started
from doors.mcp.web import META, MODERN
from mcp import Client

import holdfast
from holdfast.doors.mcp.http import HttpHosts
from holdfast.doors.mcp.owners import HostMemories, Owners
from holdfast.doors.mcp.server import REQUESTS, host_of
from holdfast.doors.mcp.tools import HostTools
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio

FULL = Owners(user="ada", agent="scout", store="Notes", profile="full")
GRAPHS = Owners(store="Notes", profile="graph")
PEOPLE = ("Ada", "Bob")
WRITES: dict[str, tuple[str, dict[str, Any]]] = {
    "ltm_remember": ("ltm_remember", {"text": "Ada has a dog."}),
    "ltm_forget": ("ltm_forget", {"id": "{item}"}),
    "memory_store": ("memory_store", {"key": "target", "category": "core", "content": "new"}),
    "memory_forget": ("memory_forget", {"key": "target"}),
    "memory_restore": ("memory_restore", {"version_id": "{version}"}),
    "create": (
        "memory",
        {"command": "create", "path": "/memories/b.md", "file_text": "tabs\n" * 1_000},
    ),
    "str_replace": (
        "memory",
        {
            "command": "str_replace",
            "path": "/memories/a.md",
            "old_str": "tabs",
            "new_str": "spaces",
        },
    ),
    "insert": (
        "memory",
        {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": "x"},
    ),
    "rename": (
        "memory",
        {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/c.md"},
    ),
    "delete": ("memory", {"command": "delete", "path": "/memories/a.md"}),
    "create_entities": (
        "create_entities",
        {"entities": [{"name": name, "entityType": "t", "observations": ["x"]} for name in "abc"]},
    ),
    "create_relations": (
        "create_relations",
        {
            "relations": [
                {"from": "Ada", "to": "Bob", "relationType": "likes"},
                {"from": "Bob", "to": "Ada", "relationType": "likes"},
            ]
        },
    ),
    "add_observations": (
        "add_observations",
        {
            "observations": [
                {"entityName": "Ada", "contents": ["sings"]},
                {"entityName": "Bob", "contents": ["sings"]},
            ]
        },
    ),
    "delete_entities": ("delete_entities", {"entityNames": ["Ada"]}),
    "delete_observations": (
        "delete_observations",
        {"deletions": [{"entityName": name, "observations": ["writes"]} for name in PEOPLE]},
    ),
    "delete_relations": (
        "delete_relations",
        {"relations": [{"from": "Bob", "to": "Ada", "relationType": "knows"}]},
    ),
}


class Filled:
    """A database in memory with something that each writing tool changes."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.store = hf.memory_stores.create(name="Notes").id
        note = hf.memory_stores.memories.create(self.store, path="/a.md", content="first")
        hf.memory_stores.memories.update(note.id, memory_store_id=self.store, content="tabs\nend")
        hf.durable("scout").set("target", "old", category="core")
        self.ltm = hf.longterm("ada", enabled=True)
        assert self.ltm is not None
        item = self.ltm.remember("Ada drinks tea.").stored
        assert item is not None
        self._facts = {"{item}": item.id, "{version}": note.memory_version_id}

    async def fill_graph(self, client: Client) -> None:
        """Add two entities and a relation."""
        people = [
            {"name": name, "entityType": "person", "observations": ["writes"]} for name in PEOPLE
        ]
        await done(client, "create_entities", entities=people)
        await done(
            client,
            "create_relations",
            relations=[{"from": "Bob", "to": "Ada", "relationType": "knows"}],
        )

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return *given* with this database's ids."""
        return {
            name: self._facts.get(value, value) if isinstance(value, str) else value
            for name, value in given.items()
        }

    def state(self) -> object:
        """Return all content, without ids and times."""
        assert self.ltm is not None
        memories = self.hf.memory_stores.memories.list(self.store, view="full").all()
        return (
            sorted(each.text for each in self.ltm.list("items").data),
            [(each.key, each.content) for each in self.hf.durable("scout").list().data],
            [(each.path, getattr(each, "content", None)) for each in memories],
        )


class Announced(HostTools):
    """Tools that announce that a call has begun."""

    begun: threading.Event

    def call(self, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Announce a call and run it."""
        self.begun.set()
        return super().call(name, arguments)


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_that_is_cancelled_in_the_middle_is_whole_or_absent(
    mode: str, write: str
) -> None:
    name, arguments = WRITES[write]
    owners = GRAPHS if name in GRAPH else FULL
    with holdfast.open(":memory:") as hf, holdfast.open(":memory:") as twin:
        cancelled, whole = Filled(hf), Filled(twin)
        memories = HostMemories(hf, owners)
        tools = Announced(memories)
        tools.begun = threading.Event()
        host = msgspec.structs.replace(host_of(memories), tools=tools)
        async with hosted(twin, owners) as client:
            if owners is GRAPHS:
                await whole.fill_graph(client)
            result = await client.call_tool(name, whole.arguments(arguments))
            assert isinstance(result, types.CallToolResult)
            assert not result.is_error, text_of(result)
        async with served(hf, host, mode) as client:
            if owners is GRAPHS:
                await cancelled.fill_graph(client)
            before = cancelled.state()
            assert before != whole.state()
            tools.begun.clear()
            with writes_held(hf) as go_on:
                calling = asyncio.ensure_future(
                    client.call_tool(name, cancelled.arguments(arguments))
                )
                assert await asyncio.to_thread(tools.begun.wait, 60)
                calling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await calling
                go_on()
            # A later write follows the one that was cancelled.
            if owners is GRAPHS:
                await done(client, "create_entities", entities=[])
                assert (await done(client, "open_nodes", names=["Bob"]))["entities"]
            else:
                await said(client, command="view", path="/memories")
        assert cancelled.state() in (before, whole.state())


def test_a_cancelled_call_has_no_answer_and_delays_no_other(tmp_path: Path, mode: str) -> None:
    target, meta = str(tmp_path / "holdfast.db"), {} if mode == "legacy" else {"_meta": META}
    with (
        holdfast.open(target) as hf,
        started(tmp_path, ["--db", target], shaken=mode == "legacy") as host,
    ):
        store = hf.memory_stores.create(name="Notes").id
        arguments = {"command": "create", "path": "/memories/a.md", "file_text": "tabs"}
        with writes_held(hf) as go_on:
            call = {"name": "memory", "arguments": arguments, **meta}
            cancelled = host.begin("tools/call", call)
            assert host.request("tools/list", meta)["result"]["tools"]
            params = {"requestId": cancelled, "reason": "test", **meta}
            host.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
            listed = host.begin("tools/list", meta)
            assert host.receive()["id"] == listed
            go_on()
        view = {"name": "memory", "arguments": {"command": "view", "path": "/memories"}, **meta}
        viewed = host.begin("tools/call", view)
        assert host.receive()["id"] == viewed
        assert host.end() == 0
        memory = hf.memory_stores.memories.at(store, "/a.md")
        assert memory is None or memory.content == "tabs"


async def test_a_client_over_http_that_disconnects_in_a_call_leaves_a_whole_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")
    with (
        holdfast.open(":memory:") as hf,
        serving(hf, clock=SystemClock(), make_subapp=HttpHosts) as base,
    ):
        filled = Filled(hf)
        content = "tabs\n" * 1_000
        create = {"command": "create", "path": "/memories/b.md", "file_text": content}
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "memory", "arguments": create, "_meta": META},
        }
        with writes_held(hf) as go_on:
            reader, writer = await asyncio.open_connection(*base.removeprefix("http://").split(":"))
            payload = msgspec.json.encode(body)
            head = (
                "POST /mcp?store=Notes HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
                f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: memory\r\n"
                f"Content-Length: {len(payload)}\r\n\r\n"
            )
            writer.write(head.encode() + payload)
            await writer.drain()
            before = REQUESTS.value("tools/call", "ok")
            writer.close()
            del reader
            go_on()
        async with asyncio.timeout(60):
            while REQUESTS.value("tools/call", "ok") == before:
                await asyncio.to_thread(threading.Event().wait, 0.01)
        memory = hf.memory_stores.memories.at(filled.store, "/b.md")
        assert memory is not None
        assert memory.content == content
