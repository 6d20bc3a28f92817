"""The SDK's tool runners, with a scripted model, through a whole conversation."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture(scope="module")
def probed() -> dict[str, Any]:
    run = subprocess.run([sys.executable, PROBE], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


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
