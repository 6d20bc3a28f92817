"""Importing the library brings nothing that its user did not ask for."""

import json
import subprocess
import sys
from functools import cache

import pytest

OURS = {"apsw", "holdfast", "msgspec", "platformdirs", "typing_extensions"}
"""What may be brought, the standard library apart; the last is msgspec's, where it is installed."""

USE = """
import holdfast
with holdfast.open(":memory:") as hf:
    store = hf.memory_stores.create(name="Notes")
    memories = hf.memory_stores.memories
    memory = memories.create(store.id, path="/a.md", content="Prefers tabs.")
    memories.retrieve(memory.id, memory_store_id=store.id)
    memories.search(store.id, "tabs")
"""

PROVIDERS = {"anthropic", "fastmcp", "google", "google.genai", "mcp", "openai", "pydantic_ai.mcp"}
"""What only a model or a server of its own needs."""

LATER = PROVIDERS | {
    "chromadb",
    "holdfast.library.holdfast",
    "holdfast.memories.durable.memory",
    "holdfast.memories.longterm.memory",
    "jsonschema",
    "numpy",
    "pinecone",
    "pydantic_ai.models.function",
    "qdrant_client",
}
"""What a conversation loads with the first handle, schema or model that needs it."""

SHOW = """
import json
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@cache
def modules(code: str) -> frozenset[str]:
    """Return the modules that *code* loads in a fresh process."""
    whole = f"import sys\nbefore = set(sys.modules)\n{code}{SHOW}"
    shown = subprocess.run(
        [sys.executable, "-c", whole], capture_output=True, text=True, timeout=60, check=True
    )
    return frozenset(json.loads(shown.stdout))


def brought(code: str) -> set[str]:
    """Return the top-level modules that *code* brings to a fresh process."""
    return {name.partition(".")[0] for name in modules(code)}


@pytest.mark.parametrize("code", ["import holdfast", "import holdfast\nholdfast.open", USE])
def test_only_the_core_is_brought(code: str) -> None:
    assert brought(code) - sys.stdlib_module_names <= OURS


def test_a_use_of_the_library_loads_no_event_loop() -> None:
    assert "asyncio" not in brought(USE)


def test_a_use_of_stores_loads_no_patterns_of_secrets() -> None:
    assert "holdfast.ground.secrets.scanner" not in modules(USE)


def test_importing_the_package_loads_nothing_of_it_yet() -> None:
    assert "apsw" not in brought("import holdfast")


@pytest.mark.parametrize(
    "name", ["holdfast", "holdfast.runtime", "holdfast.testing", "holdfast.testing.contracts"]
)
def test_a_package_lists_its_public_names_before_they_are_loaded(name: str) -> None:
    code = (
        f"import json, {name} as it\n"
        "print(json.dumps([each for each in dir(it) if not each.startswith('_')]))\n"
        "print(json.dumps(sorted(it.__all__)))\n"
    )

    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    listed, public = map(json.loads, shown.stdout.splitlines())
    assert listed == public
    assert listed


def test_importing_a_conversation_loads_no_provider_and_no_memory() -> None:
    assert not modules("from holdfast.runtime import Session") & LATER


def test_every_public_name_of_the_runtime_loads_without_a_provider() -> None:
    code = "import holdfast.runtime as it\nfor name in it.__all__:\n    getattr(it, name)"

    assert not modules(code) & PROVIDERS
