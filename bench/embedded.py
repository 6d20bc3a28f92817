"""How do library calls compare with what the driver itself can do?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import resource
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import apsw
from machine import connected
from measure import UNSYNCED, Bench, Timing, beside, main, one_by_one, paired, together
from raw import ENTRIES, Raw
from texts import Texts

import holdfast
from holdfast import Holdfast
from holdfast.engines.base import Engine, Transaction
from holdfast.engines.sqlite import SQLiteEngine

FOUND = 5_000
TEXT_BYTES = 170

_FIND = "select rowid, words from bare where bare match ? order by rank limit 10"


class Ours:
    """A store with as many memories, in a file of its own."""

    def __init__(self, path: Path, text: str, *, entries: int = ENTRIES) -> None:
        self.hf = holdfast.open(path)
        self.hf.memory_stores.configure(memories_cap=1_000_000)
        self.text = text
        self.store = self.hf.memory_stores.create(name="Bench").id
        self._made = count()
        together(16, entries, self.create)
        self.ids = [memory.id for memory in self.memories.list(self.store, limit=100).all()]

    @property
    def memories(self) -> Any:
        return self.hf.memory_stores.memories

    def create(self, _: int) -> None:
        path = f"/notes/{next(self._made):07}.md"
        self.memories.create(self.store, path=path, content=self.text)

    def retrieve(self, number: int) -> None:
        self.memories.retrieve(self.ids[number % len(self.ids)], memory_store_id=self.store)


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    text = Texts().of_bytes(TEXT_BYTES)
    raw, ours = Raw(bench.folder / "raw.db", text), Ours(bench.folder / "ours.db", text)
    reads, writes = bench.size(20_000, 3_000), bench.size(1_500, 250)
    if not bench.writes:
        _reads(bench, ours, raw, reads)
    _writes(bench, ours, raw, writes)
    if not bench.writes:
        _crowds(bench, ours, reads, writes)
        _search(bench)
    if bench.stages and not bench.writes:
        bench.report.stages = stages(ours, writes)
        bench.report.costs = costs(ours, writes)
    ours.hf.close()


def _reads(bench: Bench, ours: Ours, raw: Raw, count: int) -> None:
    bench.rate(
        "memories.retrieve",
        "raw get by key",
        0.33,
        paired(
            lambda: one_by_one(count, ours.retrieve),
            lambda: one_by_one(count, raw.get),
            bench.rounds,
        ),
    )


def _writes(bench: Bench, ours: Ours, raw: Raw, count: int) -> None:
    def put() -> Timing:
        return one_by_one(count, raw.put)

    bench.rate(
        "memories.create, 1 thread",
        "raw put",
        0.28,
        paired(lambda: one_by_one(count, ours.create), put, bench.rounds),
        never_above=UNSYNCED,
    )
    bench.rate(
        "memories.create, 64 threads",
        "raw put",
        1.5,
        paired(lambda: together(64, count * 2, ours.create), put, bench.rounds),
    )


def _crowds(bench: Bench, ours: Ours, reads: int, writes: int) -> None:
    def at(threads: int) -> Callable[[], Timing]:
        return lambda: together(threads, writes * 2, ours.create)

    bench.rate("memories.create, 8 threads", "64 threads", 0.6, paired(at(8), at(64), bench.rounds))
    bench.rate(
        "memories.create, 256 threads", "64 threads", 0.8, paired(at(256), at(64), bench.rounds)
    )
    bench.rate(
        "memories.retrieve, 64 threads together",
        "1 thread",
        0.5,
        paired(
            lambda: together(64, reads, ours.retrieve),
            lambda: one_by_one(reads, ours.retrieve),
            bench.rounds,
        ),
    )

    def amid_writes() -> Timing:
        with beside(16, ours.create):
            return one_by_one(reads // 10, ours.retrieve)

    bench.rate(
        "memories.retrieve beside 16 writing threads",
        "alone",
        0.10,
        paired(amid_writes, lambda: one_by_one(reads, ours.retrieve), bench.rounds),
    )
    for threads in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        bench.report.curve[str(threads)] = 1e9 / at(threads)().each


def _search(bench: Bench) -> None:
    texts = Texts(11)
    corpus = [texts.words(12) for _ in range(FOUND)]
    queries = [texts.asked(corpus[number * 7 % len(corpus)]) for number in range(100)]
    hf = holdfast.open(bench.folder / "search.db")
    store = hf.memory_stores.create(name="Bench").id
    memories = hf.memory_stores.memories
    together(
        16,
        len(corpus) // 16 * 16,
        lambda number: memories.create(store, path=f"/{number:05}.md", content=corpus[number]),
    )
    bare = connected(bench.folder / "bare.db")
    bare.execute("create virtual table bare using fts5 (words)")
    with bare:
        bare.executemany("insert into bare (words) values (?)", [(each,) for each in corpus])
    asked = [" OR ".join(f'"{word}"' for word in query.split()) for query in queries]
    bench.rate(
        f"memories.search, 10 of {len(corpus):,}",
        "the bare FTS5 query with bm25",
        0.4,
        paired(
            lambda: one_by_one(len(queries), lambda i: memories.search(store, queries[i])),
            lambda: one_by_one(len(asked), lambda i: bare.execute(_FIND, (asked[i],)).fetchall()),
            bench.rounds,
        ),
    )
    hf.close()


def stages(ours: Ours, count: int) -> dict[str, float]:
    """Return the microseconds that a create on one thread spends in each stage."""
    watched = _Watched(ours.hf)
    commit = _commits(ours.hf)
    spent = dict.fromkeys(("validation", "queue", "statements", "commit", "result"), 0.0)
    for number in range(count):
        path = f"/staged/{number:07}.md"
        called = perf_counter()
        watched.hf.memory_stores.memories.create(ours.store, path=path, content=ours.text)
        ended = perf_counter()
        before, commit = commit, _commits(ours.hf)
        spent["validation"] += watched.handed - called
        spent["queue"] += watched.begun - watched.handed
        spent["statements"] += watched.done - watched.begun
        spent["commit"] += commit - before
        spent["result"] += ended - watched.done - (commit - before)
    return {stage: seconds / count * 1e6 for stage, seconds in spent.items()}


def costs(ours: Ours, count: int) -> dict[str, dict[str, float]]:
    """Return what a write costs the writer and its callers, by the number of callers."""
    durable = ours.hf.durable("costs")
    calls: dict[str, Callable[[int], object]] = {
        "durable.set": lambda number: durable.set(
            f"key_{number % ENTRIES}", f"{number} {ours.text}", category="note"
        ),
        "memories.create": ours.create,
    }
    return {
        f"{what}, {callers} callers": _cost(ours.hf, callers, count, call)
        for what, call in calls.items()
        for callers in (1, 8, 64)
    }


def _cost(
    hf: Holdfast, callers: int, count: int, call: Callable[[int], object]
) -> dict[str, float]:
    share = max(1, count // callers) * callers
    together(callers, share, call)
    before = _spent(hf)
    together(callers, share, call)
    return {what: (after - before[what]) / share for what, after in _spent(hf).items()}


def _spent(hf: Holdfast) -> dict[str, float]:
    """Return what the process has used so far."""
    engine = cast("SQLiteEngine", hf.engine)
    (writer,) = [each for each in threading.enumerate() if each.name == "holdfast-writer"]
    on_writer = time.clock_gettime(time.pthread_getcpuclockid(cast("int", writer.ident)))
    used = resource.getrusage(resource.RUSAGE_SELF)
    with engine.core.database.turn:
        pages, _ = engine.core.writer.group.connection().raw.status(
            apsw.SQLITE_DBSTATUS_CACHE_WRITE
        )
    return {
        "writer µs": on_writer * 1e6,
        "callers µs": (time.process_time() - on_writer) * 1e6,
        "switches": used.ru_nvcsw,
        "statements": engine.statements,
        "commits": engine.status().metrics["groups_total"],
        "pages of log": pages,
    }


def _commits(hf: Holdfast) -> float:
    return hf.engine.status().metrics["commit_seconds_sum"]


class _Watched:
    """A handle whose writes note when they were handed in, begun and done."""

    def __init__(self, hf: Holdfast) -> None:
        self.handed = self.begun = self.done = 0.0
        self.hf = hf.acting(through=self._face)

    def _face(self, engine: Engine) -> Engine:
        return cast("Engine", _Face(engine, self))


class _Face:
    def __init__(self, engine: Engine, watched: _Watched) -> None:
        self._engine, self._watched = engine, watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def write(self, work: Callable[[Transaction], object]) -> object:
        watched = self._watched
        watched.handed = perf_counter()

        def timed(tx: Transaction) -> object:
            watched.begun = perf_counter()
            try:
                return work(tx)
            finally:
                watched.done = perf_counter()

        return self._engine.write(timed)


if __name__ == "__main__":
    main("embedded", __doc__ or "", run)
