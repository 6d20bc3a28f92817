"""The contract of checkpoints in databases, and what only they can be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import CheckpointUnreadable
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.versions import StateRow, VersionSave, state_at
from holdfast.memories.run.records.write import statements
from holdfast.runtime import EngineCheckpoints
from holdfast.testing.contracts.checkpoints import LoggedCheckpointsContract, change, checkpoint
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


@pytest.mark.parametrize("body", [b"", b"{}", b'{"key": 1}'])
def test_an_entry_of_another_form_is_unreadable(body: bytes) -> None:
    with holdfast.open(":memory:") as hf:
        row = StateRow("entry", "shared:a", body)
        save = VersionSave(run_id="run_1", fence=0, at=1, cause="step", rows=(row,))
        hf.runs.checkpoints.replace(save)

        with pytest.raises(CheckpointUnreadable, match="run_1"):
            EngineCheckpoints(hf).load("run_1")


def test_a_change_stores_what_changed_alone() -> None:
    with holdfast.open(":memory:") as hf:
        log = EngineCheckpoints(hf).begin(checkpoint(steps=3))

        assert log.append(change("s1"))

        context = hf.runs.context
        one, two = (
            state_at(context.engine, statements(context), "run_1", number) for number in (1, 2)
        )
        assert {key for key in two if one.get(key) != two[key]} == {
            ("entry", "step:s1"),
            ("part", "task:u"),
        }


class TestThroughAServer(LoggedCheckpointsContract):
    @pytest.fixture
    def checkpoints(self, remote: Holdfast) -> EngineCheckpoints:
        return EngineCheckpoints(remote)
