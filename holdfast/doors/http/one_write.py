"""Speaks HTTP on a connection, as uvicorn does but for four things.

An answer's head and body are sent together: one call of the system, and one packet, for both.
uvicorn writes the head as soon as it is told the status, and uvloop hands each write to the
system at once. For a small answer the second write costs as much as all that is ours.

The head of a request has a limit and a deadline, and so have the trailers of its body.

An offer to go on in another protocol is passed over, and what is not HTTP is answered as any
other mistake is.
"""

import asyncio
import re
from typing import Any, Literal, cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from holdfast.doors.http.app import App
from holdfast.doors.http.response import HeadTooLarge, RequestTimeout
from holdfast.ground.errors import HoldfastError, InvalidInput

LINGER = 2.0
"""Seconds for which input is discarded after a refusal.

A connection that is closed with unread input is reset, and the client loses the response.
"""

_HEAD, _CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 1"
_OFFER = re.compile(rb"(?i:\r\nupgrade)(?=:)")
_HEAD_MOST = 8_192
"""Bytes within which the offer of a client that makes one stands."""


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits, on a transport that keeps a head back until what follows it.

    `_part` names the part of a request that arrives; None between requests. `_head_bytes` counts
    the bytes of a head, or of trailers, while they arrive; None within a body. The parser copies
    an incomplete header again with each piece of input.
    """

    def connection_made(  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn's own does
        self, transport: asyncio.Transport
    ) -> None:
        """Begin to speak on *transport*, whose first head has its deadline from now on."""
        super().connection_made(_OneWrite(transport, self.loop))  # pyright: ignore[reportArgumentType] - it looks like one
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
        """Read *data*, without what it offers to upgrade to.

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
        """Note that a head begins, and whether its bytes are counted from its first one."""
        super().on_message_begin()
        self._part, self._counted = "head", bool(self._head_bytes)

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head is over a limit."""
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
        """Count what follows a chunk's size: if that was 0 it is trailers, else a body."""
        self._head_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._head_bytes = None
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._part, self._head_bytes = None, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send a refusal that waited for its turn, or begin the deadline of what arrives."""
        super().on_response_complete()
        if self._refusal is not None and not self._answering():
            self._send_refusal(self._refusal)
        else:
            self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or is over a limit, and close."""
        del msg
        next = "Send HTTP/1.1, as its standard says."
        self._refuse(self._fault or InvalidInput("request", "is not HTTP", next=next))

    def _answering(self) -> bool:
        """Tell whether a response is still to be completed."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _head_size(self) -> int:
        lines = sum(len(name) + len(value) + 3 for name, value in self.headers)
        return len(self.url) + lines

    def _watch(self) -> None:
        """Set the deadline of what has begun to arrive, if the server waits for it.

        While a body is read, `bodies.py` watches over it.
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
        """Answer *error* and close, once complete requests are answered; discard further input."""
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
        told = {**dict(headers), b"connection": b"close"}
        lines = b"".join(b"%b: %b\r\n" % pair for pair in told.items())
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], lines, body))
        self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER, self.transport.close)


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
