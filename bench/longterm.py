"""Does long-term memory answer as fast as plain full text, and stay so as users grow in number?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import gzip
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Literal

import numpy as np
from machine import connected
from measure import UNSYNCED, Bench, Round, Timing, main, one_by_one, paired, together
from msgspec.structs import replace
from raw import Raw
from texts import Texts

import holdfast
from holdfast import Holdfast, LongTermMemory, LongTermOptions, Turn
from holdfast.memories.longterm.cache_budget import CACHE_BYTES
from holdfast.memories.longterm.recall.query import TABLE
from holdfast.memories.longterm.transaction import LARGE

TEXT_BYTES = 170
WORDS = 20
ASKED = 5
"""Words of a question."""
QUESTIONS = 40
ITEMS = 500
"""Of each collection."""
AT_ONCE = 1_000
SITTING = 20
FEW = 10
COLLECTIONS = (10, 100, 1_000)
MORE_COLLECTIONS = (10_000,)
FEW_COLLECTIONS = (10, 20)
VECTOR, MODEL_VECTOR = 256, 384
FEW_TURNS = 600
MIB = 1_048_576
USERS_GROW = "collections"

_MATCH = "select rowid, body from plain where plain match ? order by bm25(plain) limit 10"
_TOUCH = """
import holdfast
def resident():
    return int(next(line for line in open("/proc/self/status") if "VmRSS" in line).split()[1])
hf = holdfast.open({path!r})
hf.longterm("nobody", enabled=True, embedder=False).recall({query!r})
before = resident()
for number in range({collections}):
    hf.longterm(f"user_{{number:06}}", enabled=True, embedder=False).recall({query!r}, touch=False)
print((resident() - before) / 1024)
hf.close()
"""


class Plain:
    """The texts alone in FTS5, as somebody would search them who has nothing else."""

    def __init__(self, path: Path, texts: Sequence[str]) -> None:
        self._connection = connected(path)
        self._connection.execute("pragma journal_mode = wal").fetchall()
        self._connection.execute("create virtual table plain using fts5 (body)")
        with self._connection:
            self._connection.executemany(
                "insert into plain (body) values (?)", [(text,) for text in texts]
            )

    def search(self, query: str) -> None:
        """Find the ten rows that have most of the words of *query*."""
        words = " OR ".join(f'"{word}"' for word in query.split())
        if not self._connection.execute(_MATCH, (words,)).fetchall():
            raise SystemExit(f"nothing was found by {query}")

    def close(self) -> None:
        self._connection.close()


class ToyEmbedder:
    """The sum of a vector for each word, so that no model is measured."""

    model = "bench:words"

    def __init__(self, size: int = VECTOR) -> None:
        self._known: dict[str, Any] = {}
        self._size = size

    def embed(
        self, texts: Sequence[str], *, input_type: Literal["query", "document"]
    ) -> list[list[float]]:
        """Return a vector for each of *texts*."""
        del input_type
        return [self._sum(text.split()) for text in texts]

    def _sum(self, words: list[str]) -> list[float]:
        return np.sum([self._of_word(word) for word in words], axis=0).tolist()

    def _of_word(self, word: str) -> Any:
        found = self._known.get(word)
        if found is None:
            rounds = (blake2b(f"{number} {word}".encode()).digest() for number in range(4))
            digest = np.frombuffer(b"".join(rounds), dtype=np.uint8)
            found = self._known[word] = np.resize(digest / 127.5 - 1, self._size)
        return found


class ReadyEmbedder(ToyEmbedder):
    """Answers at once: the vector of each text is at hand."""

    def __init__(self, texts: Iterable[str], size: int) -> None:
        super().__init__(size)
        self._texts = {text: self._sum(text.split()) for text in texts}

    def embed(
        self, texts: Sequence[str], *, input_type: Literal["query", "document"]
    ) -> list[list[float]]:
        """Return a vector for each of *texts*."""
        del input_type
        return [self._texts[text] for text in texts]


class Asking:
    """Questions made of words of the texts, asked in turn."""

    def __init__(self, texts: Sequence[str], number: int = QUESTIONS) -> None:
        made, step = Texts(9), max(1, len(texts) // number)
        self._queries = [made.asked(text, ASKED) for text in texts[::step]]
        self.number = len(self._queries)

    def __call__(self, number: int) -> str:
        return self._queries[number % self.number]

    def of(self, ltm: LongTermMemory) -> Callable[[int], object]:
        """Return what asks *ltm* the question of a number."""
        return lambda number: ltm.recall(self(number), k=10, touch=False)


def _memory(
    hf: Holdfast, user: str, embedder: object = False, *, related: bool = True
) -> LongTermMemory:
    found = hf.longterm(
        user,
        enabled=True,
        embedder=embedder,  # type: ignore[arg-type]
        options=LongTermOptions(max_items=0, related=related),
    )
    if found is None:
        raise SystemExit("long-term memory is off here: HOLDFAST_LTM_ENABLED says so")
    return found


def _said(texts: Sequence[str]) -> list[Turn]:
    return [
        Turn(role="assistant" if number % 2 else "user", text=text, session=f"s{number // SITTING}")
        for number, text in enumerate(texts)
    ]


def _record(ltm: LongTermMemory, texts: Sequence[str]) -> None:
    turns = _said(texts)
    for first in range(0, len(turns), AT_ONCE):
        ltm.record(turns[first : first + AT_ONCE], thread_id="t1")


def _middle(timing: Timing) -> Timing:
    """Return *timing* told by its p50 alone, which no burst moves."""
    return replace(timing, each=timing.p50)


def _timed(times: int, call: Callable[[int], object]) -> Callable[[], Timing]:
    return lambda: _middle(one_by_one(times, call))


class Grown:
    """A file with many users, each with a collection of as many items."""

    def __init__(self, path: Path, items: int) -> None:
        self.path, self.items, self.collections, self.added = path, items, 0, 0
        self.hf = holdfast.open(path)
        texts = Texts(3)
        self.pool = [texts.words(WORDS) for _ in range(items)]
        self.asking = Asking(self.pool)
        self.fresh = (texts.words(WORDS) for _ in count())

    def grow(self, collections: int) -> None:
        """Add collections until there are as many."""
        for number in range(self.collections, collections):
            taken = self.user(number).import_(self._records())
            if taken.items != self.items:
                raise SystemExit(f"{taken.items} of {self.items} items were taken in")
        self.collections = collections

    def user(self, number: int) -> LongTermMemory:
        return _memory(self.hf, f"user_{number:06}")

    def some(self, number: int) -> LongTermMemory:
        """Return one of ten collections from all over the file."""
        step = self.collections // FEW
        return self.user(number % FEW * step + step // 2)

    def recall(self, number: int) -> None:
        self.some(number).recall(self.asking(number // FEW), k=10, touch=False)

    def remember(self, number: int) -> None:
        self.some(number).remember(next(self.fresh))
        self.added += 1

    def bytes_an_item(self) -> float:
        """Return what the file takes for each item, its log emptied."""
        self.hf.engine.scrub()
        return self.path.stat().st_size / (self.collections * self.items + self.added)

    def _records(self) -> Iterator[dict[str, object]]:
        """Give the items of a collection: the same for each, so that questions find as much."""
        for text in self.pool:
            yield {
                "type": "item",
                "text": text,
                "kind": "fact",
                "importance": 0.5,
                "origin": "api",
                "created_at": "2026-01-01T00:00:00Z",
            }


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    if bench.writes:
        _writes(bench)
        return
    _small(bench)
    _past(bench)
    _related(bench)
    _hybrid(bench)
    _ready(bench)
    _writes(bench)
    _growth(bench)
    _large(bench)


def _small(bench: Bench) -> None:
    turns, times = 600, bench.size(400, 80)
    made = Texts(5)
    texts = [made.words(WORDS) for _ in range(turns)]
    with holdfast.open(bench.folder / "small.db") as hf:
        ltm, plain = _memory(hf, "ana"), Plain(bench.folder / "plain.db", texts)
        _record(ltm, texts)
        asking = Asking(texts)
        rounds = paired(
            _timed(times, asking.of(ltm)),
            _timed(times, lambda number: plain.search(asking(number))),
            bench.rounds,
        )
        plain.close()
    bench.cost(f"recall, warm, {turns} turns", "FTS5, the best 10 by bm25", 4, rounds)


def _past(bench: Bench) -> None:
    """Compare recall of an earlier moment with recall now: each time another moment."""
    for turns in (FEW_TURNS, LARGE - 200):
        made = Texts(5)
        texts = [made.words(WORDS) for _ in range(turns)]
        with holdfast.open(bench.folder / f"past_{turns}.db") as hf:
            ltm = _memory(hf, "ana")
            _record(ltm, texts)
            asking, times = Asking(texts), bench.size(200, 40)

            def then(number: int, ltm: LongTermMemory = ltm, asking: Asking = asking) -> object:
                return ltm.recall(asking(number), k=10, touch=False, at=datetime.now(UTC))

            now = _timed(times, asking.of(ltm))
            rounds = paired(_timed(times, then), now, bench.rounds)
        bench.cost(f"recall(at=), {turns:,} turns", "recall now", 2, rounds)


def _hybrid(bench: Bench) -> None:
    times = bench.size(200, 40)
    with holdfast.open(bench.folder / "hybrid.db") as hf:
        grown = Texts(3)
        texts = [grown.words(WORDS) for _ in range(ITEMS)]
        lexical, hybrid = _memory(hf, "ana"), _memory(hf, "ana", ToyEmbedder())
        hybrid.record(_said(texts), thread_id="t1")
        if not hybrid.flush(timeout=300).done or hybrid.status().mode != "hybrid":
            raise SystemExit(f"the vectors are not there: {hybrid.status()}")
        asking = Asking(texts)
        rounds = paired(
            _timed(times, asking.of(hybrid)), _timed(times, asking.of(lexical)), bench.rounds
        )
    what = f"recall, hybrid, {ITEMS} x {VECTOR}"
    bench.cost(what, "lexical, the same collection", 2, rounds)


def _related(bench: Bench) -> None:
    """Compare recall with related words and without, where every word has some."""
    lines = gzip.decompress(TABLE.read_bytes()).decode().splitlines()[1:]
    stems = [line.partition(" ")[0] for line in lines]
    Random(1).shuffle(stems)
    for turns, goal in ((FEW_TURNS, 1.25), (bench.size(20_000, LARGE + 200), 1.5)):
        made = Texts(5, stems)
        texts = [made.words(WORDS) for _ in range(turns)]
        with holdfast.open(bench.folder / f"related_{turns}.db") as hf:
            ours, theirs = _memory(hf, "ana"), _memory(hf, "ana", related=False)
            _record(ours, texts)
            asking, times = Asking(texts), bench.size(200, 40)
            rounds = paired(
                _timed(times, asking.of(ours)), _timed(times, asking.of(theirs)), bench.rounds
            )
        bench.cost(f"recall with related words, {turns:,} turns", "without them", goal, rounds)


def _ready(bench: Bench) -> None:
    """Compare recall by meaning, and recording for it, where vectors cost nothing to make."""
    for turns in (FEW_TURNS, bench.size(10_000, LARGE + 200)):
        made = Texts(5)
        texts = [made.words(WORDS) for _ in range(turns)]
        asking = Asking(texts)
        ready = ReadyEmbedder((*texts, *map(asking, range(asking.number))), MODEL_VECTOR)
        with holdfast.open(bench.folder / f"ready_{turns}.db") as hf:
            hybrid, lexical = _memory(hf, "ana", ready), _memory(hf, "ana", related=False)
            _record(hybrid, texts)
            if not hybrid.flush(timeout=300).done:
                raise SystemExit(f"the vectors are not there: {hybrid.status()}")
            times = bench.size(200, 40)
            rounds = paired(
                _timed(times, asking.of(hybrid)), _timed(times, asking.of(lexical)), bench.rounds
            )
        what = f"recall, hybrid, {turns:,} turns x {MODEL_VECTOR}, the query's vector at hand"
        bench.cost(what, "lexical, the same collection", 2, rounds)
    turns, numbers = _said(texts[:AT_ONCE]), count()
    with holdfast.open(bench.folder / "ready_record.db") as hf:

        def recorded(embedder: object) -> Callable[[], Timing]:
            def record(_: int) -> LongTermMemory:
                memory = _memory(hf, f"new_{next(numbers)}", embedder)
                memory.record(turns, thread_id="t1")
                return memory

            return lambda: one_by_one(1, record, lambda memory: memory.flush(timeout=300))

        rounds = paired(recorded(ready), recorded(False), bench.rounds)
    what = f"record of {len(turns):,} turns with an embedder that answers at once"
    bench.cost(what, "without one", 1.2, rounds)


def _writes(bench: Bench) -> None:
    times, numbers = bench.size(600, 128), count()
    raw = Raw(bench.folder / "raw.db", Texts().of_bytes(TEXT_BYTES))
    texts = Texts(11)
    pool = [texts.words(WORDS) for _ in range(times * 3 * (bench.rounds + 2) * 2)]
    with holdfast.open(bench.folder / "writes.db") as hf:
        users = [_memory(hf, f"user_{number}") for number in range(64)]

        def remember(number: int) -> None:
            users[number % 64].remember(pool[next(numbers) % len(pool)])

        alone = partial(one_by_one, times, remember)
        put = partial(one_by_one, times, raw.put)
        rounds = paired(alone, put, bench.rounds)
        what = "remember, one caller"
        bench.cost(what, "a raw row, committed at synchronous=FULL", 4, rounds)
        if not bench.quick and 1 / bench.report.rows[-1].reached > UNSYNCED:
            raise SystemExit("remember is faster than a synced write can be")
        crowd = partial(together, 64, times * 2 // 64 * 64, remember)
        bench.rate("remember, 64 callers", "raw put", 0.6, paired(crowd, put, bench.rounds))


def _sizes(bench: Bench) -> tuple[int, ...]:
    if bench.quick:
        return FEW_COLLECTIONS
    return (*COLLECTIONS, *MORE_COLLECTIONS) if bench.full else COLLECTIONS


def _growth(bench: Bench) -> None:
    """Compare a file of ten collections with one that grows, both measured in turn.

    At each size the ten are new, and others of the grown file are asked: none has been written
    to more than those it is held against.
    """
    sizes, items = _sizes(bench), bench.size(ITEMS, 100)
    grown = Grown(bench.folder / "grown.db", items)
    small = Grown(bench.folder / "ten.db", items)
    acts: dict[str, tuple[int, Callable[[Grown, int], None]]] = {
        "recall": (bench.size(400, 60), Grown.recall),
        "remember": (bench.size(200, 30), Grown.remember),
    }
    for size in sizes:
        small.hf.close()
        small = Grown(bench.folder / f"ten_beside_{size}.db", items)
        small.grow(FEW)
        grown.grow(size)
        _point(bench, "bytes an item", size, grown.bytes_an_item())
        for name, (times, act) in acts.items():
            rounds = paired(
                _timed(times, partial(act, grown)),
                _timed(times, partial(act, small)),
                bench.rounds,
            )
            _compared(bench, f"{name} against {USERS_GROW}, p50, µs", size, rounds)
            if size == sizes[-1]:
                what = f"{name}, warm, {size:,} collections x {items} items"
                bench.cost(what, f"{FEW} such collections", 1.25, rounds)
    _first_touch(bench, grown)
    _recording(bench, grown, small)
    for each in (small, grown):
        each.hf.close()
    _memory_taken(bench, grown)


def _point(bench: Bench, what: str, size: int, figure: float) -> None:
    bench.report.curves.setdefault(f"{what} against {USERS_GROW}", {})[str(size)] = figure


def _compared(bench: Bench, what: str, size: int, rounds: list[Round]) -> None:
    """Add to the curve of *what* how it is at *size*, in units of the first size."""
    points = bench.report.curves.setdefault(what, {})
    ratio = median(ours.each / theirs.each for ours, theirs in rounds)
    first = next(iter(points.values()), median(theirs.each for _, theirs in rounds) / 1_000)
    points[str(size)] = first * ratio if points else first


def _first_touch(bench: Bench, grown: Grown) -> None:
    times = bench.size(30, 5)
    kept = grown.hf.longterm_shared.kept

    def first() -> Timing:
        return _middle(one_by_one(times, grown.recall, lambda _: kept.clear()))

    def warm() -> Timing:
        grown.recall(0)
        return _middle(one_by_one(times, lambda number: grown.recall(number * FEW)))

    kept.clear()
    rounds = paired(first, warm, bench.rounds)
    bench.cost(f"recall, first touch of a collection of {grown.items}", "warm", 20, rounds)


def _recording(bench: Bench, grown: Grown, small: Grown) -> None:
    """Record many turns in one call, each time of a user who has none."""
    texts = Texts(13)
    turns, numbers = _said([texts.words(WORDS) for _ in range(AT_ONCE)]), count()

    def into(file: Grown) -> Callable[[], Timing]:
        return lambda: one_by_one(
            1, lambda _: _memory(file.hf, f"new_{next(numbers)}").record(turns, thread_id="t1")
        )

    rounds = paired(into(grown), into(small), bench.rounds)
    what = f"record of {AT_ONCE:,} turns in one call"
    found = [ours.each / AT_ONCE / 1e6 for ours, _ in rounds]
    bench.amount(what, "at synchronous=FULL", 0.3, "ms a turn", found)
    of = f"{small.collections} collections"
    bench.cost(f"{what}, {grown.collections:,} collections", of, 1.25, rounds)


def _memory_taken(bench: Bench, grown: Grown) -> None:
    code = _TOUCH.format(path=str(grown.path), collections=grown.collections, query=grown.asking(0))
    found = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    what = f"process memory, {grown.collections:,} collections touched"
    bench.amount(what, "before", CACHE_BYTES / MIB * 1.2, "MiB", [float(found.stdout)])


def _large(bench: Bench) -> None:
    turns, times = bench.size(100_000, 6_000), QUESTIONS
    made = Texts(5)
    texts = [made.words(WORDS) for _ in range(turns)]
    path = bench.folder / "large.db"
    with holdfast.open(path) as hf:
        ltm, plain = _memory(hf, "ana"), Plain(bench.folder / "plain_large.db", texts)
        empty = _size(hf, path)
        _record(ltm, texts)
        kilobytes = (_size(hf, path) - empty) / turns / 1_000
        asking = Asking(texts)
        theirs = _timed(times, lambda number: plain.search(asking(number)))
        rounds = paired(_timed(times, asking.of(ltm)), theirs, bench.rounds)
        # Looking closely at so many of the best costs the same in a tenth of the rows.
        goal = bench.size(2, 20)
        what = f"recall, one collection of {turns:,} turns"
        bench.cost(f"{what}, warm", "FTS5, the same", goal, rounds)
        kept, warm = hf.longterm_shared.kept, _timed(times, asking.of(ltm))

        def cold() -> Timing:
            return _middle(one_by_one(times, asking.of(ltm), lambda _: kept.clear()))

        bench.cost(f"{what}, nothing kept of it", "warm", 20, paired(cold, warm, bench.rounds))
        plain.close()
    bench.amount(f"file, {WORDS} words, no vectors", "each turn", 1.2, "kB", [kilobytes])


def _size(hf: Any, path: Path) -> int:
    """Return the size of the file, its log emptied."""
    hf.engine.scrub()
    return path.stat().st_size


if __name__ == "__main__":
    main("longterm", __doc__ or "", run)
