"""A handle, and both eras of the protocol."""

from collections.abc import AsyncGenerator, Iterator

import pytest
from doors.mcp.hosting import hosted
from mcp import Client

import holdfast
from holdfast.library.holdfast import Holdfast


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
