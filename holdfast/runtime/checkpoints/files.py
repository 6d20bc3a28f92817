"""Checkpoints as files, one for each run, whole or not there at all."""

import os
from hashlib import sha256
from pathlib import Path
from tempfile import mkstemp
from urllib.parse import quote

from holdfast.ground.errors import CheckpointUnreadable
from holdfast.ground.permissions import create_folders, sync_folder
from holdfast.runtime.checkpoints.checkpoint import Checkpoint
from holdfast.runtime.checkpoints.coding import Unreadable, decoded, encoded

BESIDE = ".new"
"""How the name of a file ends that is not whole yet."""

NAME_LENGTH = 120
"""Characters of a run's id that stand in the name of its file; a longer one gets its hash too."""


class FileCheckpoints:
    """Keeps checkpoints in *directory*, which is made when the first is saved.

    A file that cannot be read is CheckpointUnreadable, never as if nothing were there. Only its
    owner may read it: it holds what the run knew.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    def path(self, run_id: str) -> Path:
        """Return where the checkpoint of *run_id* is kept."""
        name = quote(run_id, safe="")
        if len(name) > NAME_LENGTH:
            name = f"{name[:NAME_LENGTH]}-{sha256(run_id.encode()).hexdigest()}"
        return self._directory / f"{name}.checkpoint"

    def load(self, run_id: str) -> Checkpoint | None:
        """Return what was last saved of *run_id*, None when nothing was."""
        path = self.path(run_id)
        try:
            found = decoded(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, Unreadable) as error:
            raise CheckpointUnreadable(str(path), str(error)) from error
        if found.run_id != run_id:
            raise CheckpointUnreadable(str(path), f"it is of the run {found.run_id}")
        return found

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep *checkpoint*: written beside its place, made durable, then put there at once."""
        path = self.path(checkpoint.run_id)
        if not self._directory.exists():
            create_folders(self._directory)
        handle, beside = mkstemp(BESIDE, f"{path.name}.", self._directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(encoded(checkpoint))
                file.flush()
                os.fsync(file.fileno())
            Path(beside).replace(path)
        finally:
            Path(beside).unlink(missing_ok=True)
        sync_folder(self._directory)

    def delete(self, run_id: str) -> None:
        """Keep nothing of *run_id* any longer."""
        path = self.path(run_id)
        # A process that was killed while it saved left what it had written so far.
        there = [path, *self._directory.glob(f"{path.name}.*{BESIDE}")]
        for each in there:
            each.unlink(missing_ok=True)
        if self._directory.exists():
            sync_folder(self._directory)
