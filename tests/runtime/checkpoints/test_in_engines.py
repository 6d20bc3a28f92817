"""The contract of checkpoints in databases, and what only they can be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import CheckpointUnreadable, Unsupported
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import EngineCheckpoints
from holdfast.testing.contracts.checkpoints import LoggedCheckpointsContract, checkpoint
from holdfast.testing.serving import new_workspace


class TestInSQLite(LoggedCheckpointsContract):
    @pytest.fixture
    def checkpoints(self, tmp_path: Path) -> Iterator[EngineCheckpoints]:
        with holdfast.open(tmp_path / "h.db") as hf:
            yield EngineCheckpoints(hf)


class TestInPostgreSQL(LoggedCheckpointsContract):
    @pytest.fixture
    def checkpoints(self, postgres_url: str) -> Iterator[EngineCheckpoints]:
        with holdfast.open(postgres_url) as hf:
            yield EngineCheckpoints(hf.acting(workspace=new_workspace()))


def test_workspaces_have_their_own() -> None:
    with holdfast.open(":memory:") as hf:
        EngineCheckpoints(hf).save(checkpoint())

        assert EngineCheckpoints(hf.acting(workspace="other")).load("run_1") is None


def test_it_is_there_when_the_database_is_opened_again(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "h.db") as hf:
        EngineCheckpoints(hf).save(checkpoint())

    with holdfast.open(tmp_path / "h.db") as hf:
        assert EngineCheckpoints(hf).load("run_1") == checkpoint()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format": "other"}\n'])
def test_a_row_that_is_no_checkpoint_is_unreadable(content: bytes) -> None:
    with holdfast.open(":memory:") as hf:
        hf.runs.checkpoints.save("run_1", content)

        with pytest.raises(CheckpointUnreadable, match="run_1"):
            EngineCheckpoints(hf).load("run_1")


def test_a_row_of_another_run_is_not_taken_for_this_ones() -> None:
    with holdfast.open(":memory:") as hf:
        EngineCheckpoints(hf).save(checkpoint("run_1"))
        (content,) = hf.runs.checkpoints.load("run_1")
        hf.runs.checkpoints.save("run_2", content)

        with pytest.raises(CheckpointUnreadable, match="run_1"):
            EngineCheckpoints(hf).load("run_2")


def test_through_a_server_there_are_none(remote: Holdfast) -> None:
    with pytest.raises(Unsupported):
        EngineCheckpoints(remote)
