"""A handle of each kind, for the adapters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.ground.clock import SystemClock
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.async_bridge import Crossing
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
    if target in ("memory", "aio"):
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


@pytest.fixture
def handle(hf: Holdfast, target: str) -> Holdfast | AsyncHoldfast:
    """Give the handle `hf`, or for the target `aio` an async one on the same memory."""
    return AsyncHoldfast(hf, Crossing()) if target == "aio" else hf


@pytest.fixture
def differing(request: pytest.FixtureRequest, target: str) -> None:
    """Expect the case to fail where its marker `differs` names the target."""
    for marker in request.node.iter_markers("differs"):
        if marker.args[0] == target:
            request.applymarker(pytest.mark.xfail(reason=marker.args[1], strict=True))
