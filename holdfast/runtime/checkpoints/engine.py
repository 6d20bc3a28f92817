"""Checkpoints in the database: beside the records of runs, one row for each run."""

from holdfast.ground.errors import CheckpointUnreadable
from holdfast.library.holdfast import Holdfast
from holdfast.runtime.checkpoints.checkpoint import Checkpoint
from holdfast.runtime.checkpoints.coding import Unreadable, decoded, encoded


class EngineCheckpoints:
    """Keeps checkpoints in the workspace that *hf* is opened for.

    *hf* is opened on a database; through a server it is Unsupported.
    """

    def __init__(self, hf: Holdfast) -> None:
        self._rows = hf.runs.checkpoints

    def load(self, run_id: str) -> Checkpoint | None:
        """Return what was last saved of *run_id*, None when nothing was."""
        content = self._rows.load(run_id)
        if content is None:
            return None
        where = f"checkpoint of {run_id}"
        try:
            found = decoded(content)
        except Unreadable as error:
            raise CheckpointUnreadable(where, str(error)) from error
        if found.run_id != run_id:
            raise CheckpointUnreadable(where, f"it is of the run {found.run_id}")
        return found

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep *checkpoint* in place of what was there."""
        self._rows.save(checkpoint.run_id, encoded(checkpoint))

    def delete(self, run_id: str) -> None:
        """Keep nothing of *run_id* any longer."""
        self._rows.delete(run_id)
