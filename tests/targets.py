"""A handle for tests that must hold wherever memories are kept: import the fixture `hf`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import new_workspace


@pytest.fixture(scope="session")
def postgres(postgres_url: str) -> Iterator[Holdfast]:
    with holdfast.open(postgres_url) as hf:
        yield hf


@pytest.fixture(params=["memory", "file", "postgres", "http"])
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    """Give a handle to a workspace that nobody else uses, on each target in turn."""
    match request.param:
        case "memory":
            with holdfast.open(":memory:") as hf:
                yield hf
        case "file":
            with holdfast.open(tmp_path / "h.db") as hf:
                yield hf
        case "postgres":
            yield request.getfixturevalue("postgres").acting(workspace=new_workspace())
        case _:
            yield request.getfixturevalue("remote")
