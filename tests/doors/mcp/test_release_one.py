"""What hosts do with a client of release 1, in an environment of its own, over both transports.

It speaks the oldest revision, and has its own idea of every message.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doors.mcp.process import COMMAND, environment

import holdfast
from holdfast.doors.mcp.http import HttpHosts
from holdfast.ground.clock import SystemClock
from holdfast.testing.serving import serving

PROGRAM = Path(__file__).with_name("release_one.py")
RELEASE = "1.8.0"
"""The first whose client speaks streamable HTTP."""


@pytest.fixture(scope="module")
def python() -> Path:
    """Give the Python of the environment that has the client."""
    python = Path(sys.prefix) / "mcp-1" / "bin" / "python"
    if not python.exists():
        pytest.fail("The environment of the 1.x client is missing; `make test` makes it.")
    return python


@pytest.fixture(scope="module", params=["stdio", "http"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """Give what the host connects to: a command, or the address of a server."""
    target = str(tmp_path_factory.mktemp("release") / "holdfast.db")
    if request.param == "stdio":
        yield [*COMMAND, "--db", target]
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_LTM_ENABLED", "1")
        with (
            holdfast.open(target) as hf,
            serving(hf, clock=SystemClock(), make_subapp=HttpHosts) as url,
        ):
            yield [f"{url}/mcp?user=ada&store=Notes"]


@pytest.fixture(scope="module")
def got(
    python: Path, address: list[str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Give what a host got in one connection."""
    ran = subprocess.run(
        [python, PROGRAM, *address],
        env=environment(tmp_path_factory.mktemp("home")),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_it_shakes_hands_in_its_own_revision(got: dict[str, Any]) -> None:
    assert (got["client"], got["revision"], got["subscribe"]) == (RELEASE, "2024-11-05", True)
    assert got["instructions"].startswith("Memory that outlives this conversation.")


def test_its_model_calls_the_tools(got: dict[str, Any]) -> None:
    assert got["tools"] == ["ltm_recall", "ltm_remember", "ltm_forget", "memory"]
    assert got["read_only"] == ["ltm_recall"]
    assert (got["remembered"], got["recalled"]) == (True, "Prefers tabs to spaces")
    assert got["created"] == ["File created successfully at: /memories/style.md", False]


def test_its_model_reads_what_was_wrong(got: dict[str, Any]) -> None:
    assert got["refused"] == [
        "The path /memories/none.md does not exist. Please provide a valid path.",
        True,
    ]
    assert (got["unknown_tool"], got["unknown_resource"]) == (-32602, -32002)


def test_it_reads_resources(got: dict[str, Any]) -> None:
    assert got["resources"] == ["notes", "user", "/style.md"]
    assert got["templates"] == ["holdfast://stores/{store}/{+path}"]
    assert got["note"] == ["tabs", "spaces", "text/markdown"]


def test_it_is_notified_of_a_new_note_and_of_a_changed_one(got: dict[str, Any]) -> None:
    assert got["noticed"] == ["list", True]


def test_it_shows_the_prompts_to_a_person(got: dict[str, Any]) -> None:
    assert got["prompts"] == {"recall": ["topic"], "briefing": [], "keep": ["what"]}
    ((role, text),) = got["recall"]
    assert role == "user"
    assert "Prefers tabs to spaces" in text
