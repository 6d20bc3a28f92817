"""What the contracts of records of runs start from."""

from collections.abc import Callable, Generator

import pytest

from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.mirror import Attached
from holdfast.memories.run.records.record import RunControl

Show = Callable[..., Attached]


class Held:
    """Control of a run that records its calls."""

    def __init__(self, *running: str) -> None:
        self.running = list(running)
        self.asked: list[tuple[str, ...]] = []

    def cancel(self, reason: str = "cancelled") -> None:
        """Record a cancellation."""
        self.asked.append(("cancel", reason))

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        """Record a message and the steps that receive it."""
        steps = self.running if step is None else [step]
        self.asked.append(("steer", text, *steps))
        return steps


class GivenARun:
    """Fixtures: a memory, and a function that attaches it to the subclass's `hf`."""

    @pytest.fixture
    def memory(self) -> RunMemory:
        """Return the memory of a run."""
        return RunMemory()

    @pytest.fixture
    def show(self, hf: Holdfast) -> Generator[Show]:
        """Give what attaches a memory, and ends what the test did not end."""
        shown: list[Attached] = []

        def attach(
            memory: RunMemory, name: str = "research", control: RunControl | None = None
        ) -> Attached:
            over = hf.runs.attach(memory, name=name, agent="ada", control=control)
            shown.append(over)
            return over

        yield attach
        for over in shown:
            over("cancelled")
