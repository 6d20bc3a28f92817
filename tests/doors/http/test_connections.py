"""What is said on a connection, byte by byte, to a server process, or to one of short deadlines."""

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from served import Served, served
from uvicorn.server import ServerState

from holdfast.doors.http.app import App, make_app
from holdfast.doors.http.params import LIMITS, RequestLimits
from holdfast.doors.http.server import OneWriteProtocol
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]

END = b"connection: close\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path: Path = tmp_path_factory.mktemp("served") / "h.db"
    with served(path) as server:
        yield server


def asked(method: str, path: str, body: bytes = b"", headers: bytes = b"") -> bytes:
    """Return a request as it is sent."""
    told = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n".encode() + headers
    return told + (b"content-length: %d\r\n\r\n" % len(body) if body else b"\r\n") + body


def said(server: Served, *pieces: bytes) -> bytes:
    """Return all that *server* says to *pieces* until it closes the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as line:
        for each in pieces:
            line.sendall(each)
        return b"".join(iter(lambda: line.recv(65_536), b""))


def statuses(answer: bytes) -> list[int]:
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+)", answer)]


def test_a_connection_goes_on_after_errors_and_answers_in_order(server: Served) -> None:
    answer = said(
        server,
        asked("GET", "/nowhere")
        + asked("POST", "/v1/memory_stores", b"{bad")
        + asked("POST", "/v1/memory_stores", b" " * (2 * 1_048_576))
        + asked("PUT", "/v1/memory_stores", b"{}")
        + asked("HEAD", "/healthz")
        + asked("POST", "/v1/memory_stores", b'{"name":"n"}')
        + asked("GET", "/healthz", headers=END),
    )

    assert statuses(answer) == [404, 400, 413, 405, 405, 200, 200]
    assert len(set(re.findall(rb"request-id: (\S+)", answer))) == 7


@pytest.mark.parametrize(
    "raw",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: many\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_what_is_not_http_is_answered_as_any_mistake(server: Served, raw: bytes) -> None:
    head, _, body = said(server, raw).partition(b"\r\n\r\n")

    (request_id,) = re.findall(rb"request-id: (req_[0-9A-Za-z]{24})", head)
    assert statuses(head) == [400]
    assert body.endswith(b'"request_id":"' + request_id + b'"}')
    assert b'"type":"invalid_request_error"' in body


def test_an_offer_of_another_protocol_is_passed_over_and_the_body_is_read(server: Served) -> None:
    offer = b"connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nhttp2-settings: AAMA\r\n"

    answer = said(
        server,
        asked("POST", "/v1/memory_stores", b'{"name":"upgraded"}', offer)
        + asked("GET", "/healthz", headers=END),
    )

    assert statuses(answer) == [200, 200]
    assert b'"name":"upgraded"' in answer


def test_a_body_that_is_cut_off_is_not_written(server: Served) -> None:
    whole = asked("POST", "/v1/memory_stores", b'{"name":"half"}', END)
    host, port = server.url.removeprefix("http://").split(":")

    with socket.create_connection((host, int(port))) as line:
        line.sendall(whole[:-4])
    answer = said(server, asked("GET", "/v1/memory_stores?limit=100", headers=END))

    assert b'"half"' not in answer


def test_a_client_that_waits_is_told_to_go_on_or_that_it_is_too_much(server: Served) -> None:
    wait = b"expect: 100-continue\r\n" + END

    small = said(server, asked("POST", "/v1/memory_stores", b'{"name":"n"}', wait))
    large = said(
        server,
        b"POST /v1/memory_stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000000\r\n"
        + wait
        + b"\r\n",
    )

    assert statuses(small) == [100, 200]
    assert statuses(large) == [413]


def head_of(size: int, *, target: str = "/healthz", headers: bytes = END) -> bytes:
    """Return the head of a request that has exactly *size* bytes."""
    start = b"GET %b HTTP/1.1\r\nhost: localhost\r\n%bx-pad: " % (target.encode(), headers)
    return start + b"a" * (size - len(start) - 4) + b"\r\n\r\n"


def test_a_head_of_64_kib_is_answered_and_one_byte_more_is_431(server: Served) -> None:
    largest, larger = head_of(LIMITS.head_bytes), head_of(LIMITS.head_bytes + 1)

    assert (len(largest), statuses(said(server, largest))) == (65_536, [200])
    answer = said(server, larger)
    assert statuses(answer) == [431]
    assert b'"type":"request_too_large"' in answer
    assert re.search(rb"request-id: req_[0-9A-Za-z]{24}", answer)


def test_a_head_that_follows_another_request_has_the_same_limit(server: Served) -> None:
    first = asked("GET", "/healthz")

    assert statuses(said(server, first + head_of(LIMITS.head_bytes))) == [200, 200]
    assert statuses(said(server, first + head_of(LIMITS.head_bytes + 100))) == [200, 431]


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nx", b"GET / HTTP/1.1\r\nx: "])
def test_a_line_without_an_end_is_431_and_the_client_can_read_it(
    server: Served, start: bytes
) -> None:
    assert statuses(said(server, start, *[b"a" * 65_536] * 64)) == [431]


def test_a_head_of_100_lines_is_answered_and_one_line_more_is_431(server: Served) -> None:
    def status(lines: int) -> list[int]:
        more = b"".join(b"x-%d: y\r\n" % number for number in range(lines - 2))
        return statuses(said(server, asked("GET", "/healthz", headers=END + more)))

    assert status(100) == [200]
    assert status(101) == [431]


def test_trailers_over_the_limit_of_a_head_are_431(server: Served) -> None:
    head = b"POST /v1/memory_stores HTTP/1.1\r\nhost: localhost\r\n" + END
    chunked = head + b"transfer-encoding: chunked\r\n\r\nc\r\n" + b'{"name":"n"}' + b"\r\n0\r\n"

    small = said(server, chunked + b"x-sum: 1\r\n\r\n")
    large = said(server, chunked + b"x-sum: ", *[b"a" * 65_536] * 4)

    assert (statuses(small), statuses(large)) == ([200], [431])


def test_what_follows_a_refused_head_is_not_answered(server: Served) -> None:
    late = head_of(LIMITS.head_bytes + 1, headers=b"") + asked("GET", "/healthz", headers=END)

    assert statuses(said(server, late)) == [431]


@asynccontextmanager
async def listening(app: App) -> AsyncGenerator[Connect]:
    """Serve *app* on a free port, within this event loop, and give what connects to it."""
    config = uvicorn.Config(app, log_config=None, access_log=False)
    config.load()
    state = ServerState()

    def protocol() -> asyncio.Protocol:
        return OneWriteProtocol(config=config, server_state=state, app_state={})

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield lambda: asyncio.open_connection(host, port)
    finally:
        server.close()
        for each in list(state.connections):
            each.transport.abort()
        await asyncio.gather(*state.tasks)
        await server.wait_closed()


@pytest.fixture
def hasty(hf: Holdfast, clock: FrozenClock) -> Iterator[App]:
    """An app whose clients have a twentieth of a second for a head."""
    app = make_app(hf, clock=clock, limits=RequestLimits(head_seconds=0.05, body_seconds=0.05))
    yield app
    app.state.close()


def heard(app: App, runner: asyncio.Runner, *pieces: bytes) -> bytes:
    """Return all that *app* sends to *pieces* until it closes the connection."""

    async def talk() -> bytes:
        async with listening(app) as connect:
            reader, writer = await connect()
            for each in pieces:
                writer.write(each)
                await writer.drain()
            answer = await reader.read()
            writer.close()
            return answer

    return runner.run(talk())


@pytest.mark.parametrize("start", [b"G", b"\r\n", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"])
def test_a_head_that_is_not_complete_in_time_is_408(
    hasty: App, runner: asyncio.Runner, start: bytes
) -> None:
    answer = heard(hasty, runner, start)

    assert statuses(answer) == [408]
    assert b"connection: close" in answer
    assert b'"type":"timeout_error"' in answer


def test_a_connection_without_a_request_is_closed_in_time(
    hasty: App, runner: asyncio.Runner
) -> None:
    assert heard(hasty, runner) == b""


def test_a_head_that_goes_on_arriving_has_the_same_deadline(
    hasty: App, runner: asyncio.Runner
) -> None:
    async def talk() -> bytes:
        async with listening(hasty) as connect:
            reader, writer = await connect()
            writer.write(b"GET /healthz HTTP/1.1\r\nx: ")
            answer = asyncio.ensure_future(reader.read())
            while not answer.done():
                writer.write(b"a")
                await asyncio.wait([answer], timeout=0.01)
            writer.close()
            return answer.result()

    assert statuses(runner.run(talk())) == [408]


def test_a_second_head_has_its_own_deadline(hasty: App, runner: asyncio.Runner) -> None:
    assert statuses(heard(hasty, runner, asked("GET", "/healthz"), b"GET /he")) == [200, 408]
    assert statuses(heard(hasty, runner, asked("GET", "/healthz") + b"GET /he")) == [200, 408]


def test_a_late_head_is_refused_after_the_answer_that_is_under_way(
    hasty: App, runner: asyncio.Runner
) -> None:
    live = asked("GET", "/api/events")

    async def talk() -> bytes:
        async with listening(hasty) as connect:
            reader, writer = await connect()
            writer.write(live + b"GET /he")
            begun = await reader.readuntil(b"\r\n\r\n")
            hasty.state.stopping.set()
            answer = begun + await reader.read()
            writer.close()
            return answer

    assert statuses(runner.run(talk())) == [200, 408]


def test_the_rest_of_an_answered_request_has_a_deadline(hasty: App, runner: asyncio.Runner) -> None:
    head = b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900\r\n\r\n"

    assert statuses(heard(hasty, runner, head + b"{")) == [404]
