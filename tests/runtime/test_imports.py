"""Imports of the runtime: the public names of pydantic-ai, and a missing extra."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parents[2] / "holdfast"
MODULES = sorted([*(RUNTIME / "runtime").rglob("*.py"), RUNTIME / "testing" / "scripted.py"])


def imported(module: Path) -> Iterator[tuple[str, str]]:
    """Give each name that *module* imports of pydantic-ai, with its home."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pydantic_"):
            yield from ((str(node.module), each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            found = [each.name for each in node.names if each.name.startswith("pydantic_")]
            yield from ((name, "") for name in found)


USED = sorted({each for module in MODULES for each in imported(module)})


@pytest.mark.parametrize(("home", "name"), USED)
def test_each_name_that_is_used_is_public_and_there(home: str, name: str) -> None:
    assert not any(part.startswith("_") for part in [*home.split("."), name])
    assert not name or hasattr(import_module(home), name)


WITHOUT = """
import sys
from importlib import util

there = util.find_spec
util.find_spec = lambda name, *rest: None if name == sys.argv[1] else there(name, *rest)

import holdfast
from holdfast.errors import MissingExtra

holdfast.RunMemory().set("shared:one", 1)
try:
    import holdfast.runtime
except MissingExtra as error:
    print(error.extra, error.command)
"""


@pytest.mark.parametrize("missing", ["pydantic_ai", "jsonschema"])
def test_the_error_names_the_extra_and_the_command_and_the_core_goes_on(missing: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing], capture_output=True, text=True, check=True
    ).stdout

    assert said == "agents pip install 'holdfast[agents]'\n"


AWAY = """
import asyncio
import sys


class Imports:
    def find_spec(self, name, path=None, target=None):
        if name == WANTED:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                print("away from the event loop")
            else:
                print("on the event loop")


sys.meta_path.insert(0, Imports())
"""
EXTRACTOR = """
WANTED = "pydantic_ai"
from holdfast.memories.longterm.background.extractor import ExtractionRequest, ModelExtractor
from holdfast.memories.longterm.vectors.embedder import ModelThread

def make(thread):
    from pydantic_ai.models.test import TestModel
    return TestModel(custom_output_text="Nothing.")

request = ExtractionRequest(instructions="Extract.", conversation="Hello.", turns=(), existing=())
print(ModelExtractor(make, ModelThread())(request))
"""
EMBEDDER = """
WANTED = "pydantic_ai.embeddings"
from holdfast.memories.longterm.vectors.embedder import ModelEmbedder, ModelThread

async def make(thread):
    from pydantic_ai.embeddings import Embedder
    from pydantic_ai.embeddings.test import TestEmbeddingModel
    return Embedder(TestEmbeddingModel())

embedder = ModelEmbedder("test:test", make, ModelThread())
print(len(embedder.embed(["Hello."], input_type="query")))
"""
SERVER = """
WANTED = "pydantic_ai.mcp"
from holdfast.runtime import McpServer

server = McpServer("none", command=sys.executable, args=["-c", ""])
print("cannot" if asyncio.run(server.connect()) else "connected")
"""


@pytest.mark.parametrize(
    ("code", "then"),
    [(EXTRACTOR, "Nothing."), (EMBEDDER, "1"), (SERVER, "cannot")],
    ids=["extractor", "embedder", "MCP server"],
)
def test_an_import_of_seconds_holds_up_no_event_loop(code: str, then: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", AWAY + code], capture_output=True, text=True, check=True
    ).stdout

    assert said.splitlines() == ["away from the event loop", then]
