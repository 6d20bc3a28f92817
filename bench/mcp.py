"""What does a host wait for, beside the least that the protocol costs?"""

import sys

# What lies beside comes last: the `mcp.py` here must not stand before the SDK.
sys.path.append(sys.path.pop(0))

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any

from measure import Bench, Round, Side, Timing, main, paired
from served import CONNECTIONS, HOLDFAST, Served, serving
from texts import Texts

import holdfast

ITEMS = 500
TEXT_BYTES = 170
MIB = 1 << 20
REST = 0.1
"""Seconds before a write, in which a server ends what the notices before it left to do."""
QUESTIONS = 40
ASKED = 5
"""Words of a question."""
RESULTS = 5
"""As many as the tool gives unless it is asked for more."""
REVISION, MODERN = "2025-11-25", "2026-07-28"
USER = "ada"
CLIENT = {"name": "bench", "version": "1"}
INITIALIZE = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
BARE = (sys.executable, str(Path(__file__).with_name("bare_mcp.py")))


def message(method: str, params: object = None, *, id: int | None = 1) -> bytes:
    """Return a request, or a notification without an *id*, as JSON."""
    whole: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    whole |= {} if id is None else {"id": id}
    return json.dumps(whole | ({} if params is None else {"params": params})).encode()


def questions(texts: list[str]) -> list[str]:
    """Return questions made of words of *texts*."""
    made = Texts(9)
    return [made.asked(text, ASKED) for text in texts[:: len(texts) // QUESTIONS]]


def filled(path: Path) -> list[str]:
    """Fill a new database at *path*, and return questions about it."""
    made = Texts()
    texts = [made.of_bytes(TEXT_BYTES) for _ in range(ITEMS)]
    with holdfast.open(path) as hf:
        ltm = hf.longterm(USER, enabled=True)
        assert ltm is not None
        for text in texts:
            ltm.remember(text)
    return questions(texts)


class Host:
    """A server process on pipes."""

    def __init__(self, command: Iterable[str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*command], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        self.request("initialize", INITIALIZE)
        self._write(message("notifications/initialized", id=None))

    def request(self, method: str, params: object = None) -> bytes:
        """Return the response to a request."""
        self._write(message(method, params))
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if b'"result"' not in line or b'"isError":true' in line:
            raise RuntimeError(line.decode())
        return line

    def call(self, tool: str, **arguments: object) -> bytes:
        """Return the result of a tool."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def end(self) -> None:
        """Close standard input, and wait for the process to end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()


@contextmanager
def host(*command: str) -> Generator[Host]:
    """Serve a host by *command* until the block ends."""
    served = Host(command)
    try:
        yield served
    finally:
        served.end()


class Connection:
    """A connection to a server over HTTP, which stays open."""

    def __init__(
        self, served: Served, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._served, self._reader, self._writer = served, reader, writer

    async def post(self, path: str, body: bytes, **headers: str) -> tuple[bytes, bytes]:
        """Return head and body of the response; names of *headers* have underscores."""
        await self._send("POST", path, body, headers)
        head = await self._head()
        parts = list[bytes]()
        if b"content-length: " in head:
            length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            parts.append(await self._reader.readexactly(length))
        elif b"chunked" in head:
            while part := await self._chunk():
                parts.append(part)
        return head, b"".join(parts)

    async def follow(self, path: str, **headers: str) -> AsyncGenerator[bytes]:
        """Open a stream with GET, yield once it is open, and then each part of it."""
        await self._send("GET", path, b"", headers)
        yield await self._head()
        while part := await self._chunk():
            yield part

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        first, _, rest = self._served.request(method, path, body).partition(b"\r\n")
        more = {"accept": "application/json, text/event-stream", **headers}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        self._writer.write(b"\r\n".join([first, *(each.encode() for each in lines), rest]))
        await self._writer.drain()

    async def _head(self) -> bytes:
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith((b"http/1.1 200", b"http/1.1 202")):
            raise RuntimeError(head.decode(errors="replace"))
        return head

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]


@asynccontextmanager
async def connected(served: Served) -> AsyncGenerator[Connection]:
    """Connect to *served* until the block ends."""
    opened = await asyncio.open_connection(served.address.hostname, served.address.port)
    connection = Connection(served, *opened)
    try:
        yield connection
    finally:
        connection.close()


async def session(connection: Connection, path: str) -> str:
    """Open a session of the handshake era, and return its id."""
    head, _ = await connection.post(path, message("initialize", INITIALIZE))
    id = head.split(b"mcp-session-id: ")[1].split(b"\r\n")[0].decode()
    await connection.post(path, message("notifications/initialized", id=None), mcp_session_id=id)
    return id


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    os.environ["HOLDFAST_LTM_ENABLED"] = "1"
    os.environ["PYTHONWARNINGS"] = "ignore"
    path = bench.folder / "hosts.db"
    asked = filled(path)
    _start(bench, path)
    _stdio(bench, path, asked)
    _http(bench, path, asked)
    _changes(bench)
    _sessions(bench)


def _served_to_host(path: Path) -> tuple[str, ...]:
    return (*HOLDFAST, "mcp", "--user", USER, "--db", str(path))


def _start(bench: Bench, path: Path) -> None:
    bench.cost(
        "holdfast mcp, start to the answer of the first tools/list",
        "a bare server of the SDK with one tool",
        2.5,
        paired(_until_listed(_served_to_host(path)), _until_listed(BARE), bench.rounds),
    )


def _until_listed(command: tuple[str, ...]) -> Side:
    def side() -> Timing:
        begun = perf_counter_ns()
        with host(*command) as served:
            served.request("tools/list")
            took = perf_counter_ns() - begun
        return Timing(each=took)

    return side


def _stdio(bench: Bench, path: Path, asked: list[str]) -> None:
    number, alone = bench.size(400, 40), bench.folder / "alone.db"
    filled(alone)
    with (
        host(*_served_to_host(path)) as ours,
        host(*BARE) as bare,
        holdfast.open(alone) as hf,
    ):
        ltm = hf.longterm(USER, enabled=True)
        assert ltm is not None

        sides: list[Callable[[str], object]] = [
            lambda question: ours.call("ltm_recall", query=question),
            lambda question: ltm.recall(question, RESULTS),
            lambda question: bare.call("echo", text=question),
        ]
        rounds = [_in_turn(sides, asked, number) for _ in range(bench.rounds + 1)]
    bench.cost(
        "ltm_recall over stdio",
        "the library's recall and 1.5 calls of the bare server's tool",
        1.0,
        [(mine, Timing(each=call.each + 1.5 * echo.each)) for mine, call, echo in rounds[1:]],
    )


def _in_turn(sides: list[Callable[[str], object]], asked: list[str], number: int) -> list[Timing]:
    """Return the median of *number* calls of each side; each question is put to all in turn."""
    took: list[list[int]] = [[] for _ in sides]
    for call in range(number):
        for side, taken in zip(sides, took, strict=True):
            begun = perf_counter_ns()
            side(asked[call % len(asked)])
            taken.append(perf_counter_ns() - begun)
    return [_median(each) for each in took]


@contextmanager
def _serve(path: Path) -> Generator[Served]:
    with serving(*HOLDFAST, "serve", "--db", str(path), "--port", "0", "--no-access-log") as served:
        yield served


Ask = Callable[[int], Awaitable[object]]


class Questions:
    """The same questions to one server, by its route and through the protocol."""

    def __init__(self, served: Served, number: int, asked: list[str]) -> None:
        self._served, self._number, self._asked = served, number, asked
        self._path = f"/mcp?user={USER}"

    async def by_route(self, connection: Connection) -> Ask:
        """Return what asks as a program does that knows the server."""
        path = f"/api/longterm/{USER}/recall"

        async def ask(number: int) -> None:
            body = {"query": self._question(number), "k": RESULTS}
            await connection.post(path, json.dumps(body).encode())

        return ask

    async def in_session(self, connection: Connection) -> Ask:
        """Return what asks as a host does that opened a session."""
        id = await session(connection, self._path)

        async def ask(number: int) -> None:
            await self._call(connection, self._params(number), mcp_session_id=id)

        return ask

    async def alone(self, connection: Connection) -> Ask:
        """Return what asks as a host does whose requests need no session."""
        headers = {
            "mcp_protocol_version": MODERN,
            "mcp_method": "tools/call",
            "mcp_name": "ltm_recall",
        }

        async def ask(number: int) -> None:
            await self._call(connection, {**self._params(number), "_meta": META}, **headers)

        return ask

    def side(self, asking: Callable[[Connection], Awaitable[Ask]]) -> Side:
        """Return what measures the time for each question of all clients at once."""
        return lambda: asyncio.run(self._ask_all(asking))

    async def _ask_all(self, asking: Callable[[Connection], Awaitable[Ask]]) -> Timing:
        async with AsyncExitStack() as stack:
            asks = [
                await asking(await stack.enter_async_context(connected(self._served)))
                for _ in range(CONNECTIONS)
            ]

            async def work(first: int, ask: Ask) -> None:
                for number in range(first, self._number, CONNECTIONS):
                    await ask(number)

            begun = perf_counter_ns()
            await asyncio.gather(*(work(first, ask) for first, ask in enumerate(asks)))
            return Timing(each=(perf_counter_ns() - begun) / self._number)

    def _question(self, number: int) -> str:
        return self._asked[number % len(self._asked)]

    def _params(self, number: int) -> dict[str, object]:
        return {"name": "ltm_recall", "arguments": {"query": self._question(number)}}

    async def _call(
        self, connection: Connection, params: dict[str, object], **headers: str
    ) -> None:
        _, body = await connection.post(self._path, message("tools/call", params), **headers)
        if b'"result"' not in body or b'"isError":true' in body:
            raise RuntimeError(body.decode())


def _http(bench: Bench, path: Path, asked: list[str]) -> None:
    with _serve(path) as served:
        both = Questions(served, bench.size(1_600, 160), asked)
        for what, asking in (("in sessions", both.in_session), ("without sessions", both.alone)):
            bench.rate(
                f"ltm_recall over HTTP {what}, {CONNECTIONS} clients",
                "POST /api/longterm/{user}/recall",
                0.5,
                paired(both.side(asking), both.side(both.by_route), bench.rounds),
            )


class Note:
    """A note on a server, and the sessions that are subscribed to it."""

    def __init__(self, served: Served, path: Path) -> None:
        with holdfast.open(path) as hf:
            store = hf.memory_stores.create(name="Notes").id
            memory = hf.memory_stores.memories.create(store, path="/a.md", content="0")
        self._served = served
        self._path = f"/v1/memory_stores/{store}/memories/{memory.id}"
        self._uri = f"holdfast://stores/{store}/a.md"
        self._hosts = "/mcp?store=Notes"
        self._written, self._subscribers = 0, 0
        self._received: asyncio.Queue[None] = asyncio.Queue()
        self.told = list[float]()
        """Seconds from each write to the last notice of it."""

    async def subscribe(self, number: int, stack: AsyncExitStack) -> None:
        """Subscribe *number* sessions, each with a stream of its own."""
        control = await stack.enter_async_context(connected(self._served))
        for _ in range(number):
            id = await session(control, self._hosts)
            body = message("resources/subscribe", {"uri": self._uri})
            await control.post(self._hosts, body, mcp_session_id=id)
            stream = (await stack.enter_async_context(connected(self._served))).follow(
                self._hosts, mcp_session_id=id
            )
            await anext(stream)
            reading = asyncio.ensure_future(self._read(stream))
            stack.callback(reading.cancel)
        self._subscribers = number

    async def write(self, connection: Connection) -> int:
        """Return the nanoseconds that one write took, once every subscriber has its notice."""
        self._written += 1
        body = json.dumps({"content": f"{self._written} {'x' * TEXT_BYTES}"}).encode()
        begun = perf_counter_ns()
        await connection.post(self._path, body)
        took, written = perf_counter_ns() - begun, perf_counter()
        for _ in range(self._subscribers):
            await self._received.get()
        self.told.append(perf_counter() - written)
        return took

    async def _read(self, stream: AsyncGenerator[bytes]) -> None:
        async for part in stream:
            if b"notifications/resources/updated" in part:
                self._received.put_nowait(None)


def _changes(bench: Bench) -> None:
    number = bench.size(500, 20)
    paths = bench.folder / "followed.db", bench.folder / "quiet.db"
    with _serve(paths[0]) as followed, _serve(paths[1]) as quiet:
        notes = Note(followed, paths[0]), Note(quiet, paths[1])
        rounds = asyncio.run(_written(bench, notes, (followed, quiet), number))
    bench.cost(f"a write with {number} subscribers", "one with none", 1.2, rounds)
    what = f"one write, until {number} subscribers have its notice"
    bench.amount(what, "wall time", 1.0, "s", notes[0].told[1:])


async def _written(
    bench: Bench, notes: tuple[Note, Note], servers: tuple[Served, Served], number: int
) -> list[Round]:
    async with AsyncExitStack() as stack:
        await notes[0].subscribe(number, stack)
        writers = [await stack.enter_async_context(connected(each)) for each in servers]
        found = list[Round]()
        for round in range(bench.rounds + 1):
            took: dict[int, list[int]] = {0: [], 1: []}
            for write in range(bench.size(8, 4)):
                for side in (0, 1) if (round + write) % 2 else (1, 0):
                    await asyncio.sleep(REST)
                    took[side].append(await notes[side].write(writers[side]))
            found.append((_median(took[0]), _median(took[1])))
    return found[1:]


def _median(took: list[int]) -> Timing:
    return Timing(each=median(took))


def _sessions(bench: Bench) -> None:
    number = bench.size(1_000, 50)
    with _serve(bench.folder / "idle.db") as served:
        grown = asyncio.run(_opened(served, number))
    bench.amount(f"{number:,} idle sessions, memory", "none", 40, "MiB", [grown])


async def _opened(served: Served, number: int) -> float:
    """Return by how many MiB *number* sessions make a server grow that has served one before."""
    async with connected(served) as connection:
        await session(connection, "/mcp?user=warm")
        before = served.resident()
        for _ in range(number - 1):
            await session(connection, f"/mcp?user={USER}")
        return (served.resident() - before) * 1e6 / MIB


if __name__ == "__main__":
    main("mcp", __doc__ or "", run)
