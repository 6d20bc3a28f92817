"""Checkpoints within this process: for tests, and for runs that are cancelled and gone on with."""

from threading import Lock

from holdfast.runtime.checkpoints.checkpoint import Checkpoint


class MemoryCheckpoints:
    """Keeps checkpoints as long as it is kept itself.

    >>> MemoryCheckpoints().load("run_42") is None
    True
    """

    def __init__(self) -> None:
        self._kept: dict[str, Checkpoint] = {}
        self._lock = Lock()

    def load(self, run_id: str) -> Checkpoint | None:
        """Return what was last saved of *run_id*, None when nothing was."""
        with self._lock:
            return self._kept.get(run_id)

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep *checkpoint* in place of what was there."""
        with self._lock:
            self._kept[checkpoint.run_id] = checkpoint

    def delete(self, run_id: str) -> None:
        """Keep nothing of *run_id* any longer."""
        with self._lock:
            self._kept.pop(run_id, None)
