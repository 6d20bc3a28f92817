"""A port of this machine on which a PostgreSQL server answers, with faults of the network."""

import select
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Lock, Thread
from typing import Literal

from holdfast.testing.postgres import PostgresServer

Direction = Literal["to server", "to client"]

_TLS_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"


class Proxy(ThreadingTCPServer):
    """Forwards between its port and *server*'s socket; with *tls* its clients may encrypt.

    `cut` closes one connection in the middle of its bytes.
    """

    block_on_close = True

    def __init__(self, server: PostgresServer, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.behind, self.tls = str(server.folder / ".s.PGSQL.5432"), tls
        self._lock = Lock()
        self._cut: Direction | None = None
        self._left = 0

    @property
    def port(self) -> int:
        """The port."""
        return int(self.server_address[1])

    def cut(self, direction: Direction, after: int) -> None:
        """Close the connection that next sends a byte in *direction* after *after* more bytes."""
        with self._lock:
            self._cut, self._left = direction, after

    def cancel(self) -> bool:
        """Cut nothing from now on; return whether a connection was still to be cut."""
        with self._lock:
            armed, self._cut = self._cut is not None, None
        return armed

    def allowed(self, direction: Direction, data: bytes) -> bytes:
        """Return how much of *data* is forwarded; the connection ends after a part."""
        with self._lock:
            if self._cut != direction:
                return data
            part, self._left = data[: self._left], self._left - len(data)
            if self._left < 0:
                self._cut = None
            return part


class _Connection(BaseRequestHandler):
    request: socket.socket

    @property
    def proxy(self) -> Proxy:
        assert isinstance(self.server, Proxy)
        return self.server

    def handle(self) -> None:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as behind:
            behind.connect(self.proxy.behind)
            with self._encrypted() as client:
                self._forward(client, behind)

    def _encrypted(self) -> socket.socket:
        """Return the client's socket, encrypted if it wants that and may have it."""
        tls = self.proxy.tls
        if tls is None or self.request.recv(8, socket.MSG_PEEK) != _TLS_REQUEST:
            return self.request
        self.request.recv(8)
        self.request.sendall(b"S")
        return tls.wrap_socket(self.request, server_side=True)

    def _forward(self, client: socket.socket, behind: socket.socket) -> None:
        while True:
            encrypted = client if isinstance(client, ssl.SSLSocket) else None
            ready = [client] if encrypted is not None and encrypted.pending() else []
            for source in ready or select.select([client, behind], [], [])[0]:
                data = source.recv(65536)
                part = self.proxy.allowed("to server" if source is client else "to client", data)
                (behind if source is client else client).sendall(part)
                if not data or len(part) < len(data):
                    return


@contextmanager
def proxied(server: PostgresServer, tls: ssl.SSLContext | None = None) -> Generator[Proxy]:
    """Yield a proxy of *server*, which runs until the end."""
    with Proxy(server, tls) as proxy:
        accepts = Thread(target=proxy.serve_forever, args=(0.01,))
        accepts.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            accepts.join()
