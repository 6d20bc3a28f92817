"""The tool runners of the oldest and the newest SDK, through a whole conversation."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wire.serving import environment

ROOT = Path(__file__).parents[3]
PROBE = Path(__file__).with_name("adapter_probe.py")

A = "/memories/notes/a.md"
EDITED = "The memory file has been edited. Here is the snippet showing the change"
LISTED = "Here're the files and directories up to 2 levels deep in /memories"
KNOWN = "view, create, str_replace, insert, delete, rename"

SAID: list[list[object]] = [
    [f"{LISTED}, excluding hidden items:\n0B\t/memories", False],
    [f"File created successfully at: {A}", False],
    [f"File {A} already exists", True],
    [f"{EDITED} (with line numbers):\n     1\tspaces\n     2\t", False],
    [f"The file {A} has been edited.", False],
    [f"Here's the content of {A} with line numbers:\n     1\tspaces\n     2\tfour of them", False],
    ["Invalid type for parameter insert_line: expected integer.", True],
    [f"Unknown command: undo_edit. Use one of: {KNOWN}.", True],
    ["Missing required parameter: path", True],
    ["Successfully renamed /memories/notes to /memories/old", False],
    ["Successfully deleted /memories/old/a.md", False],
    ["Path must start with /memories, got: /etc", True],
]


@pytest.fixture(scope="module", params=["oldest", "newest"])
def probed(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the results of the conversation through each adapter, by one release of the SDK."""
    newest = request.param == "newest"
    python: Path = Path(sys.executable) if newest else request.getfixturevalue("oldest")
    run = subprocess.run(
        [python, "-W", "error", PROBE],
        env={**environment(), "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    probed = json.loads(run.stdout)
    assert probed["sdk"].startswith("2." if newest else "0.97.0")
    return probed


@pytest.mark.parametrize("way", ["plain", "awaited", "hopping"])
def test_a_model_is_answered_and_sees_its_errors_flagged(probed: dict[str, Any], way: str) -> None:
    assert probed[way]["results"] == SAID
    assert probed[way]["said"] == "Done."


@pytest.mark.parametrize("way", ["plain", "awaited", "hopping"])
def test_the_model_is_offered_the_tool_it_was_trained_on(probed: dict[str, Any], way: str) -> None:
    [offered] = probed[way]["tools"]

    assert offered == probed[way]["to_dict"]
    assert offered["type"] == "memory_20250818"


def test_clearing_leaves_nothing(probed: dict[str, Any]) -> None:
    assert probed["plain"]["cleared"] == probed["awaited"]["cleared"] == "All memory cleared"
    assert probed["plain"]["left"] == 0
