"""The memory stores' contract through the HTTP door and the client for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contracts.access import KeysContract
from contracts.changes import EventsContract
from contracts.suites import STORES, suites_of

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import serving
from holdfast.testing.shared import Server, new_workspace


@pytest.fixture
def clock(server: Server) -> FrozenClock:
    return server.clock


@pytest.fixture
def hf(remote: Holdfast) -> Holdfast:
    return remote


@pytest.fixture
def elsewhere(server: Server) -> Iterator[Holdfast]:
    with holdfast.open(server.url, workspace=new_workspace()) as hf:
        yield hf


class TestKeys(KeysContract):
    """A server closes to all without a key once one is made: so it has a server of its own."""

    @pytest.fixture
    def hf(self, tmp_path: Path, clock: FrozenClock) -> Iterator[Holdfast]:
        with (
            holdfast.open(tmp_path / "h.db", clock=clock) as served,
            serving(served, clock=clock) as url,
            holdfast.open(url, api_key=served.keys.create("admin", scope="admin").secret) as hf,
        ):
            yield hf


# Events are told where a handle is, not through the wire.
OVER_HTTP = [each for each in STORES if each not in (EventsContract, KeysContract)]
globals().update(suites_of(OVER_HTTP))
