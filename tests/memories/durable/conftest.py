"""Agents in a workspace of the test's own, on each engine, with a clock that is moved by hand."""

from collections.abc import Iterator

import pytest
from memories.conftest import Opened

from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    """Give the clock that `hf` goes by."""
    return FrozenClock()


@pytest.fixture
def hf(opened_by: Opened, clock: FrozenClock) -> Iterator[Holdfast]:
    """Give a handle to a workspace of the test's own, on SQLite and on PostgreSQL."""
    with opened_by(clock) as hf:
        yield hf


@pytest.fixture
def durable(hf: Holdfast) -> DurableMemory:
    """Give the memory of one agent."""
    return hf.durable("agent_7")


@pytest.fixture
def other(hf: Holdfast) -> DurableMemory:
    """Give the memory of another agent of the same workspace."""
    return hf.durable("agent_8")
