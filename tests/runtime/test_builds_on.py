"""The public names of pydantic-ai that the runtime is built on, and that no other is used."""

import ast
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
