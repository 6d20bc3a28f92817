"""Surfaces of the contracts: each contract runs in full in memory and on PostgreSQL.

On a SQLite file and through HTTP run those that can differ there. A marker on a class or a test
says why: `@pytest.mark.surface("http", "filters cross the wire")`. HOLDFAST_ALL_SURFACES=1 runs
each contract on every surface, but for those marked `embedded`, which never run through HTTP.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from targets import surfaces_of

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.serving import Server, Shared, new_workspace, serving

PARTS = {
    # They need more than a handle, which the tests of each implementation give them.
    "FilesContract",
    "FilesWritesContract",
    "LongTermMeaningContract",
    "LongTermMiningContract",
}


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Class | None:
    """Collect the contracts that a file defines."""
    if not (inspect.isclass(obj) and name.endswith("Contract")):
        return None
    if name in PARTS or obj.__module__ != collector.obj.__name__:
        return None
    made: pytest.Class = pytest.Class.from_parent(  # pyright: ignore[reportUnknownMemberType] - pytest's
        collector, name=name, obj=obj
    )
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses a surface on each surface that it needs."""
    if "surface" in metafunc.fixturenames:
        metafunc.parametrize("surface", surfaces_of(metafunc.definition))


@pytest.fixture(scope="module")
def on_memory() -> Iterator[Shared]:
    clock = FrozenClock()
    with holdfast.open(":memory:", clock=clock) as hf:
        yield Shared(hf, clock)


@pytest.fixture(scope="module")
def on_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    clock = FrozenClock()
    with holdfast.open(tmp_path_factory.mktemp("on") / "h.db", clock=clock) as hf:
        yield Shared(hf, clock)


@pytest.fixture(scope="module")
def on_postgres(postgres_server: PostgresServer) -> Iterator[Shared]:
    clock = FrozenClock()
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with holdfast.open(url, clock=clock) as hf:
        yield Shared(hf, clock)


@pytest.fixture(scope="module")
def on_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve a file of the module's own, for its tests let years pass."""
    clock = FrozenClock()
    path = tmp_path_factory.mktemp("served") / "h.db"
    with holdfast.open(path, clock=clock) as hf, serving(hf, clock=clock) as url:
        yield Server(url, hf, clock)


@pytest.fixture(scope="module")
def connected(on_http: Server) -> Iterator[Holdfast]:
    """Give a handle through `on_http`; handles of tests share its connections."""
    with holdfast.open(on_http.url) as hf:
        yield hf


@pytest.fixture
def shared(surface: str, request: pytest.FixtureRequest) -> Shared | Server:
    """Give the database of the test's surface, which the tests of a module share."""
    return request.getfixturevalue(f"on_{surface}")


@pytest.fixture
def clock(shared: Shared | Server) -> FrozenClock:
    return shared.clock


@pytest.fixture
def embedded(shared: Shared | Server) -> Holdfast:
    """Give the handle of this process, which is the server's where a test runs through HTTP."""
    return shared.hf


@pytest.fixture
def hf(shared: Shared | Server, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """Give a handle to a workspace of the test's own."""
    yield from a_workspace(shared, request)


@pytest.fixture
def elsewhere(shared: Shared | Server, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """Give a handle to another workspace than the test's own."""
    yield from a_workspace(shared, request)


def a_workspace(shared: Shared | Server, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """Open a new workspace in *shared*."""
    if isinstance(shared, Shared):
        yield shared.hf.acting(workspace=new_workspace())
    else:
        connected: Holdfast = request.getfixturevalue("connected")
        with connected.acting(workspace=new_workspace()) as hf:
            yield hf


@pytest.fixture
def administrator(
    surface: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Holdfast]:
    """Give a handle that may make keys.

    A server is closed to all without a key once one is made: so it has a server of its own.
    """
    if surface != "http":
        yield request.getfixturevalue("hf")
        return
    clock = request.getfixturevalue("clock")
    with (
        holdfast.open(tmp_path / "h.db", clock=clock) as served,
        serving(served, clock=clock) as url,
        holdfast.open(url, api_key=served.keys.create("admin", scope="admin").secret) as hf,
    ):
        yield hf
