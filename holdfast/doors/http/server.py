"""Serve the application with uvicorn, in one or several processes.

At the first signal (SIGTERM, Ctrl-C) a process accepts nothing new, finishes the requests in
flight, closes the database and exits with 0. At the second it exits at once with 1. Acknowledged
writes are durable either way.
"""

import asyncio
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from time import gmtime, monotonic, sleep
from types import FrameType
from typing import Any, Literal, cast

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from holdfast.doors import http
from holdfast.doors.http.auth import HostPolicy, host_policy, is_loopback
from holdfast.doors.http.request import MakeSubApp
from holdfast.doors.http.response import HeadTooLarge, RequestTimeout
from holdfast.doors.http.state import MakeSite, requests_log
from holdfast.ground.errors import HoldfastError, InvalidInput, MissingExtra, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.library.open import open as open_holdfast
from holdfast.memories.longterm.vectors.embedder import checked_model

try:
    import uvicorn

    from holdfast.doors.http.app import App, make_app
except ImportError as error:
    raise MissingExtra("server") from error

# A response's head and body are sent together, in one system call and one packet. uvicorn writes
# the head as soon as it has the status, and uvloop makes a system call for each write. For a small
# response the second write costs as much as all of our own work.
#
# The head of a request has a limit and a deadline, and so have the trailers of its body.
#
# An offer to upgrade the protocol is ignored. Input that is not HTTP gets an error response, as any
# other mistake.

LINGER = 2.0
"""Seconds for which input is discarded after a refusal.

A connection that is closed with unread input is reset, and the client loses the response.
"""

_HEAD, _CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 1"
_OFFER = re.compile(rb"(?i:\r\nupgrade)(?=:)")
_HEAD_MOST = 8_192
"""Bytes of a head that are searched for an offer to upgrade."""


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits, which sends a head together with its body.

    `_part` names the part of a request that arrives; None between requests. `_head_bytes` counts
    the bytes of a head, or of trailers, while they arrive; None within a body. The parser copies
    an incomplete header again with each piece of input.
    """

    def connection_made(  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn's own does
        self, transport: asyncio.Transport
    ) -> None:
        """Start on *transport*, and start the deadline of the first head."""
        super().connection_made(_OneWrite(transport, self.loop))  # pyright: ignore[reportArgumentType] - it has the methods that are used
        self._app = cast("App", self.config.app)
        self._limits = self._app.limits
        self._part: Literal["head", "body"] | None = None
        self._head_bytes: int | None = 0
        self._counted = True
        self._fault: HeadTooLarge | None = None
        self._refusal: HoldfastError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._arm(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the deadline with the connection."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse *data*, without an offer to upgrade the protocol.

        Some clients offer HTTP/2 with every request. The parser takes an offer for accepted, and
        drops the body. The header's name keeps its length, so that nothing else shifts.
        """
        if self._part != "body" and _OFFER.search(data, 0, _HEAD_MOST):
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(b"\r\nx-offer", head) + end + rest
        most = self._limits.head_bytes
        while data and self._refusal is None:
            size = len(data)
            if self._head_bytes is not None:
                size = most - self._head_bytes
                self._head_bytes += min(size, len(data))
            piece, data = data[:size], data[size:]
            super().data_received(piece)
            if self._head_bytes is not None and self._head_bytes >= most:
                self._refuse(HeadTooLarge(most, "bytes"))
        self._watch()

    def on_message_begin(self) -> None:
        """Record that a head begins, and whether all of its bytes are counted."""
        super().on_message_begin()
        self._part, self._counted = "head", bool(self._head_bytes)

    def on_headers_complete(self) -> None:
        """Start the request, unless its head exceeds a limit."""
        limits = self._limits
        if len(self.headers) > limits.head_lines:
            self._fault = HeadTooLarge(limits.head_lines, "header lines")
        # A head that began behind another request, in the same piece of input.
        elif not self._counted and self._head_size() > limits.head_bytes:
            self._fault = HeadTooLarge(limits.head_bytes, "bytes")
        if self._fault is not None:
            raise self._fault
        self._part, self._head_bytes = "body", None
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """Count the bytes after a chunk's size: trailers if it is 0, else a body."""
        self._head_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._head_bytes = None
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that the request is complete."""
        self._part, self._head_bytes = None, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send a pending refusal, or start the deadline of incomplete input."""
        super().on_response_complete()
        if self._refusal is not None and not self._answering():
            self._send_refusal(self._refusal)
        else:
            self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer input that is not HTTP, or exceeds a limit, and close."""
        del msg
        next = "Send HTTP/1.1, as its standard says."
        self._refuse(self._fault or InvalidInput("request", "is not HTTP", next=next))

    def _answering(self) -> bool:
        """Return whether a response is incomplete."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _head_size(self) -> int:
        lines = sum(len(name) + len(value) + 3 for name, value in self.headers)
        return len(self.url) + lines

    def _watch(self) -> None:
        """Set the deadline of incomplete input, if the server waits for it.

        While a body is read, `IncomingBody` has its deadline.
        """
        if self._refusal is not None or self.transport.is_closing():
            return
        if self._answering() or not (self._part or self._head_bytes):
            self._disarm()
        elif self._timer is None:
            limits = self._limits
            self._arm(limits.body_seconds if self._part == "body" else limits.head_seconds)

    def _arm(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """End a connection on which a head is late, or the body of an answered request."""
        self._timer = None
        if self._part == "head" or (self._part is None and self._head_bytes):
            self._refuse(RequestTimeout("head"))
        else:
            self.transport.close()

    def _refuse(self, error: HoldfastError) -> None:
        """Answer *error* and close, once complete requests are answered.

        Further input is discarded.
        """
        if self._refusal is not None:
            return
        self._refusal = error
        self._disarm()
        if not self._answering():
            self._send_refusal(error)
        elif self.cycle.more_body:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
            else:
                self._send_refusal(error)

    def _send_refusal(self, error: HoldfastError) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        status, headers, body = self._app.refusal(error)
        fields = {**dict(headers), b"connection": b"close"}
        lines = b"".join(b"%b: %b\r\n" % pair for pair in fields.items())
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], lines, body))
        self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER, self.transport.close)


class _OneWrite:
    """A transport on which a head waits for the next write.

    Without one it is written in the next cycle of the loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._head = transport, loop, b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(_HEAD) and not data.startswith(_CONTINUE):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


_log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds before a process that exited by itself is replaced, to limit restarts."""


class Workers:
    """Supervisor of *count* processes that each run *work*(first), until a signal."""

    def __init__(self, count: int, work: Callable[[bool], int]) -> None:
        self._count, self._work = count, work
        self._alive: set[int] = set()
        self._stopping, self._first = False, True

    def run(self) -> int:
        """Run until a signal; return 0 once all processes have exited.

        A second signal kills all of them and exits with 1. A process that exits by itself is
        replaced after `PAUSE` seconds.
        """
        before = {
            each: signal.signal(each, self._on_signal) for each in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            while len(self._alive) < self._count:
                self._fork()
            while self._alive:
                self._on_exit(*os.wait())
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
        return 0

    def _fork(self) -> None:
        sys.stderr.flush()
        first, self._first = self._first, False
        process = os.fork()
        if process == 0:
            self._run_child(first=first)
        self._alive.add(process)
        if self._stopping:
            self._send_signal(process, signal.SIGTERM)

    def _run_child(self, *, first: bool) -> None:
        """Run the work in the child process, and exit with its code."""
        code = 1
        try:
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, signal.SIG_DFL)
            code = self._work(first)
        except BaseException:  # noqa: BLE001 - nothing of the parent's stack may run in the child
            _log.exception("a worker failed")
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _on_exit(self, process: int, status: int) -> None:
        self._alive.discard(process)
        if self._stopping:
            return
        _log.error("a worker ended by itself (%d)", os.waitstatus_to_exitcode(status))
        time.sleep(PAUSE)
        if not self._stopping:
            self._fork()

    def _on_signal(self, sig: int, frame: FrameType | None) -> None:
        del sig, frame
        if self._stopping:
            for process in self._alive:
                self._send_signal(process, signal.SIGKILL)
            os._exit(1)
        self._stopping = True
        for process in self._alive:
            self._send_signal(process, signal.SIGTERM)

    def _send_signal(self, process: int, sig: signal.Signals) -> None:
        try:
            os.kill(process, sig)
        except ProcessLookupError:
            _log.debug("worker %d has already exited", process)


PORT = 8420
GRACE = 10
"""Seconds for requests in flight to finish, once the server stops."""
KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than clients and proxies keep theirs."""
START_MOST = 30.0
"""Seconds to wait for a database that cannot be reached when the server starts."""
START_PAUSE = 0.25
"""Seconds between two attempts to reach it."""

BACKLOG = 2_048
SIGNALS = (signal.SIGTERM, signal.SIGINT)

Announce = Callable[[str], None]


class ServeOptions(Struct, frozen=True, kw_only=True):
    """Options of each serving process."""

    strict: bool
    migrate: bool
    definitions: "Mapping[str, http.Definition]"
    models: Sequence[str]
    dream_model: str | None
    access_log: bool
    policy: HostPolicy
    subapp: MakeSubApp | None
    site: MakeSite | None


def serve(
    target: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    workers: int = 1,
    strict: bool = False,
    migrate: bool = True,
    runs: Sequence[str] = (),
    models: Sequence[str] = (),
    dream_model: str | None = None,
    access_log: bool = True,
    public_url: str | None = None,
    allow_origins: Sequence[str] = (),
    subapp: MakeSubApp | None = None,
    site: MakeSite | None = None,
    announce: Announce | None = None,
) -> int:
    """Serve the database *target* on *host* and *port*; return the exit code.

    It runs until a signal stops it. *port* 0 is any free one. Each of several *workers* is a
    process that opens the database for itself, behind one socket. Clients with the right to write
    may start *runs* of definitions, each given as `package.module:attribute`. Requests may name
    *models* besides the configured ones; *dream_model* does dreams. With *access_log* each request
    is a line on the error stream. Pages of *public_url* and of *allow_origins* may send requests.
    *subapp* makes the app of another interface, *site* that of pages for people. *announce* gets
    the line with the address; None writes it to the error stream. Raise InvalidInput for options
    that cannot be served, Unavailable if the address is taken.
    """
    _check(target, workers)
    terms = ServeOptions(
        strict=strict,
        migrate=migrate,
        definitions=http.load(runs) if runs else {},
        models=[checked_model("allow_model", each) for each in models],
        dream_model=None if dream_model is None else checked_model("dream_model", dream_model),
        access_log=access_log,
        policy=host_policy(host, public_url=public_url, allow_origins=allow_origins),
        subapp=subapp,
        site=site,
    )
    tell = announce or _to_stderr
    listener = _listen(host, port)
    with listener:
        if workers == 1:
            return _serve_one(target, listener, host, terms=terms, tell=tell)

        def work(first: bool) -> int:
            return _serve_one(
                target, listener, host, terms=terms, tell=tell if first else lambda _: None
            )

        return Workers(workers, work).run()


def _check(target: str | None, workers: int) -> None:
    if target is not None and target.startswith(("http://", "https://")):
        raise InvalidInput("target", "is a server's address already", next="Name a database.")
    if workers < 1:
        raise InvalidInput("workers", "must be 1 or more", given=workers)
    if workers > 1 and target == ":memory:":
        raise InvalidInput("workers", "must be 1 for :memory:, which no two processes share")


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.create_server(
            (str(address[0]), int(address[1])), family=family, backlog=BACKLOG
        )
    except (OSError, OverflowError) as error:
        raise Unavailable(
            f"{host}:{port} cannot be listened on: {error}.",
            reason="io",
            next="Choose another host or port.",
        ) from error
    listener.setblocking(False)
    return listener


def _serve_one(
    target: str | None,
    listener: socket.socket,
    host: str,
    *,
    terms: ServeOptions,
    tell: Announce,
) -> int:
    with wait_for_database(lambda: open_holdfast(target, migrate=terms.migrate), tell=tell) as hf:
        app = make_app(
            hf,
            strict=terms.strict,
            loopback=is_loopback(host),
            policy=terms.policy,
            definitions=terms.definitions,
            models=terms.models,
            dream_model=terms.dream_model,
            make_subapp=terms.subapp,
            make_site=terms.site,
        )
        who = "no key is required" if app.state.gate.open() else "a key is required"
        where, what = _url(host, listener.getsockname()[1]), _shown(hf.engine.status().target)
        site = f" {app.site.notice}" if app.site else ""
        line = f"Holdfast listens on {where}, database {what}, {who}.{site}"
        server = HttpServer(app, lambda: tell(line))
        with _requests_logged() if terms.access_log else nullcontext():
            server.run([listener])
    return 0


@contextmanager
def _requests_logged() -> Generator[None]:
    """Log a line for each request to the error stream, within the block."""
    formatter = logging.Formatter("%(asctime)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    requests_log.addHandler(handler)
    requests_log.setLevel(logging.INFO)
    requests_log.propagate = False
    try:
        yield
    finally:
        requests_log.removeHandler(handler)
        requests_log.setLevel(logging.NOTSET)
        requests_log.propagate = True


def wait_for_database(
    open: Callable[[], Holdfast],
    *,
    tell: Announce,
    now: Callable[[], float] = monotonic,
    wait: Callable[[float], None] = sleep,
) -> Holdfast:
    """Return the result of *open*, once its database can be reached.

    A PostgreSQL that starts refuses connections, or answers 57P03: *open* is retried for
    `START_MOST` seconds by the clock *now*, then Unavailable is raised. *tell* gets one line about
    it.
    """
    end, announced = now() + START_MOST, False
    while True:
        try:
            return open()
        except Unavailable as error:
            if error.reason != "lost" or now() >= end:
                raise
            if not announced:
                tell(f"Holdfast waits up to {START_MOST:g} s for its database: {error.message}")
                announced = True
        wait(START_PAUSE)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _shown(target: str) -> str:
    """Return *target* without the password that an address may hold."""
    scheme, found, rest = target.partition("://")
    if not found:
        return target
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class HttpServer(uvicorn.Server):
    """uvicorn's server: the first signal stops it, the second ends it at once."""

    def __init__(self, app: App, started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=OneWriteProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=GRACE,
                backlog=BACKLOG,
            )
        )
        self._app, self._announce = app, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer requests, then announce it."""
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the requests in flight; end live responses."""
        self._app.state.stopping.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle signals within the block; do not raise them again."""
        before = {each: signal.signal(each, self.handle_exit) for each in SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop the server; at the second signal exit with 1."""
        del frame
        if self.should_exit:
            os._exit(1)
        _log.info("stopping on signal %d", sig)
        self.should_exit = True
