"""The contract of checkpoints within a process."""

import pytest

from holdfast.runtime.runs.checkpoints import MemoryCheckpoints
from holdfast.testing.contracts.checkpoints import LoggedCheckpointsContract


class TestInMemory(LoggedCheckpointsContract):
    @pytest.fixture
    def checkpoints(self) -> MemoryCheckpoints:
        return MemoryCheckpoints()
