"""The contract of long-term memory through the HTTP door and the client for it."""

from collections.abc import Callable, Iterator

import pytest
from contracts.longterm_reads import LongTermEventsContract
from contracts.longterm_recall import (
    LongTermMarksContract,
    LongTermRecallingContract,
)
from contracts.suites import LONGTERM, suites_of

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


class LetsGo:
    """Gives what makes the server's process let go of what it keeps."""

    @pytest.fixture
    def let_go(self, server: Server) -> Callable[[], None]:
        return server.hf.longterm_shared.kept.clear


class TestMarks(LetsGo, LongTermMarksContract):
    pass


class TestRecalling(LetsGo, LongTermRecallingContract):
    pass


# Events are told where a handle is, not through the wire.
APART = (LongTermEventsContract, LongTermMarksContract, LongTermRecallingContract)

globals().update(suites_of(each for each in LONGTERM if each not in APART))
