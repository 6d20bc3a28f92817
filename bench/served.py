"""A server process of a benchmark: its cost, its memory, and requests over many connections."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from urllib.parse import urlsplit

from measure import Timing

CONNECTIONS = 16
HOLDFAST = (sys.executable, "-m", "holdfast.doors.cli.main")

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
        await asyncio.gather(*(self.ask(share, ask) for _ in range(CONNECTIONS)))

    async def ask(self, number: int, ask: Ask) -> None:
        """Send *number* requests over one connection, each after the response before it."""
        reader, writer = await asyncio.open_connection(self.address.hostname, self.address.port)
        for _ in range(number):
            writer.write(ask())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith((b"http/1.1 200", b"http/1.1 201")):
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


def timed(servers: Sequence[Served], number: int, ask: Ask) -> Timing:
    """Return what each of *number* requests took over 16 connections, spread over *servers*."""

    async def ask_all() -> None:
        share = number // CONNECTIONS
        spread = (servers[each % len(servers)] for each in range(CONNECTIONS))
        await asyncio.gather(*(served.ask(share, ask) for served in spread))

    begun = perf_counter_ns()
    asyncio.run(ask_all())
    return Timing(each=(perf_counter_ns() - begun) / number)


@contextmanager
def serving(*command: str) -> Generator[Served]:
    """Run *command*, which says its address on its error stream, until the block ends."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield Served(process, said_url(process))
    finally:
        process.terminate()
        process.communicate()


def said_url(server: "subprocess.Popen[str]") -> str:
    """Return the address that *server* says it listens on."""
    while server.stderr is not None and (line := server.stderr.readline()):
        if found := re.search(r"http://[\d.]+:\d+", line):
            return found[0]
    raise RuntimeError("the server did not start")
