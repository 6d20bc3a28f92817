"""The contract of records of runs through the HTTP door and the client for it."""

from collections.abc import Iterator

import pytest
from contracts.suites import RUNS, suites_of

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import serving
from holdfast.testing.shared import Server, new_workspace


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve a file of these tests' own, for they let years pass."""
    clock = FrozenClock()
    path = tmp_path_factory.mktemp("served") / "h.db"
    with holdfast.open(path, clock=clock) as hf, serving(hf, clock=clock) as url:
        yield Server(url, hf, clock)


@pytest.fixture
def hf(server: Server) -> Iterator[Holdfast]:
    with holdfast.open(server.url, workspace=new_workspace()) as hf:
        yield hf


@pytest.fixture
def clock(server: Server) -> FrozenClock:
    return server.clock


@pytest.fixture
def elsewhere(server: Server) -> Iterator[Holdfast]:
    with holdfast.open(server.url, workspace=new_workspace()) as hf:
        yield hf


globals().update(suites_of(RUNS))
