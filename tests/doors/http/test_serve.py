"""`serve` as a process: where it listens, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import httpx
import pytest
from served import SERVE, Served, served

import holdfast
from holdfast.doors.http.auth import is_loopback
from holdfast.doors.http.server import START_MOST, serve, wait_for_database
from holdfast.ground.errors import HoldfastError, InvalidInput, NotPermitted, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.testing.postgres import PostgresServer, running_postgres


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "h.db"


def test_the_first_line_says_where_what_and_for_whom(target: Path) -> None:
    with served(target) as server:
        assert str(target) in server.line
        assert "no key is required" in server.line
        assert httpx.get(f"{server.url}/readyz", timeout=60).json() == {"status": "ready"}


def test_a_keyed_server_says_so(target: Path) -> None:
    with holdfast.open(target) as hf:
        hf.keys.create("k")

    with served(target) as server:
        assert "a key is required" in server.line
        assert httpx.get(f"{server.url}/api/me", timeout=60).status_code == 401


def test_a_host_that_others_reach_wants_a_key(target: Path) -> None:
    with served(target, host="0.0.0.0") as server:
        assert "a key is required" in server.line


def test_told_once_it_ends_with_0_and_has_kept_what_it_acknowledged(target: Path) -> None:
    with served(target) as server:
        store = httpx.post(f"{server.url}/v1/memory_stores", json={"name": "n"}, timeout=60).json()[
            "id"
        ]
        server.tell(signal.SIGTERM)

        assert server.code() == 0
    with holdfast.open(target) as hf:
        assert hf.memory_stores.retrieve(store).name == "n"


def test_told_once_it_finishes_what_is_in_flight(target: Path) -> None:
    with served(target) as server, socket.create_connection(address(server.url)) as line:
        head = b"POST /v1/memory_stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 12\r\n\r\n"
        line.sendall(head + b'{"name"')
        # Answered on another connection after it: the request above is under way by then.
        httpx.get(f"{server.url}/healthz", timeout=60)
        server.tell(signal.SIGTERM)
        refuses(server.url)
        line.sendall(b':"n"}')

        assert line.recv(64).startswith(b"HTTP/1.1 200")
        assert server.code() == 0


def test_told_twice_it_ends_at_once_with_1(target: Path) -> None:
    with served(target) as server, socket.create_connection(address(server.url)) as line:
        line.sendall(
            b"POST /v1/memory_stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 12\r\n\r\n"
        )
        httpx.get(f"{server.url}/healthz", timeout=60)
        server.tell(signal.SIGTERM)
        refuses(server.url)
        server.tell(signal.SIGTERM)

        assert server.code() == 1


def test_a_live_answer_does_not_hold_the_server_up(target: Path) -> None:
    with (
        served(target) as server,
        httpx.stream("GET", f"{server.url}/api/events", timeout=60) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        server.tell(signal.SIGTERM)

        assert [each for each in lines if each] == []
        assert server.code() == 0


def test_several_workers_share_the_socket_and_end_together(target: Path) -> None:
    with served(target, workers=2) as server:
        store = httpx.post(f"{server.url}/v1/memory_stores", json={"name": "n"}, timeout=60).json()[
            "id"
        ]
        found: Queue[int] = Queue()

        def look() -> None:
            found.put(httpx.get(f"{server.url}/v1/memory_stores/{store}", timeout=60).status_code)

        threads = [threading.Thread(target=look) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        server.tell(signal.SIGTERM)

        assert [found.get() for _ in threads] == [200] * 8
        assert server.code() == 0


def test_a_worker_that_dies_is_replaced(target: Path) -> None:
    with served(target, workers=1 + 1) as server:
        for child in children(server.process.pid):
            os.kill(child, signal.SIGKILL)

        assert answers(server.url)
        server.tell(signal.SIGTERM)
        assert server.code() == 0


@pytest.mark.parametrize(
    ("target", "workers", "field"),
    [("http://127.0.0.1:1", 1, "target"), (":memory:", 2, "workers"), ("h.db", 0, "workers")],
)
def test_what_cannot_be_served_is_refused(target: str, workers: int, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        serve(target, workers=workers)

    assert refused.value.field == field


def test_an_address_that_is_taken_is_refused(target: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Unavailable):
        serve(str(target), port=taken.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_this_machine_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_a_host_that_others_may_reach_is_not(host: str) -> None:
    assert not is_loopback(host)


def test_an_answer_without_a_body_is_sent_too(target: Path) -> None:
    with served(target) as server:
        came = exchange(
            server.url, b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\r\n\r\n"
        )

        assert came.startswith(b"HTTP/1.1 405")


def test_requests_sent_ahead_are_answered_in_order(target: Path) -> None:
    rest = b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
    ahead = b"GET /healthz" + rest + b"GET /nowhere" + rest
    with served(target) as server:
        came = exchange(server.url, ahead, b"no route")

        assert came.index(b"HTTP/1.1 200") < came.index(b"HTTP/1.1 404")


def test_a_body_is_asked_for_at_once(target: Path) -> None:
    head = b"POST /v1/memory_stores HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
    with served(target) as server:
        came = exchange(server.url, head + b"content-length: 12\r\n\r\n", b"\r\n\r\n")

        assert came.startswith(b"HTTP/1.1 100 Continue")


@pytest.mark.parametrize("sent", [b"\x00\x01\r\n\r\n", b"GET http:// HTTP/1.1\r\n\r\n"])
def test_what_is_not_http_is_refused(target: Path, sent: bytes) -> None:
    with served(target) as server:
        assert exchange(server.url, sent, b"\r\n\r\n").startswith(b"HTTP/1.1 4")


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


def test_a_postgresql_that_accepts_nobody_yet_is_waited_for(postgres: PostgresServer) -> None:
    told: list[str] = []
    postgres.restart_as_standby()

    with wait_for_database(
        lambda: holdfast.open(postgres.url()), tell=told.append, wait=lambda _: postgres.promote()
    ) as hf:
        assert hf.memory_stores.list().data == []

    (line,) = told
    assert "not accepting connections" in line
    assert f"up to {START_MOST:g} s" in line


def test_a_server_waits_for_a_postgresql_that_is_down_as_yet(postgres: PostgresServer) -> None:
    postgres.stop()
    command = [sys.executable, "-c", SERVE, postgres.url(), "127.0.0.1", "0", "1", ""]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        waits = process.stderr.readline()
        postgres.start()
        server = Served(process, process.stderr.readline())
        ready = httpx.get(f"{server.url}/readyz", timeout=60).status_code
        server.tell(signal.SIGTERM)

        assert (ready, server.code()) == (200, 0)
    assert waits.startswith("Holdfast waits up to 30 s for its database: postgresql://")


def test_a_database_that_stays_away_is_waited_for_no_longer_than_promised() -> None:
    told: list[str] = []
    seconds = [0.0]

    def away() -> Holdfast:
        raise Unavailable("It is away.", reason="lost")

    def wait(pause: float) -> None:
        seconds[0] += pause

    with pytest.raises(Unavailable, match="It is away"):
        wait_for_database(away, tell=told.append, now=lambda: seconds[0], wait=wait)

    assert (seconds[0], len(told)) == (pytest.approx(START_MOST, abs=1), 1)


@pytest.mark.parametrize(
    "refusal",
    [Unavailable("Full.", reason="full"), NotPermitted("No.", needed="login")],
    ids=["full", "not permitted"],
)
def test_what_time_does_not_mend_is_not_waited_for(refusal: HoldfastError) -> None:
    told: list[str] = []

    def refused() -> Holdfast:
        raise refusal

    with pytest.raises(type(refusal)):
        wait_for_database(refused, tell=told.append)

    assert told == []


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def refuses(url: str) -> None:
    """Return once the server takes no new connection."""
    while True:
        try:
            socket.create_connection(address(url)).close()
        except ConnectionResetError:
            # It was waiting in line when the server closed its door: the next is refused.
            continue
        except ConnectionRefusedError:
            return


def answers(url: str) -> bool:
    """Return once the server answers, as somebody who tries again."""
    while True:
        try:
            return httpx.get(f"{url}/healthz", timeout=30).is_success
        except httpx.TransportError:
            continue


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(each) for each in listed.split()]


def exchange(url: str, sent: bytes, ends: bytes) -> bytes:
    """Return what came back until *ends* was in it."""
    with socket.create_connection(address(url)) as line:
        line.sendall(sent)
        came = b""
        while ends not in came:
            came += line.recv(65_536)
        return came
