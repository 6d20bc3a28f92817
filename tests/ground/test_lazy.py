"""The stub of a lazy package is the one list of its names."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__path__[0])
STUBS = sorted(ROOT.rglob("__init__.pyi"))
LINE = re.compile(r"from [\w.]+ import (\w+) as \1")


def package(stub: Path) -> str:
    """Return the package whose names *stub* lists."""
    return ".".join(["holdfast", *stub.parent.relative_to(ROOT).parts])


@pytest.mark.parametrize("stub", STUBS, ids=package)
def test_each_name_of_a_stub_can_be_imported(stub: Path) -> None:
    module = import_module(package(stub))
    lines = [line for line in stub.read_text("utf-8").splitlines() if line]

    matches = [LINE.fullmatch(line) for line in lines]

    names = [match[1] for match in matches if match]
    assert len(names) == len(lines) > 0
    assert sorted(names) == module.__all__
    for name in names:
        assert getattr(module, name) is not None


def test_a_star_import_binds_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.testing", raising=False)
    bound: dict[str, object] = {}

    exec("from holdfast.testing import *", bound)

    assert set(bound) - {"__builtins__"} == set(import_module("holdfast.testing").__all__)


def test_another_name_is_an_attribute_error_that_says_it() -> None:
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'memory'"):
        getattr(holdfast, "memory")  # noqa: B009 - the type checker knows that it is not there
