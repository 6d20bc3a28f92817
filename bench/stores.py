"""Do memory stores stay fast as they fill up?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from measure import Bench, main, one_by_one, paired, together
from texts import Texts

import holdfast
from holdfast import Holdfast

_WALK = """
import holdfast
def resident():
    return int(next(line for line in open("/proc/self/status") if "VmRSS" in line).split()[1])
hf = holdfast.open({path!r})
hf.memory_stores.list()
before = resident()
most, size = before, 0
page = hf.memory_stores.memories.list({store!r}, view="full")
while True:
    size += sum(memory.content_size_bytes for memory in page)
    most = max(most, resident())
    if page.next_page is None:
        break
    page = hf.memory_stores.memories.list({store!r}, view="full", page=page.next_page)
print((most - before) / 1024)
hf.close()
"""


class Filled:
    """A store with many memories in ten directories."""

    def __init__(self, path: Path, memories: int, *, size: int) -> None:
        self.path, self.hf = path, holdfast.open(path)
        self.store = self.hf.memory_stores.create(name="Bench").id
        texts = Texts(5)
        pool = [texts.of_bytes(size) for _ in range(min(memories, 500))]
        together(16, memories // 16 * 16, lambda number: self._create(number, pool))

    def _create(self, number: int, pool: list[str]) -> None:
        self.memories.create(
            self.store,
            path=f"/dir{number % 10}/{number:05}.md",
            content=f"{number} {pool[number % len(pool)]}"[:102_400],
        )

    @property
    def memories(self) -> Any:
        return _memories(self.hf)


def _memories(hf: Holdfast) -> Any:
    return hf.memory_stores.memories


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    filled = Filled(bench.folder / "many.db", bench.size(10_000, 2_000), size=2_048)
    _pages(bench, filled)
    _search(bench, filled)
    filled.hf.close()
    _walk(bench)


def _pages(bench: Bench, filled: Filled) -> None:
    memories, store, count = filled.memories, filled.store, bench.size(300, 60)
    first = memories.list(store)
    page, last = first, None
    while page.next_page is not None:
        last = page.next_page
        page = memories.list(store, page=last)
    total = bench.size(10_000, 2_000)
    bench.cost(
        f"list, last page of {total:,}",
        "first page",
        1.5,
        paired(
            lambda: one_by_one(count, lambda _: memories.list(store, page=last)),
            lambda: one_by_one(count, lambda _: memories.list(store)),
            bench.rounds,
        ),
    )
    bench.cost(
        f"list with depth=1 at the root, {total:,} memories in 10 directories",
        "depth=0, a page of 20",
        2,
        paired(
            lambda: one_by_one(count, lambda _: memories.list(store, depth=1)),
            lambda: one_by_one(count, lambda _: memories.list(store)),
            bench.rounds,
        ),
    )


def _search(bench: Bench, filled: Filled) -> None:
    texts = [each.content for each in _every(filled)]
    words = _rare(texts)

    def scan(number: int) -> list[str]:
        return [text for text in texts if words[number % len(words)] in text]

    bench.rate(
        f"memories.search for a word that few hold in {len(texts):,} heads of 2 KiB",
        "Python's `in` over the same texts",
        20,
        paired(
            lambda: one_by_one(20, lambda i: filled.memories.search(filled.store, words[i])),
            lambda: one_by_one(20, scan),
            bench.rounds,
        ),
    )


def _rare(texts: list[str]) -> list[str]:
    """Return twenty words that few of *texts* hold, as a name or a number does."""
    held = Counter(word for text in texts for word in set(text.split()[:-1]))
    few = sorted(word for word, count in held.items() if 5 <= count <= 20 and len(word) > 6)
    return few[:: max(1, len(few) // 20)][:20]


def _every(filled: Filled) -> list[Any]:
    return list(filled.memories.list(filled.store, view="full").all())


def _walk(bench: Bench) -> None:
    filled = Filled(bench.folder / "large.db", bench.size(1_008, 208), size=102_390)
    filled.hf.close()
    code = _WALK.format(path=str(filled.path), store=filled.store)
    found = [
        float(
            subprocess.run(
                (sys.executable, "-c", code), capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(bench.rounds)
    ]
    what = f"walking {bench.size(1_008, 208):,} memories of 100 KiB by view=full, memory"
    bench.amount(what, "before", 64, "MiB", found)


if __name__ == "__main__":
    main("stores", __doc__ or "", run)
