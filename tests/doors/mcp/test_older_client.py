"""Hosts that bring a client of the SDK's first major version, over stdio and over HTTP."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doors.mcp.process import parameters
from doors.mcp.web import AGENTS, EVERY, STORES, USERS

import holdfast
from holdfast.doors.mcp.http import HttpHosts
from holdfast.ground.clock import SystemClock
from holdfast.testing.serving import serving

PACKAGE = "mcp<2"
CLIENT = """
import asyncio, json, sys
from importlib.metadata import version
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl

server, calls, subscribed = json.loads(sys.argv[1])


async def run(read, write, *_):
    noticed = asyncio.Event()

    async def receive(message):
        if "ResourceUpdated" in type(getattr(message, "root", message)).__name__:
            noticed.set()

    async with ClientSession(read, write, message_handler=receive) as session:
        opened = await session.initialize()
        report = {"version": version("mcp"), "protocol": opened.protocolVersion}
        report["instructions"] = opened.instructions
        report["tools"] = [each.name for each in (await session.list_tools()).tools]
        report["resources"] = {}
        for each in (await session.list_resources()).resources:
            (contents,) = (await session.read_resource(each.uri)).contents
            report["resources"][str(each.uri)] = contents.text
        await session.subscribe_resource(AnyUrl(subscribed))
        report["calls"] = []
        for name, arguments in calls:
            result = await session.call_tool(name, arguments)
            (block,) = result.content
            report["calls"].append([name, result.isError, block.text, result.structuredContent])
        report["prompts"] = {}
        for each in (await session.list_prompts()).prompts:
            arguments = {"topic": "tea"} if each.name == "recall" else {}
            prompt = await session.get_prompt(each.name, arguments)
            report["prompts"][each.name] = prompt.messages[0].content.text
        templates = (await session.list_resource_templates()).resourceTemplates
        report["templates"] = [each.uriTemplate for each in templates]
        async with asyncio.timeout(60):
            while not noticed.is_set():
                # A client over HTTP opens its stream some time after it has connected.
                await session.call_tool(*calls[0])
                await asyncio.wait({asyncio.ensure_future(noticed.wait())}, timeout=0.5)
        print(json.dumps(report))


async def main():
    if isinstance(server, str):
        async with streamablehttp_client(server) as streams:
            await run(*streams)
    else:
        async with stdio_client(StdioServerParameters(**server)) as streams:
            await run(*streams)


asyncio.run(main())
"""
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ltm_remember", {"text": "Ada drinks tea."}),
    ("ltm_recall", {"query": "tea"}),
    ("ltm_forget", {"id": "item_none"}),
    ("memory_store", {"key": "target", "category": "core", "content": "fly.io"}),
    ("memory_recall", {"key": "target"}),
    ("memory_list", {}),
    ("memory", {"command": "view", "path": "/memories/a.md"}),
    ("memory_search", {"query": "tabs"}),
    ("memory_history", {"path": "/memories/a.md"}),
    ("memory_restore", {"version_id": "{version}"}),
    ("memory_forget", {"key": "target"}),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the older SDK in a folder of its own; HOLDFAST_WAIVE=pypi skips its tests."""
    if "pypi" in os.environ.get("HOLDFAST_WAIVE", "").split(","):
        pytest.skip("HOLDFAST_WAIVE=pypi")
    folder = tmp_path_factory.mktemp("older")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target"]
    subprocess.run([*pip, str(folder), PACKAGE], check=True, timeout=240)
    return folder


@pytest.mark.parametrize("over", ["stdio", "http"])
def test_each_tool_resource_and_prompt_is_reached(
    tmp_path: Path, library: Path, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")
    target = str(tmp_path / "holdfast.db")
    with holdfast.open(target) as hf, serving(hf, clock=SystemClock(), make_subapp=HttpHosts) as u:
        store = hf.memory_stores.create(name="Notes").id
        note = hf.memory_stores.memories.create(store, path="/a.md", content="tabs")
        versions = {"{version}": note.memory_version_id}
        calls = [
            (name, {each: versions.get(str(given), given) for each, given in arguments.items()})
            for name, arguments in CALLS
        ]
        process = parameters(tmp_path, "--db", target, "--agent", "scout", "--profile", "full")
        server: object = f"{u}/mcp?{EVERY}" if over == "http" else process.model_dump()
        written = json.dumps([server, calls, "holdfast://longterm/ada"])

        ran = subprocess.run(
            [sys.executable, "-S", "-c", CLIENT, written],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "PYTHONPATH": str(library)},
        )

    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["version"].startswith("1.")
    assert report["protocol"] == "2025-11-25"
    assert "recall" in report["instructions"]
    assert report["tools"] == [*USERS, *AGENTS, *STORES]
    for name, is_error, text, structured in report["calls"]:
        assert is_error is False, (name, text)
        assert name == "memory" or json.loads(text) == structured
    assert {name for name, *_ in report["calls"]} == set(report["tools"])
    assert set(report["resources"]) == {
        f"holdfast://stores/{store}",
        f"holdfast://stores/{store}/a.md",
        "holdfast://durable/scout",
        "holdfast://longterm/ada",
    }
    assert report["resources"][f"holdfast://stores/{store}/a.md"] == "tabs"
    assert report["templates"] == ["holdfast://stores/{store}/{+path}"]
    assert set(report["prompts"]) == {"recall", "briefing", "keep"}
    assert "Ada drinks tea." in report["prompts"]["recall"]
