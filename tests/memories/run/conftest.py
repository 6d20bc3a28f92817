"""A clock that stands still, and memories of runs by it."""

import pytest
from contracts.run_memory import NewMemory

from holdfast.ground.events import EventBus
from holdfast.memories.run.entry import UNLESS_SAID, RunLimits
from holdfast.memories.run.memory import RunMemory
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def new(clock: FrozenClock) -> NewMemory:
    def make(
        *,
        limits: RunLimits = UNLESS_SAID,
        bus: EventBus | None = None,
        run_id: str | None = None,
    ) -> RunMemory:
        return RunMemory(clock=clock, limits=limits, bus=bus, run_id=run_id)

    return make
