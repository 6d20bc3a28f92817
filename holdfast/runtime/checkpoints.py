"""Saving how far a run is, while it goes: one save at a time, for all that wait for one.

Saving may take as long as a disk or a database does, so it is done on a thread, and what is
complete meanwhile is part of the next save.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from holdfast.memories.run import keys
from holdfast.runtime.checkpoints.checkpoint import Checkpoint, Checkpoints, hashed
from holdfast.runtime.context import Context
from holdfast.runtime.events import LogUpdate

log = logging.getLogger(__name__)


class CheckpointWriter:
    """Keeps one run: what is complete, and when it was last saved.

    `failed` is why the last failed save failed; a run goes on without its checkpoint.
    """

    def __init__(
        self, checkpoints: Checkpoints, context: Context, parts: Mapping[str, str]
    ) -> None:
        self._checkpoints, self._context = checkpoints, context
        self._parts, self._plan_hash = parts, hashed(parts)
        self._tasks: dict[str, None] = {}
        self._steps: dict[str, None] = {}
        self._asked = self._begun = self._done = 0
        self._saving: asyncio.Task[None] | None = None
        self.failed: str | None = None
        self.restored_steps: frozenset[str] = frozenset()
        self.restored_tasks: frozenset[str] = frozenset()

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Take over what was complete in *checkpoint*, and the run's memory as it was then."""
        self._context.memory.restore(checkpoint.entries)
        there = {entry.key for entry in checkpoint.entries if not entry.failed}
        for step in checkpoint.completed_steps:
            if keys.step(step) in there:
                self._steps[step] = None
        for task in checkpoint.completed_tasks:
            if keys.task(task) in there:
                self._tasks[task] = None
        self.restored_steps, self.restored_tasks = frozenset(self._steps), frozenset(self._tasks)

    def note(self, step: str, *, task: str | None = None) -> None:
        """Let the next save say that *step* is complete, and with it *task*."""
        self._steps[step] = None
        if task is not None:
            self._tasks[task] = None
        self._ask()

    async def keep(self) -> None:
        """Return when all that was noted is saved, or was tried to be."""
        wanted = self._ask()
        while self._done < wanted:
            await asyncio.shield(self._ensure())

    async def close(self) -> None:
        """Return when nothing is being saved any more, even when cancelled meanwhile."""
        again: asyncio.CancelledError | None = None
        while self._saving is not None:
            try:
                await asyncio.shield(self._saving)
            except asyncio.CancelledError as error:
                again = error
        if again:
            raise again

    def _ask(self) -> int:
        self._asked += 1
        self._ensure()
        return self._asked

    def _ensure(self) -> asyncio.Task[None]:
        if self._saving is None:
            self._saving = asyncio.create_task(self._save())
        return self._saving

    async def _save(self) -> None:
        try:
            while self._begun < self._asked:
                self._begun = self._asked
                await self._tried(self._checkpoints.save, self._now())
                self._done = self._begun
        finally:
            self._saving = None

    def _now(self) -> Checkpoint:
        # Names first, entries after: whatever is named as complete has its entry.
        steps, tasks = tuple(self._steps), tuple(self._tasks)
        return Checkpoint(
            run_id=self._context.run_id,
            plan_hash=self._plan_hash,
            parts=self._parts,
            completed_tasks=tasks,
            completed_steps=steps,
            entries=tuple(self._context.memory.snapshot()),
            saved_at=self._context.now(),
        )

    async def _tried(self, save: Callable[[Checkpoint], None], checkpoint: Checkpoint) -> None:
        try:
            await asyncio.to_thread(save, checkpoint)
        except Exception as error:
            # Whatever a place for checkpoints fails with, the run itself goes on.
            log.warning("the checkpoint of %s was not saved", checkpoint.run_id, exc_info=True)
            self.failed = f"{type(error).__name__}: {error}"
            told = f"The checkpoint was not saved: {self.failed}"
            self._context.tell_soon(LogUpdate(severity="error", content=told))
