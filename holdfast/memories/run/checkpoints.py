"""Checkpoints of runs as rows: one for each run, whose content is its writer's."""

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.scope import checked_name
from holdfast.memories.run.records.record import RunsContext
from holdfast.memories.run.records.write import statements


class _Content(Struct, frozen=True):
    content: bytes


class CheckpointRows:
    """The checkpoints of a workspace's runs, as bytes."""

    def __init__(self, caller: RunsContext) -> None:
        self._caller = caller

    def load(self, run_id: str) -> bytes | None:
        """Return what was last saved of the run *run_id*, or None."""
        checked_name("run_id", run_id)
        found = self._caller.engine.first(
            _Content, statements(self._caller).get_checkpoint, run=run_id
        )
        return None if found is None else found.content

    def save(self, run_id: str, content: bytes) -> None:
        """Keep *content* of the run *run_id*, instead of what was saved before."""
        checked_name("run_id", run_id)
        caller, now = self._caller, self._caller.now()

        def work(tx: Transaction) -> None:
            tx.run(statements(caller).set_checkpoint, run=run_id, now=now, content=content)

        return caller.engine.write(work)

    def delete(self, run_id: str) -> bool:
        """Delete what is kept of the run *run_id*; tell whether there was anything."""
        checked_name("run_id", run_id)
        caller = self._caller

        def work(tx: Transaction) -> bool:
            return bool(tx.run(statements(caller).delete_checkpoint, run=run_id))

        return caller.engine.write(work)
