"""The memory stores' contract in a SQLite file that all tests share, each in its workspace."""

from collections.abc import Iterator

import pytest
from contracts.suites import STORES, suites_of

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.shared import Shared, new_workspace


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    clock = FrozenClock()
    with holdfast.open(tmp_path_factory.mktemp("on") / "h.db", clock=clock) as hf:
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
