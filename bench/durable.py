"""How does durable memory compare with what the driver itself can do?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

from collections.abc import Callable
from html import escape
from itertools import count
from pathlib import Path

from machine import connected
from measure import UNSYNCED, Bench, Timing, beside, main, one_by_one, paired, together
from raw import ENTRIES, Raw
from texts import Texts

import holdfast
from holdfast.memories.durable.memory import DurableMemory

TEXT_BYTES = 170
HELD = 1_000
CAP = 1_000
SHORT, LONG = 200, 16_384
CHANGES_KEPT = 20
"""Of a key; a write of one that has as many drops the oldest."""

_ROWS = """
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by
from durable_entries where workspace = 'default' and agent = ?
"""
_CHOSEN = f"{_ROWS} and run_id = '' and key = ?"


class Ours:
    """One agent with as many entries as the raw table has rows, in a file of its own."""

    def __init__(self, path: Path, text: str, *, rewritten: int) -> None:
        self.hf = holdfast.open(path)
        self.durable = self.hf.durable("agent_7")
        self.texts = (text, f"{text[:-1]}.")
        self._made = count()
        for _ in range(rewritten):
            self.set_many(range(ENTRIES))

    def item(self) -> dict[str, str]:
        """Return what is next to be written: every key in turn, with another text than before."""
        number = next(self._made)
        text = self.texts[number // ENTRIES % 2]
        return {"key": f"key_{number % ENTRIES}", "content": text, "category": "core"}

    def set(self, _: int) -> None:
        self.durable.set(**self.item())

    def set_many(self, numbers: range) -> None:
        self.durable.set_many([self.item() for _ in numbers])

    def get(self, number: int) -> None:
        self.durable.get(f"key_{number % ENTRIES}")

    def list(self, _: int) -> None:
        self.durable.list(limit=50)


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    text = Texts().of_bytes(TEXT_BYTES)
    raw = Raw(bench.folder / "raw.db", text)
    ours = Ours(bench.folder / "ours.db", text, rewritten=bench.size(CHANGES_KEPT + 1, 2))
    reads, writes = bench.size(20_000, 3_000), bench.size(1_500, 250)
    if not bench.writes:
        _reads(bench, ours, raw, reads)
    _writes(bench, ours, raw, writes)
    if not bench.writes:
        _crowds(bench, ours, reads, writes)
    ours.hf.close()
    if not bench.writes:
        _evicting(bench, writes)
        _hydrating(bench)
        _large(bench)


def _reads(bench: Bench, ours: Ours, raw: Raw, count: int) -> None:
    rounds = paired(
        lambda: one_by_one(count, ours.get), lambda: one_by_one(count, raw.get), bench.rounds
    )
    bench.rate("durable.get", "raw get by key", 0.35, rounds)
    few = count // 20
    rounds = paired(
        lambda: one_by_one(few, ours.list),
        lambda: one_by_one(few, lambda _: raw.list()),
        bench.rounds,
    )
    bench.rate("durable.list(limit=50)", "raw order by updated_at desc limit 50", 0.25, rounds)


def _writes(bench: Bench, ours: Ours, raw: Raw, count: int) -> None:
    def put() -> Timing:
        return one_by_one(count, raw.put)

    rounds = paired(lambda: one_by_one(count, ours.set), put, bench.rounds)
    bench.rate("durable.set, 1 thread", "raw put", 0.4, rounds, never_above=UNSYNCED)
    rounds = paired(lambda: together(64, count * 2, ours.set), put, bench.rounds)
    bench.rate("durable.set, 64 threads", "raw put", 2.5, rounds)
    batches = max(5, count // 30)
    hundred = range(100)
    rounds = paired(
        lambda: one_by_one(batches, lambda _: ours.set_many(hundred)),
        lambda: one_by_one(batches, lambda _: raw.put_many(hundred)),
        bench.rounds,
    )
    bench.rate("durable.set_many of 100", "raw upserts, 100 to a commit", 0.25, rounds)


def _crowds(bench: Bench, ours: Ours, reads: int, writes: int) -> None:
    def at(threads: int) -> Callable[[], Timing]:
        return lambda: together(threads, writes * 2, ours.set)

    def alone() -> Timing:
        return one_by_one(writes, ours.set)

    bench.rate("durable.set, 64 threads", "1 thread", 5, paired(at(64), alone, bench.rounds))
    bench.rate("durable.set, 8 threads", "64 threads", 0.6, paired(at(8), at(64), bench.rounds))
    rounds = paired(
        lambda: together(64, reads, ours.get), lambda: one_by_one(reads, ours.get), bench.rounds
    )
    bench.rate("durable.get, 64 threads together", "1 thread", 0.5, rounds)

    def amid_writes() -> Timing:
        with beside(16, ours.set):
            return one_by_one(reads // 10, ours.get)

    rounds = paired(amid_writes, lambda: one_by_one(reads, ours.get), bench.rounds)
    bench.rate("durable.get beside 16 writing threads", "alone", 0.10, rounds)
    for threads in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        bench.report.curve[str(threads)] = 1e9 / at(threads)().each


def _filled(durable: DurableMemory, number: int, size: int) -> None:
    """Give *durable* that many entries of *size* bytes, a tenth of them core."""
    texts = Texts(3)
    pool = [texts.of_bytes(size) for _ in range(100)]
    items = [
        {
            "key": f"entry_{each:05}",
            "content": pool[each % len(pool)],
            "category": "note" if each % 10 else "core",
        }
        for each in range(number)
    ]
    for first in range(0, number, 500):
        durable.set_many(items[first : first + 500])


def _evicting(bench: Bench, count: int) -> None:
    hf = holdfast.open(bench.folder / "evicting.db")
    full, spacious = hf.durable("full"), hf.durable("spacious")
    spacious.set_limits(cap=100_000)
    for each in (full, spacious):
        _filled(each, CAP, SHORT)
    text, numbers = Texts(9).of_bytes(SHORT), iter(range(10**9))

    def new(durable: DurableMemory) -> Callable[[], Timing]:
        def one(_: int) -> None:
            durable.set(f"new_{next(numbers)}", text, category="note")

        return lambda: one_by_one(count, one)

    rounds = paired(new(full), new(spacious), bench.rounds)
    bench.rate(f"durable.set that evicts, {CAP:,} entries", "that does not", 0.5, rounds)
    hf.close()


def _hydrating(bench: Bench) -> None:
    path, times = bench.folder / "hydrating.db", bench.size(60, 15)
    hf = holdfast.open(path)
    durable = hf.durable("agent_7")
    _filled(durable, HELD, SHORT)
    bare = connected(path)
    hydration = durable.hydrate()
    if len(hydration.entries) != HELD:
        raise SystemExit(f"hydrated {len(hydration.entries)} entries, not {HELD}")
    rounds = paired(
        lambda: one_by_one(times, lambda _: durable.hydrate()),
        lambda: one_by_one(times, lambda _: bare.execute(_ROWS, ("agent_7",)).fetchall()),
        bench.rounds,
    )
    bench.cost(f"hydrate, {HELD:,} entries", "a bare select into tuples", 4, rounds)
    _rendering(bench, durable, times)
    _opening(bench, durable, times)
    bare.close()
    hf.close()


def _rendering(bench: Bench, durable: DurableMemory, times: int) -> None:
    contents = [entry.content for entry in durable.hydrate().entries]

    def rendered() -> Timing:
        # Each is rendered once: what was rendered is kept.
        fresh = iter([durable.hydrate() for _ in range(times)])
        return one_by_one(times, lambda _: next(fresh).render())

    def joined(_: int) -> str:
        return "\n".join([escape(content) for content in contents])

    rounds = paired(rendered, lambda: one_by_one(times, joined), bench.rounds)
    bench.cost(f"render, {HELD:,} entries", "joining html.escape of the same", 3, rounds)


def _opening(bench: Bench, durable: DurableMemory, times: int) -> None:
    text, numbers = Texts(9).of_bytes(SHORT), iter(range(10**9))

    def both(_: int) -> None:
        durable.hydrate()
        durable.set("entry_00001", f"{next(numbers)} {text}"[:SHORT], category="note")

    rounds = paired(
        lambda: one_by_one(times, lambda _: durable.run(), lambda run: run.end()),
        lambda: one_by_one(times, both),
        bench.rounds,
    )
    bench.cost(f"opening a run, {HELD:,} entries", "hydrate and one set", 1.5, rounds)


def _large(bench: Bench) -> None:
    path, times = bench.folder / "large.db", bench.size(60, 15)
    hf = holdfast.open(path)
    durable = hf.durable("agent_7")
    _filled(durable, HELD, LONG)
    keys = [entry.key for entry in durable.hydrate().entries]
    bare = connected(path)

    def chosen(_: int) -> None:
        for key in keys:
            bare.execute(_CHOSEN, ("agent_7", key)).fetchall()

    rounds = paired(
        lambda: one_by_one(times, lambda _: durable.hydrate()),
        lambda: one_by_one(times, chosen),
        bench.rounds,
    )
    what = f"hydrate, {len(keys)} of {HELD:,} entries of {LONG:,} bytes"
    bench.cost(what, "a bare select of just these", 3, rounds)
    bare.close()
    hf.close()


if __name__ == "__main__":
    main("durable", __doc__ or "", run)
