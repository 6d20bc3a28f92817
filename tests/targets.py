"""Surfaces that tests run on, and a handle on each: import the fixture `hf` to run on all four."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import new_workspace

FULL = ("memory", "postgres")
MARKED = ("file", "http")
ALL_SURFACES = os.environ.get("HOLDFAST_ALL_SURFACES") == "1"


def surfaces_of(test: pytest.Function) -> list[str]:
    """Return the surfaces of *test*: the full ones, and those that its markers name."""
    marked = {name_of(mark) for mark in test.iter_markers("surface")}
    if ALL_SURFACES:
        marked = set(MARKED)
    if test.get_closest_marker("embedded"):
        marked.discard("http")
    return [*FULL, *sorted(marked)]


def name_of(mark: pytest.Mark) -> str:
    """Return the surface that a marker names; it must name a known one and give a reason."""
    name, reason = mark.args
    if name not in MARKED or not reason:
        raise pytest.UsageError(f"surface({name!r}, {reason!r}): name one of {MARKED}, and say why")
    return name


@pytest.fixture(scope="session")
def postgres(postgres_url: str) -> Iterator[Holdfast]:
    with holdfast.open(postgres_url) as hf:
        yield hf


@pytest.fixture(scope="session")
def in_memory() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture(params=[*FULL, *MARKED])
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    """Give a handle to a workspace of the test's own, on each surface in turn."""
    yield from handle_on(request.param, tmp_path, request)


def handle_on(surface: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """Open a handle to a new workspace on *surface*."""
    match surface:
        case "file":
            with holdfast.open(tmp_path / "h.db") as hf:
                yield hf
        case "memory":
            yield request.getfixturevalue("in_memory").acting(workspace=new_workspace())
        case "postgres":
            yield request.getfixturevalue("postgres").acting(workspace=new_workspace())
        case _:
            yield request.getfixturevalue("remote")
