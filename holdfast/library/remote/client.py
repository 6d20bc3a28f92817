"""HTTP client of a server: requests, connection pool, safe retries, event streams.

Reads are retried on transient errors. A write is retried only if it certainly was not done, or if
it is idempotent; in all other cases its caller resolves the write in doubt.
"""

import logging
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from math import isfinite
from typing import Literal, cast
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET

from holdfast.ground import json_values
from holdfast.ground.clock import from_microseconds, to_rfc3339
from holdfast.ground.errors import InvalidInput, MissingExtra, PreconditionFailed, Unavailable
from holdfast.ground.scope import WriteSubject, checked_name
from holdfast.ground.text import encoded
from holdfast.ground.trust import WriterTier, checked_tier
from holdfast.library.remote.errors import from_answer
from holdfast.library.settings import HandleTarget
from holdfast.memories.stores.records import JSONObject

try:
    import httpx
except ImportError as error:
    raise MissingExtra("remote") from error


_NAMED = re.compile(r"\{(\w+)\}")

# Arguments are sent unchanged, so that the server, which knows the limits, validates them. Only
# values that a request cannot encode are refused here.


def route(prefix: str, *segments: str) -> str:
    """Return *prefix* and each of *segments* as one percent-encoded segment of a path.

    A segment of invalid text is sent too: the server responds NotFound.
    """
    return "/".join((prefix, *(_segment(each) for each in segments)))


def filled(path: str, segments: Mapping[str, str]) -> str:
    """Return *path* with each `{name}` replaced by that one of *segments*, encoded."""
    return _NAMED.sub(lambda found: _segment(segments[found[1]]), path)


def _segment(given: str) -> str:
    # A proxy would take "." and ".." for directories.
    quoted = quote(given.encode("utf-8", "surrogatepass"), safe="")
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted


def query_of(fields: Mapping[str, object]) -> str:
    """Encode *fields* as a query string with its `?`.

    None is left out, a list repeats its name.

    Raises InvalidInput for a value that a query cannot encode.
    """
    pairs = [
        (name, _in_query(name, each))
        for name, value in fields.items()
        for each in (cast("list[object]", value) if isinstance(value, list) else [value])
        if each is not None
    ]
    return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""


def _in_query(field: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        encoded(field, value)
        return value
    if isinstance(value, int | float):
        return str(value)
    raise InvalidInput(field, "must be text, a number, a truth value or an instant", given=value)


def body_of(fields: Mapping[str, object]) -> bytes:
    """Encode *fields* as a JSON object, without those that are UNSET.

    Raises InvalidInput naming the field with a value that JSON cannot encode unchanged.
    """
    given = {name: value for name, value in fields.items() if value is not UNSET}
    return msgspec.json.encode({name: _within(name, value) for name, value in given.items()})


def json_of(field: str, value: object) -> bytes:
    """Encode *value* as JSON; InvalidInput about *field* if JSON cannot hold it."""
    return msgspec.json.encode(_within(field, value))


def _within(field: str, value: object) -> object:
    try:
        return _plain(field, value)
    except RecursionError:
        raise InvalidInput(field, "is nested too deeply") from None


def _plain(field: str, value: object) -> object:
    """Convert *value* to JSON's own types; InvalidInput for invalid text or types."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        encoded(field, value)
        return value
    if isinstance(value, float):
        return _finite(field, value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {_key(field, key): _plain(field, each) for key, each in pairs}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return [_plain(field, each) for each in cast("Iterable[object]", value)]
    raise InvalidInput(field, "must be a JSON value", given=value)


def _finite(field: str, value: float) -> float:
    if not isfinite(value):
        raise InvalidInput(field, "must be a finite number", given=value)
    return value


def _key(field: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidInput(field, "must have strings as keys", given=given)
    encoded(field, given)
    return given


Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Headers = Mapping[str, str | bytes]

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds before each retry; a restarting server is back within their sum."""

PATIENCE = 15.0
"""Seconds after which no request is retried, whatever `retry-after` is."""

PASSING = frozenset({"busy", "overloaded", "lost", "locked"})
"""Reasons that are transient."""

# A server limits a write to 30 s; it should report the timeout itself.
_ANSWERED = 35.0
# Idle connections close before a server's usual 5 s: one that the server closes during a write
# would leave its outcome unknown.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=4.0)
_HEADERS = {
    "accept": "application/json",
    "anthropic-beta": "managed-agents-2026-04-01",
    "anthropic-version": "2023-06-01",
    "user-agent": "holdfast",
}


_requesting: ContextVar[bool] = ContextVar("asking", default=False)


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=5.0)


def _is_foreign(_: logging.LogRecord) -> bool:
    return not _requesting.get()


# These loggers record addresses and headers, and ours contain paths, hashes and queries.
for _name in ("httpx", "httpcore.connection", "httpcore.http11"):
    logging.getLogger(_name).addFilter(_is_foreign)


@cache
def _tls() -> ssl.SSLContext:
    """Return the trusted certificates of this process, which take 26 ms to read."""
    return httpx.create_ssl_context()


@contextmanager
def _request(*, writes: bool) -> Generator[None]:
    """Suppress the client library's logs, and map its errors to Unavailable."""
    token = _requesting.set(True)
    try:
        yield
    except httpx.RequestError as error:
        raise _unavailable(error, writes=writes) from error
    finally:
        _requesting.reset(token)


class Connections:
    """Connections to one server.

    A forked child opens its own, as sockets cannot be shared.
    """

    def __init__(self, url: str) -> None:
        self.url, self.closed = _checked_url(url), False
        self._client, self._process = self._new(), os.getpid()

    def _new(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.url,
            timeout=_timeout(_ANSWERED),
            limits=_LIMITS,
            headers=_HEADERS,
            verify=_tls(),
        )

    def client(self) -> httpx.Client:
        """Return the HTTP client of this process."""
        if self._process != os.getpid():
            self._client, self._process = self._new(), os.getpid()
        return self._client

    def close(self) -> None:
        """Close all connections; repeating it does nothing."""
        self.closed = True
        self._client.close()


class Stream:
    """Streamed response, read line by line; another thread can cut it off."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer, self._lock = answer, threading.Lock()
        network = answer.extensions["network_stream"]
        self._socket: socket.socket | None = network.get_extra_info("socket")

    def lines(self) -> Iterator[str]:
        """Yield each line as it arrives, until the server ends or `cut` is called."""
        try:
            yield from self._answer.iter_lines()
        except httpx.RequestError as error:
            raise _unavailable(error, writes=False) from error

    def cut(self) -> None:
        """End `lines`, also while it blocks."""
        with self._lock:
            if self._socket is None:
                return
            # A duplicate, because a TLS socket must not be touched while another thread reads it.
            # An OSError means that the connection has just ended by itself.
            with suppress(OSError), socket.socket(fileno=os.dup(self._socket.fileno())) as twin:
                twin.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Return the connection to the pool."""
        with self._lock:
            self._socket = None
        self._answer.close()


class WireClient:
    """Client of one server with one credential. Threads may share it."""

    def __init__(
        self,
        connections: Connections,
        *,
        api_key: str | None,
        workspace: str,
        subject: WriteSubject | None = None,
        tier: WriterTier | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connections, self._workspace, self._pause = connections, workspace, pause
        self._subject = subject
        self.tier: WriterTier | None = tier
        self._closed = False
        self._api_key = _checked_header("api_key", api_key or "")
        self._headers = {"x-api-key": api_key} if api_key else {}
        if workspace != "default":
            self._headers["anthropic-workspace-id"] = _checked_header("workspace", workspace)
        if subject is not None:
            self._headers["holdfast-subject"] = checked_name("user", subject.user)
            if subject.since is not None:
                self._headers["holdfast-since"] = to_rfc3339(from_microseconds(subject.since))
        if tier is not None:
            self._headers["holdfast-tier"] = checked_tier(tier)

    @property
    def opened(self) -> HandleTarget:
        """Target and credential for another process to use the same server."""
        return HandleTarget(target=self._connections.url, api_key=self._api_key or None)

    def acting(
        self,
        *,
        api_key: str | None = None,
        workspace: str | None = None,
        subject: WriteSubject | None = None,
        tier: WriterTier | None = None,
    ) -> "WireClient":
        """Return a client on the same connections with another credential or workspace.

        Its writes are linked to the person of *subject*, and of *tier*.
        """
        return WireClient(
            self._connections,
            api_key=api_key or self._api_key,
            workspace=workspace or self._workspace,
            subject=subject or self._subject,
            tier=tier or self.tier,
            pause=self._pause,
        )

    def close(self) -> None:
        """Refuse further requests; the connections stay open for other clients."""
        self._closed = True

    def _sender(self) -> httpx.Client:
        if self._closed or self._connections.closed:
            raise Unavailable("This handle is closed.", reason="closed", next="Open a new one.")
        return self._connections.client()

    def read(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        headers: Headers | None = None,
        waits: float = 0.0,
    ) -> JSONObject:
        """Return the response of a GET of *path*.

        *waits* adds seconds to the timeout.
        """
        target = path + query_of(query or {})
        answer = self._send_with_retries(
            "GET", target, None, headers or {}, again=True, waits=waits
        )
        return _decoded(answer, writes=False)

    def read_lines(self, path: str, query: Mapping[str, object]) -> list[bytes]:
        """Return the lines of the response of a GET of *path*."""
        answer = self._send_with_retries("GET", path + query_of(query), None, {}, again=True)
        return answer.splitlines()

    def write_lines(
        self, path: str, lines: Iterable[bytes], query: Mapping[str, object]
    ) -> JSONObject:
        """Return the response of a POST of *lines* to *path*; never retried after sending."""
        headers = {"content-type": "application/x-ndjson"}
        target = path + query_of(query)
        answer = self._send_with_retries("POST", target, b"\n".join(lines), headers, again=False)
        return _decoded(answer, writes=True)

    def write(
        self,
        method: Method,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        headers: Headers | None = None,
        again: bool = False,
    ) -> JSONObject:
        """Return the response of *method* on *path*; *again* if it is idempotent.

        Raises Unavailable with `written` None if the write may have been done.
        """
        content = None if body is None else body_of(body)
        target = path + query_of(query or {})
        answer = self._send_with_retries(method, target, content, headers or {}, again=again)
        return _decoded(answer, writes=method != "GET")

    def _send_with_retries(
        self,
        method: Method,
        target: str,
        content: bytes | None,
        headers: Headers,
        *,
        again: bool,
        waits: float = 0.0,
    ) -> bytes:
        over, pauses = time.monotonic() + PATIENCE, iter(PAUSES)
        unknown: Unavailable | None = None
        while True:
            try:
                return self._send(method, target, content, headers, seconds=_ANSWERED + waits)
            except PreconditionFailed as error:
                if unknown is None or "idempotency-key" in headers:
                    raise
                # The first request may have done it, and another client wrote since.
                raise unknown from error
            except Unavailable as error:
                unknown = error if unknown is None and error.written is None else unknown
                pause = max(next(pauses, PATIENCE), error.retry_after or 0.0)
                safe = again or error.written is False
                if not safe or error.reason not in PASSING or time.monotonic() + pause >= over:
                    error.written = error.written if unknown is None else None
                    raise
                self._pause(pause)

    def _send(
        self,
        method: Method,
        target: str,
        content: bytes | None,
        headers: Headers,
        *,
        seconds: float,
    ) -> bytes:
        writes = method != "GET"
        kind = {"content-type": "application/json"} if content else {}
        merged = {**self._headers, **kind, **headers}
        # As bytes, since a header of ours may hold UTF-8, which the client library would not send.
        raw = [(name.encode(), _raw(value)) for name, value in merged.items()]
        client = self._sender()
        with _request(writes=writes):
            answer = client.request(
                method, target, content=content, headers=raw, timeout=_timeout(seconds)
            )
        if not answer.is_success:
            raise from_answer(answer.status_code, answer.headers, answer.content, writes=writes)
        return answer.content

    @contextmanager
    def follow(
        self, path: str, query: Mapping[str, object], headers: Mapping[str, str]
    ) -> Generator[Stream]:
        """Open the event stream at *path*; the caller reconnects."""
        client, target = self._sender(), path + query_of(query)
        request = client.build_request(
            "GET", target, headers={**self._headers, **headers, "accept": "text/event-stream"}
        )
        with _request(writes=False):
            answer = client.send(request, stream=True)
            if not answer.is_success:
                body = answer.read()
                raise from_answer(answer.status_code, answer.headers, body, writes=False)
        stream = Stream(answer)
        try:
            yield stream
        finally:
            stream.close()


def _decoded(content: bytes, *, writes: bool) -> JSONObject:
    try:
        return msgspec.convert(json_values.read(content, "answer"), JSONObject)
    except (msgspec.ValidationError, InvalidInput) as error:
        raise Unavailable(
            "The answer is not one of a Holdfast server.",
            reason="io",
            written=None if writes else False,
            next="Check the address, and what stands between.",
        ) from error


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _unavailable(error: httpx.RequestError, *, writes: bool) -> Unavailable:
    never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    late = isinstance(error, httpx.TimeoutException)
    said = str(error) or type(error).__name__
    return Unavailable(
        f"The server {'did not answer in time' if late else 'cannot be reached'}: {said}.",
        reason="timeout" if late else "lost",
        written=None if writes and not never_sent else False,
        next="Check that it runs and can be reached, then try again.",
    )


def _checked_url(given: str) -> str:
    try:
        url = httpx.URL(given)
    except httpx.InvalidURL as error:
        raise InvalidInput("target", f"is not the address of a server: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host or url.query or url.fragment:
        raise InvalidInput("target", "must be http:// or https:// and a host, without a query")
    return given.rstrip("/")


def _checked_header(field: str, given: str) -> str:
    if not (given.isascii() and given.isprintable()):
        raise InvalidInput(field, "must be printable ASCII")
    return given
