"""What does a request cost the server, beside the least that any server must do for it?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from measure import Bench, Timing, main, paired
from served import HOLDFAST, Ask, Served, serving
from texts import Texts

import holdfast

CONTENT_BYTES = 800
"""With the other fields the answer has 1.2 KB then."""


class Ours:
    """A server of ours with a store of memories, and the requests that are measured."""

    def __init__(self, served: Served, store: str, memory: str, key: str | None) -> None:
        self.served, self._key = served, key
        self._memories = f"/v1/memory_stores/{store}/memories"
        self._entries = "/api/durable/bench/entries"
        self._made, self._text = count(), Texts().of_bytes(CONTENT_BYTES)
        self.get = self._same("GET", f"{self._memories}/{memory}")
        self.page = self._same("GET", f"{self._memories}?limit=20")
        self.health = self._same("GET", "/healthz")

    def _same(self, method: str, path: str) -> Ask:
        request = self.served.request(method, path, key=self._key)
        return lambda: request

    def create(self) -> bytes:
        """Return a request for a memory that is not there yet."""
        path = f"/made/{os.getpid()}-{next(self._made):07}.md"
        body = json.dumps({"path": path, "content": self._text}, ensure_ascii=False).encode()
        return self.served.request("POST", self._memories, body, self._key)

    def put(self) -> bytes:
        """Return a request for a durable entry with a content that it does not have."""
        number = next(self._made)
        content = f"{number} {self._text}"
        body = json.dumps({"content": content, "category": "notes"}, ensure_ascii=False).encode()
        return self.served.request("PUT", f"{self._entries}/{number % 100}", body, self._key)


@contextmanager
def ours(path: Path, *, keyed: bool) -> Generator[Ours]:
    """Serve a new database at *path*, for everybody or for who has a key."""
    with holdfast.open(path) as hf:
        hf.memory_stores.configure(memories_cap=1_000_000)
        store = hf.memory_stores.create(name="Bench").id
        texts = Texts()
        memories = [
            hf.memory_stores.memories.create(
                store, path=f"/notes/{number:07}.md", content=texts.of_bytes(CONTENT_BYTES)
            )
            for number in range(100)
        ]
        key = hf.keys.create("bench").secret if keyed else None
    line = (*HOLDFAST, "serve", "--db", str(path), "--port", "0", "--no-access-log")
    with serving(*line) as served:
        yield Ours(served, store, memories[50].id, key)


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    bare_app = str(Path(__file__).with_name("bare_app.py"))
    with (
        serving(sys.executable, bare_app, str(CONTENT_BYTES)) as bare,
        ours(bench.folder / "open.db", keyed=False) as free,
        ours(bench.folder / "keyed.db", keyed=True) as keyed,
    ):
        idle = keyed.served.resident()
        _against_bare(bench, bare, free)
        if not bench.writes:
            _keyed(bench, free, keyed)
            _memory(bench, keyed, idle)


def _against_bare(bench: Bench, bare: Served, free: Ours) -> None:
    get = bare.request("GET", "/memory")
    body = json.dumps({"path": "/a.md", "content": "x" * CONTENT_BYTES}).encode()
    post = bare.request("POST", "/memories", body)
    for what, of, goal, ask, plain in (
        ("GET memory, 1.2 KB", "bare GET", 2.0, free.get, get),
        ("POST create, durable when answered", "bare POST", 3.0, free.create, post),
        ("PUT durable entry, durable when answered", "bare POST", 3.5, free.put, post),
        ("GET list of 20", "bare GET", 5.0, free.page, get),
        ("GET /healthz", "bare GET", 1.2, free.health, get),
    ):
        if plain == post or not bench.writes:
            bench.cost(what, of, goal, _compared(bench, free.served, ask, bare, plain))


def _compared(
    bench: Bench, served: Served, ask: Ask, other: Served, plain: bytes | Ask
) -> list[tuple[Timing, Timing]]:
    number = bench.size(8_000, 800)
    same: Ask = (lambda: plain) if isinstance(plain, bytes) else plain
    return paired(
        lambda: served.asked(number, ask), lambda: other.asked(number, same), bench.rounds
    )


def _keyed(bench: Bench, free: Ours, keyed: Ours) -> None:
    for what, ask, plain in (
        ("GET memory, with a key", keyed.get, free.get),
        ("POST create, with a key", keyed.create, free.create),
        ("GET list of 20, with a key", keyed.page, free.page),
    ):
        rounds = _compared(bench, keyed.served, ask, free.served, plain)
        bench.cost(what, "without", 1.1, rounds)


def _memory(bench: Bench, keyed: Ours, idle: float) -> None:
    number = bench.size(100_000, 3_200)
    bench.amount("resident memory, idle", "no console", 90, "MB", [idle])
    before = keyed.served.resident()
    keyed.served.asked(number, keyed.get)
    grown = keyed.served.resident() - before
    bench.amount(f"growth over {number:,} requests", "before", 15, "MB", [grown])
    bench.amount("200 idle connections", "none", 10, "MB", [keyed.served.held_open(200)])


if __name__ == "__main__":
    main("http", __doc__ or "", run)
