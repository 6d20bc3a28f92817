"""Surfaces of the contract of the tool `memory`: in full in memory and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from targets import handle_on, surfaces_of
from targets import in_memory as in_memory
from targets import postgres as postgres

from holdfast.library.holdfast import Holdfast


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of the contract also on the surfaces that its markers name."""
    if "surface" in metafunc.fixturenames:
        metafunc.parametrize("surface", surfaces_of(metafunc.definition))


@pytest.fixture
def hf(surface: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """Give a handle to a workspace of the test's own."""
    yield from handle_on(surface, tmp_path, request)
