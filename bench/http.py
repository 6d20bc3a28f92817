"""What does a request cost the server, beside the least that any server must do for it?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from measure import Bench, Timing, main, paired
from startup import HOLDFAST, said_url
from texts import Texts

import holdfast

CONNECTIONS = 16
CONTENT_BYTES = 800
"""With the other fields the answer has 1.2 KB then."""

Ask = Callable[[], bytes]


class Served:
    """A server process, and what its requests cost it."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process, self.address = process, urlsplit(url)

    def cpu(self) -> int:
        """Return the nanoseconds that its threads have run so far."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())

    def resident(self) -> float:
        """Return its resident memory in MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def request(self, method: str, path: str, body: bytes = b"", key: str | None = None) -> bytes:
        """Return a request as it goes over the wire."""
        lines = [f"{method} {path} HTTP/1.1", f"host: {self.address.netloc}"]
        if key is not None:
            lines.append(f"x-api-key: {key}")
        if body:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def asked(self, number: int, ask: Ask) -> Timing:
        """Return the processor time that each of *number* requests took, over 16 connections."""
        before = self.cpu()
        asyncio.run(self._ask_all(number, ask))
        return Timing(each=(self.cpu() - before) / number)

    async def _ask_all(self, number: int, ask: Ask) -> None:
        share = number // CONNECTIONS
        await asyncio.gather(*(self._ask(share, ask) for _ in range(CONNECTIONS)))

    async def _ask(self, number: int, ask: Ask) -> None:
        reader, writer = await asyncio.open_connection(self.address.hostname, self.address.port)
        for _ in range(number):
            writer.write(ask())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"http/1.1 200"):
                raise RuntimeError(head.decode(errors="replace"))
            await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.close()

    def held_open(self, connections: int) -> float:
        """Return by how many MB *connections* idle ones make it grow."""

        async def hold() -> float:
            before = self.resident()
            opened = [
                await asyncio.open_connection(self.address.hostname, self.address.port)
                for _ in range(connections)
            ]
            for reader, writer in opened:
                writer.write(self.request("GET", "/healthz"))
                await reader.readuntil(b"\r\n\r\n")
            grown = self.resident() - before
            for _, writer in opened:
                writer.close()
            return grown

        return asyncio.run(hold())


@contextmanager
def serving(*command: str) -> Generator[Served]:
    """Run *command*, which says its address on its error stream, until the block ends."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield Served(process, said_url(process))
    finally:
        process.terminate()
        process.communicate()


class Ours:
    """A server of ours with a store of memories, and the requests that are measured."""

    def __init__(self, served: Served, store: str, memory: str, key: str | None) -> None:
        self.served, self._key = served, key
        self._memories = f"/v1/memory_stores/{store}/memories"
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
        _keyed(bench, free, keyed)
        _memory(bench, keyed, idle)


def _against_bare(bench: Bench, bare: Served, free: Ours) -> None:
    get = bare.request("GET", "/memory")
    body = json.dumps({"path": "/a.md", "content": "x" * CONTENT_BYTES}).encode()
    post = bare.request("POST", "/memories", body)
    for what, of, goal, ask, plain in (
        ("GET memory, 1.2 KB", "bare GET", 2.0, free.get, get),
        ("POST create, durable when answered", "bare POST", 4.0, free.create, post),
        ("GET list of 20", "bare GET", 5.0, free.page, get),
        ("GET /healthz", "bare GET", 1.2, free.health, get),
    ):
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
