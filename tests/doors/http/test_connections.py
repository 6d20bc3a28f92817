"""What is said on a connection, byte by byte, to a server process."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served, served

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
