"""An adapter imports its own host and no other, and names a host that is missing."""

import subprocess
import sys

import pytest

WAIT = 120
ADAPTERS = {
    # The module of each adapter's host, and the package that has it.
    "google_adk": ("google", "google-adk"),
    "llama_index": ("llama_index", "llama-index-core"),
    "strands": ("strands", "strands-agents"),
}
IMPORTED = """
import sys
from holdfast.doors.adapters import {name}
hosts = {{"agents", "agent_framework", "anthropic", "crewai", "google", "langchain",
    "langchain_core", "langgraph", "llama_index", "mcp", "openai", "pydantic_ai", "strands"}}
print(*hosts & {{each.partition(".")[0] for each in sys.modules}})
"""
MISSING = """
import sys
sys.modules["{own}"] = None
try:
    from holdfast.doors.adapters import {name}
except ImportError as error:
    print(type(error).__name__, error)
"""


def output(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=WAIT
    ).stdout.strip()


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_imports_its_own_host_and_no_other(name: str) -> None:
    own, _ = ADAPTERS[name]

    assert output(IMPORTED.format(name=name)) == own


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_missing_host_is_named(name: str) -> None:
    own, package = ADAPTERS[name]

    shown = output(MISSING.format(name=name, own=own))

    assert shown == f"MissingExtra '{package}' is not installed. Install it: pip install {package}"
