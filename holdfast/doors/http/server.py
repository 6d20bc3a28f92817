"""Serves a database over HTTP until it is told to stop, in one process or several.

Told once (SIGTERM, Ctrl-C), a process takes nothing new, finishes what is in flight, closes the
database and ends with 0. Told twice, it ends at once with 1; what was acknowledged is kept either
way.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from time import gmtime, monotonic, sleep
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.doors.http.auth import HostPolicy, host_policy, is_loopback
from holdfast.doors.http.one_write import OneWriteProtocol
from holdfast.doors.http.state import load, requests_log
from holdfast.doors.http.workers import Workers
from holdfast.ground.errors import InvalidInput, MissingExtra, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.library.open import open as open_holdfast
from holdfast.memories.longterm.vectors.embedder import checked_model

try:
    import uvicorn

    from holdfast.doors.http.app import App, make_app
except ImportError as error:
    raise MissingExtra("server") from error

if TYPE_CHECKING:
    from holdfast.runtime import Network

PORT = 8420
GRACE = 10
"""Seconds that requests in flight have, once the server was told to stop."""

KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than clients and proxies keep theirs."""

START_MOST = 30.0
"""Seconds that a database has to start, which cannot be reached when the server does."""

START_PAUSE = 0.25
"""Seconds between two tries to reach it."""

BACKLOG = 2_048
SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)
Announce = Callable[[str], None]


class ServeOptions(Struct, frozen=True, kw_only=True):
    """How each process is to serve."""

    strict: bool
    migrate: bool
    networks: "Mapping[str, Network]"
    models: Sequence[str]
    access_log: bool
    policy: HostPolicy


def serve(
    target: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    workers: int = 1,
    strict: bool = False,
    migrate: bool = True,
    networks: Sequence[str] = (),
    models: Sequence[str] = (),
    access_log: bool = True,
    public_url: str | None = None,
    allow_origins: Sequence[str] = (),
    announce: Announce | None = None,
) -> int:
    """Serve the database *target* on *host* and *port* until told to stop; return the exit code.

    *port* 0 is any free one. Each of several *workers* is a process that opens the database for
    itself, behind one socket. *networks*, each as `package.module:attribute`, are run for whoever
    may write. *models*, each as `provider:model`, may be named by requests, besides those that the
    server is configured with. With *access_log* each request is a line on the error stream.
    Pages of *public_url*, where clients elsewhere reach the server, and of *allow_origins* may
    send requests. *announce* gets the line that says where, what and for whom; None writes it to
    the error stream. InvalidInput for what cannot be served, Unavailable when the address is
    taken.
    """
    _check(target, workers)
    terms = ServeOptions(
        strict=strict,
        migrate=migrate,
        networks=load(networks) if networks else {},
        models=[checked_model("allow_model", each) for each in models],
        access_log=access_log,
        policy=host_policy(host, public_url=public_url, allow_origins=allow_origins),
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
            networks=terms.networks,
            models=terms.models,
        )
        who = "no key is required" if app.house.gate.open() else "a key is required"
        where = _url(host, listener.getsockname()[1])
        what = _shown(hf.engine.status().target)
        line = f"Holdfast listens on {where}, database {what}, {who}."
        server = HttpServer(app, lambda: tell(line))
        with _requests_logged() if terms.access_log else nullcontext():
            server.run([listener])
    return 0


@contextmanager
def _requests_logged() -> Generator[None]:
    """Write a line for each request to the error stream meanwhile."""
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
    """Return what *open* opens, once its database can be reached.

    A PostgreSQL that starts refuses connections, or answers 57P03: it is tried again for
    `START_MOST` seconds by the clock *now*, then Unavailable rises. *tell* gets one line about it.
    """
    end, told = now() + START_MOST, False
    while True:
        try:
            return open()
        except Unavailable as error:
            if error.reason != "lost" or now() >= end:
                raise
            if not told:
                tell(f"Holdfast waits up to {START_MOST:g} s for its database: {error.message}")
                told = True
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
    """uvicorn, stopped as we promise it: told once it finishes, told twice it ends at once."""

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
        self._app, self._told = app, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        self._told()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is in flight, live answers by ending them."""
        self._app.house.stopping.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Be told to stop by a signal, and leave it at that: it is not raised again."""
        before = {each: signal.signal(each, self.handle_exit) for each in SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; the second time, now."""
        del frame
        if self.should_exit:
            os._exit(1)
        _log.info("stopping on signal %d", sig)
        self.should_exit = True
