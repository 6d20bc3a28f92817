"""A history in memory: for tests, and for conversations that end with the process."""

from collections.abc import Sequence
from threading import Lock

from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import ResultDiffers
from holdfast.ground.ids import Ids
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.run_records import RunRecord, already_ended
from holdfast.memories.state.thread import ThreadMessage, ThreadTurn, checked_id
from holdfast.memories.state.thread_store import GivenTurn, checksum_of_turn, turns_of
from holdfast.runtime.engine_history import thread_of
from holdfast.runtime.history import HistoryContext


class InMemoryHistory:
    """Keeps threads and runs as `EngineHistory` does, for as long as it lives itself.

    Threads may share it.
    """

    def __init__(self, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self._clock, self._ids = clock or SystemClock(), ids or Ids()
        self._threads: dict[str, dict[str, ThreadTurn]] = {}
        self._runs: dict[str, RunRecord] = {}
        self._lock = Lock()

    def create_thread(self, ctx: HistoryContext) -> str:
        """Return the id of a new thread."""
        del ctx
        return self._ids.new("thread", to_microseconds(self._clock.now()))

    def get(self, ctx: HistoryContext) -> list[InferenceResult]:
        """Return the thread's results, oldest first; [] for an unknown thread."""
        found = self.turns(thread_of(ctx))
        return [turn.result for turn in found if turn.result is not None]

    def append_user_message(self, ctx: HistoryContext, message: ThreadMessage) -> None:
        """Keep what the user said; the same twice is once."""
        self._append(thread_of(ctx), [ThreadTurn.said(message, run_id=ctx.run_id)])

    def append_results(self, ctx: HistoryContext, results: Sequence[InferenceResult]) -> None:
        """Keep *results*, all or none; the same twice is once, else ResultDiffers."""
        self._append(thread_of(ctx), results)

    def get_run(self, ctx: HistoryContext) -> RunRecord | None:
        """Return the record of the run, or None."""
        with self._lock:
            return self._runs.get(ctx.run_id)

    def start_run(self, ctx: HistoryContext, record: RunRecord) -> None:
        """Keep the record of a run that has begun; Conflict if it has ended before."""
        del ctx
        self._put(record)

    def end_run(self, ctx: HistoryContext, summary: RunRecord) -> None:
        """Keep the record of a run that has ended."""
        del ctx
        self._put(summary)

    def turns(self, thread_id: str) -> list[ThreadTurn]:
        """Return the turns of the thread, oldest first; [] for an unknown one."""
        thread = checked_id("thread_id", thread_id)
        with self._lock:
            return list(self._threads.get(thread, {}).values())

    def _append(self, thread_id: str, given: Sequence[GivenTurn]) -> None:
        thread, turns = checked_id("thread_id", thread_id), turns_of(given)
        with self._lock:
            there = self._threads.get(thread, {})
            new: dict[str, ThreadTurn] = {}
            for turn in turns:
                held = there.get(turn.id) or new.get(turn.id)
                if held is None:
                    new[turn.id] = turn
                elif (stored := checksum_of_turn(held)) != (told := checksum_of_turn(turn)):
                    raise ResultDiffers(turn.id, stored=stored, given=told)
            self._threads[thread] = there | new

    def _put(self, record: RunRecord) -> None:
        with self._lock:
            held = self._runs.get(record.id)
            if held is not None and held.ended and held != record:
                raise already_ended(record.id)
            self._runs[record.id] = record
