"""Results kept in a thread, held against their bytes as the driver alone writes them."""

import asyncio
from itertools import count
from pathlib import Path

import msgspec
from machine import connected
from measure import Bench, one_by_one, paired, together
from texts import Texts

import holdfast
from holdfast.memories.state.result import InferenceResult, result_id
from holdfast.runtime import EngineHistory, HistoryContext

TEXT_BYTES = 2_000
THREAD = "thread_7"


class Kept:
    """A thread in a file of its own."""

    def __init__(self, path: Path) -> None:
        self.hf = holdfast.open(path)
        self.history = EngineHistory(self.hf)
        self._texts, self._made = Texts(), count()
        self.text = self._texts.of_bytes(TEXT_BYTES)

    def result(self) -> InferenceResult:
        """Return the next result."""
        index = next(self._made)
        return InferenceResult(
            agent="writer", input=self.text, id=result_id("run_1", index), run_id="run_1"
        )

    def append(self, result: InferenceResult) -> None:
        self.hf.threads.append(THREAD, [result])


class Bare:
    """The driver alone, with the same durability: one insert, one commit."""

    def __init__(self, path: Path, body: str) -> None:
        self._body = body
        self.connection = connected(path)
        for pragma in ("journal_mode = wal", "synchronous = full"):
            self.connection.execute(f"pragma {pragma}").fetchall()
        self.connection.execute("create table raw (number integer primary key, body text not null)")

    def insert(self, _: int) -> None:
        """Write one row, with a commit of its own."""
        self.connection.execute("insert into raw (body) values (?)", (self._body,)).fetchall()


def keeping(bench: Bench) -> None:
    """Measure what it costs to keep a result in a thread."""
    ours = Kept(bench.folder / "ours.db")
    body = msgspec.json.encode(ours.result().export()).decode()
    raw = Bare(bench.folder / "raw.db", body)
    writes = bench.size(1_000, 150)
    # A run has its results already when it keeps them.
    ready = [ours.result() for _ in range(writes * (bench.rounds + 1))]
    next_of = iter(ready)
    rounds = paired(
        lambda: one_by_one(writes, lambda _: ours.append(next(next_of))),
        lambda: one_by_one(writes, raw.insert),
        bench.rounds,
    )
    bench.cost("threads.append of a result", "one insert of its bytes", 1.3, rounds)
    _awaited(bench, ours, raw, writes)
    rounds = paired(
        lambda: together(16, writes, lambda _: ours.append(ours.result())),
        lambda: one_by_one(writes, raw.insert),
        bench.rounds,
    )
    bench.cost("threads.append, 16 threads", "one insert of its bytes", 1.0, rounds)
    ours.hf.close()


def _awaited(bench: Bench, ours: Kept, raw: Bare, writes: int) -> None:
    """Measure what a network waits for, with the event loop it has."""
    ctx = HistoryContext(run_id="run_1", thread_id=THREAD)
    with asyncio.Runner() as runner:

        def keep(_: int) -> None:
            runner.run(ours.history.append_results(ctx, [ours.result()]))

        rounds = paired(
            lambda: one_by_one(writes, keep),
            lambda: one_by_one(writes, raw.insert),
            bench.rounds,
        )
    bench.cost("EngineHistory.append_results", "one insert of its bytes", 1.3, rounds)
