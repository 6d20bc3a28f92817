"""What the page of the MCP server shows works: blocks start a server, and lists are complete."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from fork_server import forked
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

import holdfast
from holdfast.doors.mcp.http import HttpHosts
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import serving

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
COMMANDS = [[each["command"], *each["args"]] for each in SERVERS if "command" in each]
HERE = [each for each in COMMANDS if each[0] == "holdfast" and "--db" not in each]
URLS = [each for each in SERVERS if "url" in each]
SHOWN_SERVER, SHOWN_URL = "https://memory.example", "http://127.0.0.1:8420"
SHOWN_KEY = "hf_…"
HOST_LINES = re.findall(r"^\$ (holdfast (?:ltm|memories|versions) .+)$", PAGE, re.MULTILINE)
NOTE = {"command": "create", "path": "/memories/style.md", "file_text": "Short."}
ADA = {"name": "Ada", "entityType": "person", "observations": ["Likes tabs"]}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Holdfast, str]]:
    """Serve a database with notes of a team, which wants a key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_LTM_ENABLED", "1")
        with (
            holdfast.open(tmp_path_factory.mktemp("team") / "h.db") as hf,
            serving(hf, clock=SystemClock(), make_subapp=HttpHosts) as url,
        ):
            rules = hf.memory_stores.create(name="Team rules")
            hf.memory_stores.memories.create(rules.id, path="/style.md", content="Short.")
            hf.keys.create("any")
            yield hf, url


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Give the environment of a user with a home of their own, and this `holdfast` in the path."""
    return environment_of(tmp_path, forked())


def environment_of(home: Path, command: list[str]) -> dict[str, str]:
    """Return the environment of a user with this *home*, in whose path `holdfast` is *command*."""
    program = home / "bin" / "holdfast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_DATA_HOME": str(home),
        "USER": "ada",
        "LOGNAME": "ada",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }


def started(command: list[str], environment: dict[str, str], **more: str) -> StdioServerParameters:
    """Return what a host starts for *command*."""
    return StdioServerParameters(command=command[0], args=command[1:], env={**environment, **more})


def output(line: str, environment: dict[str, str]) -> str:
    """Run *line* in a shell, as a user of *environment* would, and return its output."""
    ran = subprocess.run(
        ["sh", "-c", line],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def table(first: str) -> dict[str, list[str]]:
    """Return the rows of the table whose head begins with *first*, by their name."""
    _, _, below = PAGE.partition(f"\n| {first} |")
    rows = [line.strip("| ").split(" | ") for line in below.partition("\n\n")[0].splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in rows}


@pytest.mark.parametrize("command", HERE, ids=" ".join)
async def test_a_block_of_configuration_starts_a_server(command: list[str], tmp_path: Path) -> None:
    # The first in an interpreter of its own, as a user has it.
    own = [sys.executable, "-m", "holdfast.doors.cli.main"]
    environment = environment_of(tmp_path, own if command is HERE[0] else forked())

    async with Client(stdio_client(started(command, environment))) as host:
        assert (await host.list_tools()).tools


def test_the_block_for_who_has_nothing_installed_names_the_extra_and_the_command() -> None:
    (uvx,) = [each for each in COMMANDS if each[0] == "uvx"]

    assert uvx[1:] == ["--from", "holdfast[mcp]", *HERE[0]]


async def test_the_block_for_a_team_reads_the_notes_of_a_server(
    served: tuple[Holdfast, str], environment: dict[str, str]
) -> None:
    hf, url = served
    (shown,) = [each for each in SERVERS if SHOWN_SERVER in each.get("args", ())]
    arguments = [url if each == SHOWN_SERVER else each for each in shown["args"]]
    assert shown["env"] == {"HOLDFAST_API_KEY": SHOWN_KEY}
    server = started(
        ["holdfast", *arguments],
        environment,
        HOLDFAST_API_KEY=str(hf.keys.create("team", scope="read").secret),
    )

    async with Client(stdio_client(server)) as host:
        read = await host.call_tool("memory", {"command": "view", "path": NOTE["path"]})

    assert isinstance(read, types.CallToolResult)
    assert "Short." in str(read.content)


@pytest.mark.parametrize("server", URLS, ids=lambda server: str(server["url"]))
async def test_a_block_with_an_address_reaches_a_server(
    served: tuple[Holdfast, str], server: dict[str, Any]
) -> None:
    hf, url = served
    assert server["headers"] == {"Authorization": f"Bearer {SHOWN_KEY}"}
    bound = None if "?" in server["url"] else "ada"
    key = str(hf.keys.create("laptop", user=bound).secret)

    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http:
        address = str(server["url"]).replace(SHOWN_URL, url)
        async with Client(streamable_http_client(address, http_client=http)) as host:
            names = [each.name for each in (await host.list_tools()).tools]

    assert names == ["ltm_recall", "ltm_remember", "ltm_forget", *([] if bound else ["memory"])]


async def test_one_host_remembers_and_another_recalls_after_a_restart(
    environment: dict[str, str],
) -> None:
    async with Client(stdio_client(started(HERE[0], environment))) as host:
        await host.call_tool("ltm_remember", {"text": "Prefers tabs to spaces"})
    async with Client(stdio_client(started(HERE[1], environment)), mode="legacy") as host:
        found = await host.call_tool("ltm_recall", {"query": "tabs"})

    assert isinstance(found, types.CallToolResult)
    assert found.structured_content is not None
    assert found.structured_content["results"][0]["text"] == "Prefers tabs to spaces"


async def test_the_commands_and_the_hook_show_what_hosts_have_stored(
    environment: dict[str, str],
) -> None:
    async with Client(stdio_client(started(HERE[0], environment))) as host:
        await host.call_tool("ltm_remember", {"text": "Prefers tabs to spaces"})
        await host.call_tool("memory", NOTE)
    graph = [*HERE[0], "--profile", "graph"]
    async with Client(stdio_client(started(graph, environment))) as host:
        await host.call_tool("create_entities", {"entities": [ADA]})
    (hook,) = [block["hooks"]["SessionStart"][0]["hooks"][0] for block in JSON if "hooks" in block]
    assert hook["type"] == "command"

    for line in [*HOST_LINES, hook["command"]]:
        assert json.loads(output(line, environment))["data"], line


def test_the_commands_for_claude_code_name_what_the_blocks_do() -> None:
    (stdio,) = re.findall(r"^claude mcp add holdfast -- (.+)$", PAGE, re.MULTILINE)
    (http,) = re.findall(r"^claude mcp add --transport http holdfast (.+)$", PAGE, re.MULTILINE)

    assert shlex.split(stdio) == HERE[0]
    address, option, header = shlex.split(http)
    assert address == URLS[0]["url"]
    assert (option, header) == ("--header", f"Authorization: Bearer {SHOWN_KEY}")


@pytest.mark.parametrize(
    ("head", "profile"),
    [
        ("tool | what the model does with it", "full"),
        ("tool | arguments", "graph"),
    ],
)
async def test_the_tables_of_tools_are_those_that_a_host_lists(
    environment: dict[str, str], head: str, profile: str
) -> None:
    command = ["holdfast", "mcp", "--profile", profile, "--agent", "scout"]
    async with Client(stdio_client(started(command, environment))) as host:
        tools = (await host.list_tools()).tools
    shown = table(head)

    assert sorted(shown) == sorted(each.name for each in tools)
    reads = {each.name for each in tools if each.annotations and each.annotations.read_only_hint}
    assert {name for name, row in shown.items() if row[-1].strip() == "yes"} == reads
    if profile == "graph":
        for each in tools:
            arguments = each.input_schema.get("properties", {})
            assert re.findall(r"^`(\w+)`", shown[each.name][0]) == list(arguments)


async def test_the_tables_of_prompts_and_resources_are_those_that_a_host_lists(
    environment: dict[str, str],
) -> None:
    command = ["holdfast", "mcp", "--agent", "scout"]
    async with Client(stdio_client(started(command, environment))) as host:
        await host.call_tool("memory", NOTE)
        prompts = (await host.list_prompts()).prompts
        resources = (await host.list_resources()).resources

    shown = {name: re.findall(r"`(\w+)`", row[0]) for name, row in table("prompt").items()}
    assert shown == {each.name: [one.name for one in each.arguments or ()] for each in prompts}
    patterns = [re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(each)) for each in table("resource")]
    for pattern in patterns:
        assert any(re.fullmatch(pattern, str(each.uri)) for each in resources), pattern
    for each in resources:
        assert any(re.fullmatch(pattern, str(each.uri)) for pattern in patterns), each.uri
