"""A handle of each kind, for the adapters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import new_workspace, serving

pytest_plugins = ["holdfast.testing.postgres"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["memory", "postgres", "http"])
def target(request: pytest.FixtureRequest) -> str:
    """Name what the handle is on."""
    return request.param


@pytest.fixture
def hf(request: pytest.FixtureRequest, target: str, tmp_path: Path) -> Iterator[Holdfast]:
    """Give a handle in memory, on PostgreSQL, and through a server."""
    if target == "memory":
        with holdfast.open(":memory:") as hf:
            yield hf
    elif target == "postgres":
        url = request.getfixturevalue("postgres_url")
        with holdfast.open(url, workspace=new_workspace()) as hf:
            yield hf
    else:
        with (
            holdfast.open(tmp_path / "h.db") as served,
            serving(served, clock=SystemClock()) as url,
            holdfast.open(url) as hf,
        ):
            yield hf
