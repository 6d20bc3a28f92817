"""The official conformance scenarios for servers, as far as they need no tools of their own."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors.mcp.node_packages import NODE, installed
from served import served

PACKAGE = "@modelcontextprotocol/conformance@0.1.16"
SCENARIOS = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(PACKAGE, tmp_path_factory.mktemp("conformance"), "conformance")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_LTM_ENABLED", "1")
        with served(tmp_path_factory.mktemp("served") / "h.db", mcp=True) as server:
            yield f"{server.url}/mcp?user=ada&store=Notes"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_passes(program: Path, url: str, scenario: str) -> None:
    command = [NODE, program, "server", "--url", url, "--scenario", scenario]

    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 failed, 0 warnings" in ran.stdout
