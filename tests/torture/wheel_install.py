"""A new machine: the wheel is built and installed alone, and hosts are given what the page says.

`make torture` runs this: a fresh environment is downloaded each time.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
PIP = Path(sys.executable).with_name("pip")
BLOCK = re.compile(r'^\{"mcpServers": \{"holdfast": .*\}$', re.MULTILINE)


def ran(*command: object, **more: Any) -> str:
    """Run *command*, which must succeed, and return its output."""
    done = subprocess.run(
        [str(each) for each in command],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        **more,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of programs of an environment that has the wheel, and nothing of ours."""
    folder = tmp_path_factory.mktemp("new")
    ran(PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("holdfast-*.whl")
    ran(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    lock = ROOT / "requirements.lock"
    install = (PIP, "--python", folder / "venv", "install", "--quiet", "--constraint", lock)
    ran(*install, f"holdfast[mcp] @ {wheel.as_uri()}")
    return folder / "venv" / "bin"


@pytest.fixture
def environment(programs: Path, tmp_path: Path) -> dict[str, str]:
    """Give the environment of a user whose files are in a home of their own."""
    path = f"{programs}{os.pathsep}{os.defpath}"
    return {"PATH": path, "HOME": str(tmp_path), "LOGNAME": "ada", "USER": "ada"}


def configured(environment: dict[str, str]) -> StdioServerParameters:
    """Return what a host starts that was given the page's first block."""
    page = (ROOT / "docs" / "mcp.md").read_text("utf-8")
    server = json.loads(BLOCK.findall(page)[0])["mcpServers"]["holdfast"]
    return StdioServerParameters(command=server["command"], args=server["args"], env=environment)


async def test_what_one_host_was_told_another_recalls_and_the_commands_show(
    environment: dict[str, str],
) -> None:
    note = {"command": "create", "path": "/memories/style.md", "file_text": "Use tabs.\n"}
    async with Client(stdio_client(configured(environment)), mode="legacy") as host:
        await host.call_tool("ltm_remember", {"text": "Prefers tabs to spaces"})
        await host.call_tool("memory", note)

    async with Client(stdio_client(configured(environment))) as host:
        found = await host.call_tool("ltm_recall", {"query": "tabs or spaces?"})

    assert isinstance(found, types.CallToolResult)
    assert found.structured_content is not None
    assert [each["text"] for each in found.structured_content["results"]] == [
        "Prefers tabs to spaces"
    ]
    items = json.loads(ran("holdfast", "ltm", "list", "ada", "--json", env=environment))
    assert [each["text"] for each in items["data"]] == ["Prefers tabs to spaces"]
    shown = ran("holdfast", "memories", "show", "Notes", "/style.md", "--raw", env=environment)
    assert shown == "Use tabs.\n"
