"""Remote memories: the operations of each façade, and methods of several requests."""

from typing import Final

from holdfast.library.operations.threads import NETWORK_RUNS, THREADS
from holdfast.library.remote.calls import remote_memory, requests_of
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.run_records import RunRecord
from holdfast.memories.state.thread import MOST_LISTED, checked_id
from holdfast.memories.state.threads import Threads

RemoteNetworkRuns: Final = remote_memory(NETWORK_RUNS)


def _results(self: Threads, id: str) -> list[InferenceResult]:
    found = self.turns(id, MOST_LISTED, kind="result").all()
    return [turn.result for turn in found if turn.result is not None]


def _runs(self: Threads, id: str) -> list[RunRecord]:
    runs = RemoteNetworkRuns(requests_of(self))
    found = list(runs.list(thread_id=checked_id("thread_id", id), limit=MOST_LISTED).all())
    if not found:
        self.retrieve(id)
    return found


RemoteThreads: Final = remote_memory(THREADS, results=_results, runs=_runs)
