"""Records of runs in a workspace of the test's own, on each engine."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace


@pytest.fixture
def clock() -> FrozenClock:
    """Give the clock that `kept` goes by."""
    return FrozenClock()


@pytest.fixture
def kept(target: str, clock: FrozenClock) -> Iterator[Holdfast]:
    """Give a handle to a workspace of the test's own, on SQLite and on PostgreSQL."""
    with holdfast.open(target, workspace=new_workspace(), clock=clock) as hf:
        yield hf
