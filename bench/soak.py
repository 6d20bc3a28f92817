"""Does a server stay as it is under a steady load over fixed data?

Memories, entries and items are read, sought and overwritten, and none is added. Every few seconds
the server's resident memory, descriptors, threads and the length of the database's log are taken.
What a process needs until its caches and pools are full does not count: the last quarter of the
time is held against the one before.
"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))
sys.path.append(f"{sys.path[-1]}/../tests")

import argparse
import asyncio
import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple
from urllib.parse import quote

from machine import here, load
from served import HOLDFAST, Served, serving
from texts import Texts
from torture.counts import counted

import holdfast

CONNECTIONS = 8
EVERY = 5.0
"""Seconds between two samples."""
RATE = 150
"""Requests a second, so that a machine of two cores is not full."""
MEMORIES, AGENTS, ENTRIES, USERS, ITEMS = 200, 20, 20, 10, 60
GROWTH = {"memory of its own": 1.03, "descriptors": 1.1, "threads": 1.1}
"""How many times the median of the third quarter the one of the last may be."""
LOG = 64 * 1024 * 1024
"""Bytes the log may have (performance.md 7)."""


class Sample(NamedTuple):
    """What a server takes at one moment; memory and the log in bytes."""

    at: float
    resident: int
    own: int
    descriptors: int
    threads: int
    log: int


class Subject:
    """A server over a file with fixed data, and the requests that it gets."""

    def __init__(self, path: Path) -> None:
        self.path, self._random, self._texts = path, Random(7), Texts(7)
        self._numbers = count()
        with holdfast.open(path) as hf:
            self.store = hf.memory_stores.create(name="Soak").id
            self.memories = [
                hf.memory_stores.memories.create(
                    self.store, path=f"/notes/{number:04}.md", content=self._text(800)
                ).id
                for number in range(MEMORIES)
            ]
            for agent in range(AGENTS):
                durable = hf.durable(f"agent_{agent}")
                for number in range(ENTRIES):
                    durable.set(f"entry_{number}", self._text(300), category="core")
            for user in range(USERS):
                ltm = hf.longterm(f"user_{user}", enabled=True)
                assert ltm is not None
                for _ in range(ITEMS):
                    ltm.remember(self._text(120))

    def _text(self, size: int) -> str:
        return self._texts.of_bytes(size)

    def requests(self) -> Iterator[tuple[str, str, dict[str, object] | None]]:
        """Yield method, path and body of one request after another, without an end."""
        kinds: list[Callable[[], tuple[str, str, dict[str, object] | None]]] = [
            *(self._get, self._page, self._search, self._update),
            *(self._entry, self._set, self._hydrate, self._recall),
        ]
        while True:
            yield kinds[next(self._numbers) % len(kinds)]()

    def _memory(self) -> str:
        return f"/v1/memory_stores/{self.store}/memories/{self._random.choice(self.memories)}"

    def _get(self) -> tuple[str, str, None]:
        return "GET", self._memory(), None

    def _page(self) -> tuple[str, str, None]:
        return "GET", f"/v1/memory_stores/{self.store}/memories?limit=20", None

    def _search(self) -> tuple[str, str, None]:
        word = self._text(40).split()[0]
        return "GET", f"/api/memory_stores/{self.store}/search?q={quote(word)}", None

    def _update(self) -> tuple[str, str, dict[str, object]]:
        return "POST", self._memory(), {"content": self._text(800)}

    def _agent(self) -> str:
        return f"/api/durable/agent_{self._random.randrange(AGENTS)}"

    def _entry(self) -> tuple[str, str, None]:
        return "GET", f"{self._agent()}/entries/entry_{self._random.randrange(ENTRIES)}", None

    def _set(self) -> tuple[str, str, dict[str, object]]:
        path = f"{self._agent()}/entries/entry_{self._random.randrange(ENTRIES)}"
        return "PUT", path, {"content": self._text(300), "category": "core"}

    def _hydrate(self) -> tuple[str, str, None]:
        return "GET", f"{self._agent()}/hydration", None

    def _recall(self) -> tuple[str, str, dict[str, object]]:
        path = f"/api/longterm/user_{self._random.randrange(USERS)}/recall?enabled=true"
        return "POST", path, {"query": self._text(60)}

    def sample(self, served: Served, at: float) -> Sample:
        """Return what the server takes now."""
        process = Path(f"/proc/{served.process.pid}")
        status = dict(
            re.findall(r"^(\w+):\s+(\d+)", (process / "status").read_text(), re.MULTILINE)
        )
        log = self.path.with_name(f"{self.path.name}-wal")
        return Sample(
            at,
            int(status["VmRSS"]) * 1024,
            int(status["RssAnon"]) * 1024,
            len(list((process / "fd").iterdir())),
            int(status["Threads"]),
            log.stat().st_size if log.exists() else 0,
        )


async def soak(subject: Subject, served: Served, seconds: float) -> list[Sample]:
    """Send requests for as long, and return what was sampled meanwhile."""
    begun, requests, samples = monotonic(), subject.requests(), list[Sample]()

    async def send() -> int:
        reader, writer = await asyncio.open_connection(served.address.hostname, served.address.port)
        sent = 0
        while (at := monotonic() - begun) < seconds:
            method, path, body = next(requests)
            content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
            writer.write(served.request(method, path, content))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"http/1.1 2"):
                raise RuntimeError(f"{method} {path}: {head.decode(errors='replace')}")
            await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
            sent += 1
            due = sent * CONNECTIONS / RATE
            await asyncio.sleep(max(0.0, due - at))
        writer.close()
        return sent

    async def look() -> None:
        while (at := monotonic() - begun) < seconds:
            samples.append(subject.sample(served, at))
            await asyncio.sleep(EVERY)

    counts = await asyncio.gather(*(send() for _ in range(CONNECTIONS)), look())
    requested = sum(each or 0 for each in counts)
    print(f"{requested:,} requests in {seconds:,.0f} s")
    counted("requests in the soak", requested, minutes=round(seconds / 60))
    return samples


def judge(samples: list[Sample]) -> bool:
    """Print the quarters, and return whether the last is like the third."""
    quarter = len(samples) // 4
    quarters = [samples[quarter * number : quarter * (number + 1)] for number in range(4)]
    columns: dict[str, Callable[[Sample], float]] = {
        "resident memory": lambda each: each.resident / 2**20,
        "memory of its own": lambda each: each.own / 2**20,
        "descriptors": lambda each: each.descriptors,
        "threads": lambda each: each.threads,
        "log": lambda each: each.log / 2**20,
    }
    flat = True
    for name, of in columns.items():
        medians = [median(map(of, each)) for each in quarters]
        ratio = medians[3] / medians[2] if medians[2] else 1.0
        kept = ratio <= GROWTH.get(name, float("inf"))
        if name == "log":
            kept = max(each.log for each in samples) <= LOG
        flat = flat and kept
        row = "  ".join(f"{each:8.1f}" for each in medians)
        print(f"{'ok' if kept else 'GROWS':6}{name:20}{row}   {ratio:.3f}")
    return flat


def main() -> int:
    """Return 0 if the server stayed as it was, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    given = parser.parse_args()
    machine, before = here(), load()
    with TemporaryDirectory() as folder:
        subject = Subject(Path(folder) / "soak.db")
        line = (*HOLDFAST, "serve", "--db", str(subject.path), "--port", "0", "--no-access-log")
        with serving(*line) as served:
            samples = asyncio.run(soak(subject, served, given.minutes * 60))
    busy = f"load a core {before.a_core} before, {load().a_core} after"
    print(f"{machine.cpu}, {machine.cores} cores; {busy}")
    print("      medians of quarters; memory and log in MiB; the last over the third")
    return 0 if judge(samples) else 1


if __name__ == "__main__":
    sys.exit(main())
