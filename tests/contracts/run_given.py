"""What the contracts of run memory are given, and how they say what is refused."""

from collections.abc import Callable
from typing import Protocol

import pytest

from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.ground.events import EventBus
from holdfast.memories.run.entry import RunLimits
from holdfast.memories.run.memory import RunMemory
from holdfast.testing.fakes import FrozenClock


class NewMemory(Protocol):
    """Makes a memory of a run of its own."""

    def __call__(
        self,
        *,
        limits: RunLimits = ...,
        bus: EventBus | None = ...,
        run_id: str | None = ...,
    ) -> RunMemory:
        """Return it, with the test's clock."""
        ...


class GivenARun:
    """Give it a `clock` that stands still, and `new`, which makes memories by it."""

    @pytest.fixture
    def memory(self, new: NewMemory) -> RunMemory:
        """Give the memory of a run."""
        return new()


def milliseconds(clock: FrozenClock) -> int:
    """Return the instant *clock* stands at."""
    return round(clock.now().timestamp() * 1_000)


def keys_of(memory: RunMemory) -> list[str]:
    """Return the keys of *memory* in the order of their first write."""
    return [entry.key for entry in memory.snapshot()]


def refusal(act: Callable[[], object], kind: type[HoldfastError] = InvalidInput) -> HoldfastError:
    """Return the error of exactly *kind* that *act* raises; it must have a next step."""
    with pytest.raises(kind) as refused:
        act()
    assert type(refused.value) is kind
    assert refused.value.next
    return refused.value


def invalid(act: Callable[[], object], field: str) -> InvalidInput:
    """Return the error about *field* that *act* raises."""
    error = refusal(act)
    assert isinstance(error, InvalidInput)
    assert error.field == field
    return error
