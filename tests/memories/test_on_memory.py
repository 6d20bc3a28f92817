"""The memory stores' contract in a database that lives in memory."""

from collections.abc import Iterator

import pytest
from contracts.suites import STORES, suites_of

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hf(clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(":memory:", clock=clock) as hf:
        yield hf


@pytest.fixture
def elsewhere(hf: Holdfast) -> Holdfast:
    return hf.acting(workspace="elsewhere")


globals().update(suites_of(STORES))
