"""Several server processes on one database, and handles that reach it through any of them."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any, cast

import pytest
from served import served

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.serving import new_workspace


class Scattered:
    """Stands for a handle; each thing asked of it goes to one of *handles*, any one."""

    def __init__(self, handles: list[Holdfast]) -> None:
        self._handles, self._dice = handles, random.Random(7)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dice.choice(self._handles), name)


@pytest.fixture(scope="session")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Give the URLs of two servers on one SQLite file."""
    path = tmp_path_factory.mktemp("servers") / "h.db"
    with ExitStack() as stack:
        yield [stack.enter_context(served(path)).url for _ in range(2)]


@pytest.fixture(scope="session")
def on_postgres(postgres_server: PostgresServer) -> Iterator[list[str]]:
    """Give the URLs of three servers on one PostgreSQL database."""
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with ExitStack() as stack:
        yield [stack.enter_context(served(url)).url for _ in range(3)]


@pytest.fixture(params=["on_sqlite", "on_postgres"])
def urls(request: pytest.FixtureRequest) -> list[str]:
    return request.getfixturevalue(request.param)


@pytest.fixture
def workspace() -> str:
    return new_workspace()


Reach = Callable[[str, str], Holdfast]


@pytest.fixture(scope="session")
def reach() -> Iterator[Reach]:
    """Give a handle to a workspace through the server at a URL, on one pool of connections."""
    with ExitStack() as stack:

        @cache
        def opened(url: str) -> Holdfast:
            return stack.enter_context(holdfast.open(url))

        yield lambda url, workspace: opened(url).acting(workspace=workspace)


@pytest.fixture
def handles(urls: list[str], workspace: str, reach: Reach) -> Iterator[list[Holdfast]]:
    """Give a handle to the test's own workspace through each server."""
    with ExitStack() as stack:
        yield [stack.enter_context(reach(url, workspace)) for url in urls]


@pytest.fixture
def hf(handles: list[Holdfast]) -> Holdfast:
    """Give one handle that asks any of the servers, another each time."""
    return cast("Holdfast", Scattered(handles))


@pytest.fixture
def elsewhere(urls: list[str], reach: Reach) -> Iterator[Holdfast]:
    """Give a handle to another workspace than the test's own."""
    with reach(urls[0], new_workspace()) as hf:
        yield hf
