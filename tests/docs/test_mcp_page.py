"""The configuration that the page of the MCP server shows starts a server that a host can use."""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text("utf-8")
JSON = [
    json.loads(block)
    for block in re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]
SERVERS: list[dict[str, Any]] = [
    server
    for block in JSON
    for servers in (block.get("mcpServers", {}), block.get("servers", {}))
    for server in servers.values()
]
COMMANDS = [
    [server["command"], *server["args"]] for server in SERVERS if server["command"] != "uvx"
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def started(command: list[str], folder: Path) -> StdioServerParameters:
    """Return what a host starts for *command*, with this installation and a home of its own."""
    assert command[0] == "holdfast"
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "holdfast.doors.cli.main", *command[1:]],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        },
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_a_block_of_configuration_starts_a_server(command: list[str], tmp_path: Path) -> None:
    if "--read-only" in command:
        write = [each for each in command if each != "--read-only"]
        async with Client(stdio_client(started(write, tmp_path))) as host:
            note = {"command": "create", "path": "/memories/style.md", "file_text": "Short."}
            await host.call_tool("memory", note)

    async with Client(stdio_client(started(command, tmp_path))) as host:
        assert (await host.list_tools()).tools


async def test_one_host_remembers_and_another_recalls_after_a_restart(tmp_path: Path) -> None:
    first, second = COMMANDS[0], COMMANDS[1]

    async with Client(stdio_client(started(first, tmp_path))) as host:
        await host.call_tool("ltm_remember", {"text": "Prefers tabs to spaces"})
    async with Client(stdio_client(started(second, tmp_path)), mode="legacy") as host:
        found = await host.call_tool("ltm_recall", {"query": "tabs"})

    assert isinstance(found, types.CallToolResult)
    assert found.structured_content is not None
    assert found.structured_content["results"][0]["text"] == "Prefers tabs to spaces"


def test_the_commands_for_claude_code_name_what_the_blocks_do() -> None:
    (stdio,) = re.findall(r"^claude mcp add holdfast -- (.+)$", PAGE, re.MULTILINE)
    (http,) = re.findall(r"^claude mcp add --transport http holdfast (.+)$", PAGE, re.MULTILINE)

    assert shlex.split(stdio) == COMMANDS[0]
    assert shlex.split(http)[0] == "http://127.0.0.1:8420/mcp"
