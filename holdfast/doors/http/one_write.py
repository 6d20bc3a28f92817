"""Sends an answer's head and body together: one call of the system, and one packet, for both.

uvicorn writes the head as soon as it is told the status, and uvloop hands each write to the
system at once. For a small answer the second write costs as much as all that is ours.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD, _CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 1"


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a transport that keeps a head back until what follows it."""

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
