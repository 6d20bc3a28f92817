"""`CheckpointWriter`: saves the checkpoints of one run while it goes on.

Saving may take as long as a disk or a database does, so it is done on a thread, and what is
complete meanwhile is part of the next save. After the first save of a run only changes are stored.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from holdfast.ground.errors import StaleRun
from holdfast.memories.run import keys
from holdfast.memories.run.entry import RunEntry
from holdfast.runtime.checkpoints import (
    Checkpoint,
    CheckpointChange,
    CheckpointLog,
    Checkpoints,
    LoggedCheckpoints,
    hashed,
)
from holdfast.runtime.context import Context
from holdfast.runtime.events import EventFacts, LogUpdate

log = logging.getLogger(__name__)

SPARE: Final = 1_048_576
"""Bytes of changes, beyond the size of the whole, after which it is stored whole again."""

ROUGH: Final = 256
"""Bytes of an entry beside its value, and of a name."""


class CheckpointWriter:
    """Saves the checkpoints of one run: what is complete is part of the next save.

    `failed` is the reason of the last save that failed; a run goes on without its checkpoint.
    """

    def __init__(
        self, checkpoints: Checkpoints, context: Context, parts: Mapping[str, str]
    ) -> None:
        self._checkpoints, self._context = checkpoints, context
        self._parts, self._plan_hash = parts, hashed(parts)
        self._changes = context.memory.changes()
        self._tasks: dict[str, None] = {}
        self._steps: dict[str, None] = {}
        self._new_tasks: list[str] = []
        self._new_steps: list[str] = []
        self._log: CheckpointLog | None = None
        self._whole_bytes = self._changed_bytes = 0
        self._requested = self._begun = self._done = 0
        self._saving: asyncio.Task[None] | None = None
        self._version = 0
        self._kept: list[str] = []
        self.failed: str | None = None
        self.restored_steps: frozenset[str] = frozenset()
        self.restored_tasks: frozenset[str] = frozenset()

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Restore the memory of the run and what was complete from *checkpoint*."""
        self._context.memory.restore(checkpoint.entries)
        there = {entry.key for entry in checkpoint.entries if not entry.failed}
        for step in checkpoint.completed_steps:
            if keys.step(step) in there:
                self._steps[step] = None
        for task in checkpoint.completed_tasks:
            if keys.task(task) in there:
                self._tasks[task] = None
        self.restored_steps, self.restored_tasks = frozenset(self._steps), frozenset(self._tasks)

    async def keep(self, step: str, task: str | None = None) -> None:
        """Mark *step* as complete, and *task* with it; return when that is saved.

        It returns as well when the save has failed. When cancelled meanwhile it ends the save
        first: it is not known what of it is stored.
        """
        self._steps[step] = None
        self._new_steps.append(step)
        if task is not None:
            self._tasks[task] = None
            self._new_tasks.append(task)
        await self._saved()

    async def finish(self) -> None:
        """Save everything as a whole."""
        self._log = None
        await self._saved()

    async def close(self) -> None:
        """Return when no save is under way, even when cancelled meanwhile."""
        try:
            await self._saved(self._requested)
        finally:
            self._changes.close()

    async def _saved(self, wanted: int | None = None) -> None:
        """Return when the save *wanted*, else a new one, is done.

        When cancelled meanwhile, it raises after that.
        """
        again: asyncio.CancelledError | None = None
        if wanted is None:
            self._requested += 1
            wanted = self._requested
        while self._done < wanted:
            if self._saving is None:
                self._saving = asyncio.create_task(self._save())
            try:
                await asyncio.shield(self._saving)
            except asyncio.CancelledError as error:
                again = error
        if again:
            raise again

    async def _save(self) -> None:
        try:
            while self._done < self._requested:
                wanted = self._requested
                await self._tried()
                self._done = wanted
        finally:
            self._saving = None

    async def _tried(self) -> None:
        # Without a log, the next save is whole.
        appended, self._log = self._log, None
        try:
            if appended is None or not await asyncio.to_thread(appended.append, self._change()):
                appended = await asyncio.to_thread(self._begin, self._whole())
        except StaleRun as error:
            self._context.lose(error)
            self.failed = f"{type(error).__name__}: {error}"
        except Exception as error:
            # A failed save, for any reason, does not fail the run.
            log.warning("the checkpoint of %s was not saved", self._context.run_id, exc_info=True)
            self.failed = f"{type(error).__name__}: {error}"
            message = f"The checkpoint was not saved: {self.failed}"
            self._context.tell_soon(LogUpdate(severity="error", content=message))
        else:
            self._version += 1
            data = {"version": self._version, "cause": "step", "changed": self._kept}
            self._context.emit_soon(EventFacts(type="version.kept", data=data))
            if self._changed_bytes <= self._whole_bytes + SPARE:
                self._log = appended

    @property
    def _fence(self) -> int:
        held = self._context.ownership.leased
        return held.lease.fence if held is not None and held.covers(self._checkpoints) else 0

    def _begin(self, checkpoint: Checkpoint) -> CheckpointLog | None:
        place = self._checkpoints
        if isinstance(place, LoggedCheckpoints):
            return place.begin(checkpoint)
        place.save(checkpoint)
        return None

    def _change(self) -> CheckpointChange:
        # Names first, entries after: each name that is complete has its entry.
        tasks, steps = tuple(self._new_tasks), tuple(self._new_steps)
        self._new_tasks, self._new_steps = [], []
        entries, removed = self._changes.take()
        self._kept = [entry.key for entry in entries]
        self._changed_bytes += _size(entries, tasks, steps, removed)
        return CheckpointChange(
            run_id=self._context.run_id,
            completed_tasks=tasks,
            completed_steps=steps,
            removed=tuple(removed),
            entries=tuple(entries),
            saved_at=self._context.now(),
            fence=self._fence,
        )

    def _whole(self) -> Checkpoint:
        tasks, steps = tuple(self._tasks), tuple(self._steps)
        self._new_tasks, self._new_steps = [], []
        self._kept = [entry.key for entry in self._changes.take()[0]]
        # Taken before, so that what is written meanwhile is in the next change as well.
        entries = self._context.memory.snapshot()
        self._whole_bytes, self._changed_bytes = _size(entries, tasks, steps), 0
        return Checkpoint(
            run_id=self._context.run_id,
            plan_hash=self._plan_hash,
            parts=self._parts,
            completed_tasks=tasks,
            completed_steps=steps,
            entries=tuple(entries),
            saved_at=self._context.now(),
            fence=self._fence,
        )


def _size(entries: Iterable[RunEntry], *names: Iterable[str]) -> int:
    """Return about how many bytes *entries* and *names* take."""
    values = sum(ROUGH + len(entry.value_json) for entry in entries)
    return values + sum(ROUGH for _ in chain(*names))
