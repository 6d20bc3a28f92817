"""A history in a database of Holdfast's, here or on a server."""

import asyncio
from collections.abc import Sequence
from typing import cast

from holdfast import library
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.events import EventBus
from holdfast.ground.ids import Ids
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.run_records import RunRecord
from holdfast.memories.state.thread import ThreadMessage, ThreadTurn
from holdfast.runtime.history import HistoryContext


class EngineHistory:
    """Keeps threads and runs in the workspace of a handle, whatever that was opened on.

    What it is asked to keep is durable when the answer comes; the event loop does not wait.
    """

    def __init__(
        self, hf: "library.Holdfast", *, clock: Clock | None = None, ids: Ids | None = None
    ) -> None:
        self.hf = hf
        self._clock, self._ids = clock or SystemClock(), ids or Ids()

    @property
    def bus(self) -> EventBus | None:
        """Where what happens in its runs is told: its engine's bus; None through a server."""
        found = cast("object", self.hf.events)
        return found if isinstance(found, EventBus) else None

    def create_thread(self, ctx: HistoryContext) -> str:
        """Return the id of a new thread, which is there once something is appended."""
        del ctx
        return self._ids.new("thread", to_microseconds(self._clock.now()))

    async def get(self, ctx: HistoryContext) -> list[InferenceResult]:
        """Return the thread's results, oldest first; [] for an unknown thread."""
        return await asyncio.to_thread(self._results, thread_of(ctx))

    async def append_user_message(self, ctx: HistoryContext, message: ThreadMessage) -> None:
        """Keep what the user said; the same twice is once."""
        turn = ThreadTurn.said(message, run_id=ctx.run_id)
        await asyncio.to_thread(self.hf.threads.append, thread_of(ctx), [turn])

    async def append_results(self, ctx: HistoryContext, results: Sequence[InferenceResult]) -> None:
        """Keep *results*, all or none; the same twice is once, else ResultDiffers."""
        await asyncio.to_thread(self.hf.threads.append, thread_of(ctx), results)

    async def get_run(self, ctx: HistoryContext) -> RunRecord | None:
        """Return the record of the run, or None."""
        return await asyncio.to_thread(self._run, ctx.run_id)

    async def start_run(self, ctx: HistoryContext, record: RunRecord) -> None:
        """Keep the record of a run that has begun; Conflict if it has ended before."""
        del ctx
        await asyncio.to_thread(self.hf.network_runs.put, record)

    async def end_run(self, ctx: HistoryContext, summary: RunRecord) -> None:
        """Keep the record of a run that has ended."""
        del ctx
        await asyncio.to_thread(self.hf.network_runs.put, summary)

    def _results(self, thread_id: str) -> list[InferenceResult]:
        try:
            return self.hf.threads.results(thread_id)
        except NotFound:
            return []

    def _run(self, run_id: str) -> RunRecord | None:
        try:
            return self.hf.network_runs.retrieve(run_id)
        except NotFound:
            return None


def thread_of(ctx: HistoryContext) -> str:
    """Return the thread that *ctx* names; InvalidInput if it names none."""
    if ctx.thread_id is None:
        raise InvalidInput("thread_id", "is needed to store a run")
    return ctx.thread_id
