"""The memory stores' contract on PostgreSQL, each test in a workspace of its own."""

from collections.abc import Iterator

import pytest
from contracts.suites import STORES, suites_of

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.shared import Shared, new_workspace


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> Iterator[Shared]:
    clock = FrozenClock()
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with holdfast.open(url, clock=clock) as hf:
        yield Shared(hf, clock)


@pytest.fixture
def clock(shared: Shared) -> FrozenClock:
    return shared.clock


@pytest.fixture
def hf(shared: Shared) -> Holdfast:
    return shared.hf.acting(workspace=new_workspace())


@pytest.fixture
def elsewhere(shared: Shared) -> Holdfast:
    return shared.hf.acting(workspace=new_workspace())


globals().update(suites_of(STORES))
