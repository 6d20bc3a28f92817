"""The console of an app over a database in memory or on PostgreSQL, and its visitors."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from doors.console.client import ConsoleClient
from jinja2 import Environment, FileSystemBytecodeCache

import holdfast
from holdfast.doors.console import app as app_module
from holdfast.doors.console.app import Console
from holdfast.doors.http.app import App, make_app
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock


@pytest.fixture(scope="session", autouse=True)
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile each template once for all tests: most of what the first page of an app costs."""
    cache = FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "Environment", partial(Environment, bytecode_cache=cache))
        yield


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hf(clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(":memory:", clock=clock) as hf:
        yield hf


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def app(hf: Holdfast, clock: FrozenClock) -> Iterator[App]:
    app = make_app(hf, clock=clock, make_site=Console)
    yield app
    app.state.close()


@pytest.fixture
def visitor(app: App, runner: asyncio.Runner) -> ConsoleClient:
    """A visitor of the server, which is open until a key is made."""
    return ConsoleClient(app, runner)


@pytest.fixture
def signed_in(hf: Holdfast, app: App, runner: asyncio.Runner) -> Callable[..., ConsoleClient]:
    """Make a visitor who signed in with a new key of a scope, maybe bound to an agent or user."""

    def sign_in(scope: str = "admin", **bound: str) -> ConsoleClient:
        key = hf.keys.create(f"{scope}-key", scope=scope, **bound)  # pyright: ignore[reportArgumentType] - one of the three
        assert key.secret is not None
        client = ConsoleClient(app, runner)
        assert client.sign_in(key.secret).status == 303
        return client

    return sign_in
