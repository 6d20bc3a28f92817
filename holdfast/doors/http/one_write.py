"""Speaks HTTP on a connection, as uvicorn does but for three things.

An answer's head and body are sent together: one call of the system, and one packet, for both.
uvicorn writes the head as soon as it is told the status, and uvloop hands each write to the
system at once. For a small answer the second write costs as much as all that is ours.

An offer to go on in another protocol is passed over, and what is not HTTP is answered as any
other mistake is.
"""

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.doors.http.app import App

_HEAD, _CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 1"
_OFFER = re.compile(rb"(?i:\r\nupgrade)(?=:)")
_HEAD_MOST = 8_192
"""Bytes within which the offer of a client that makes one stands."""


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a transport that keeps a head back until what follows it."""

    def data_received(self, data: bytes) -> None:
        """Read *data*, without what it offers to upgrade to.

        Some clients offer HTTP/2 with every request. The parser takes an offer for accepted, and
        drops the body. The header's name keeps its length, so that nothing else shifts.
        """
        if _OFFER.search(data, 0, _HEAD_MOST):
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(b"\r\nx-offer", head) + end + rest
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, and close."""
        app = self.config.app
        if isinstance(app, App):
            headers, body = app.unreadable()
            told = (*headers, (b"connection", b"close"))
            lines = b"".join(b"%b: %b\r\n" % pair for pair in told)
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%b\r\n%b" % (lines, body))
            self.transport.close()
        else:
            super().send_400_response(msg)

    def connection_made(  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn's own does
        self, transport: asyncio.Transport
    ) -> None:
        """Begin to speak on *transport*."""
        super().connection_made(_OneWrite(transport, self.loop))  # pyright: ignore[reportArgumentType] - it looks like one


class _OneWrite:
    """*transport*, but for `write`: a head waits for the next write, or the loop's next round."""

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

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)
