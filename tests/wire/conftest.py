"""Servers in processes of their own, and the official SDK's clients on them."""

import os
from collections.abc import AsyncGenerator, Generator
from itertools import count

import pytest
from wire.asking import Client, answered, client_of
from wire.serving import Served, serving

_numbers = count()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """Serve a database that is open to all on this machine, for the whole run."""
    with serving(tmp_path_factory.mktemp("wire") / "h.db") as served:
        yield served


@pytest.fixture(autouse=True)
def only_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a developer's own keys and addresses out of the clients."""
    for name in os.environ:
        if name.startswith("ANTHROPIC_"):
            monkeypatch.delenv(name)


@pytest.fixture(params=["sync", "async"])
def color(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def client(server: Served, color: str) -> AsyncGenerator[Client]:
    """Give a client in a workspace of its own, which takes no answer that is not as declared."""
    workspace = f"wire-{os.getpid()}-{next(_numbers)}"
    client = client_of(
        color,
        server.url,
        api_key="any",
        default_headers={"anthropic-workspace-id": workspace},
        _strict_response_validation=True,
    )
    yield client
    await answered(client.close())
