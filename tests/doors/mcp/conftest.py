"""A handle, a server of it, and both eras of the protocol."""

from collections.abc import AsyncGenerator, Iterator
from functools import partial

import pytest
from doors.mcp.hosting import hosted
from doors.mcp.web import filled
from mcp import Client

import holdfast
from holdfast.doors.mcp.http import HttpHosts
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import serving


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> str:
    """Name the era that the client opens with."""
    return request.param


@pytest.fixture
async def client(hf: Holdfast, mode: str) -> AsyncGenerator[Client]:
    async with hosted(hf, mode=mode) as client:
        yield client


@pytest.fixture
def url(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve *hf* over HTTP with long-term memory enabled; yield where hosts connect."""
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")
    hosts = partial(HttpHosts, checks_every=0.1)
    with serving(hf, clock=SystemClock(), make_subapp=hosts) as url:
        yield f"{url}/mcp"


@pytest.fixture(scope="module")
def shared_url() -> Iterator[str]:
    """Serve a filled database to the tests of a module that only read."""
    with pytest.MonkeyPatch.context() as patch, holdfast.open(":memory:") as hf:
        patch.setenv("HOLDFAST_LTM_ENABLED", "1")
        filled(hf)
        with serving(hf, clock=SystemClock(), make_subapp=HttpHosts) as url:
            yield f"{url}/mcp"


@pytest.fixture
def store(hf: Holdfast) -> str:
    """Fill each memory with one text, and return the store's id."""
    return filled(hf)
