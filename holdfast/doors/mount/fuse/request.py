"""What the kernel asks: one request at a time for each thread, in a buffer of its own."""

import ctypes
import threading
from collections.abc import Callable

from holdfast.doors.mount.fuse import protocol

Process = Callable[[int], object]
"""Answers the request of so many bytes in the buffer it was made for, through libfuse."""


class Request:
    """The request that a thread has read from *fd* into `buffer`, and is answering."""

    __slots__ = ("_fd", "_process", "buffer", "node", "opcode", "reached", "size", "unique")

    def __init__(self, fd: int, process_at: Callable[[int], Process]) -> None:
        self.buffer = bytearray(protocol.REQUEST_BYTES)
        self._process = process_at(ctypes.addressof(ctypes.c_char.from_buffer(self.buffer)))
        self._fd = fd
        self.size = self.opcode = self.unique = self.node = 0
        self.reached = False
        """Set when libfuse has asked the core for attributes."""

    def read(self, size: int) -> None:
        """Take the *size* bytes that are in the buffer."""
        self.size = size
        _, self.opcode, self.unique, self.node = protocol.HEADER.unpack_from(self.buffer)

    def process(self) -> None:
        """Have libfuse answer it."""
        self._process(self.size)

    def answer(self, data: bytes = b"") -> bool:
        """Answer it with *data*, past libfuse; return False if who asked is gone."""
        size = protocol.ANSWER_BYTES + len(data)
        return protocol.send(self._fd, protocol.ANSWER.pack(size, 0, self.unique), data)

    def refuse(self, number: int) -> None:
        """Answer it with an errno, past libfuse, if it wants an answer."""
        if self.opcode not in protocol.UNANSWERED:
            answer = protocol.ANSWER.pack(protocol.ANSWER_BYTES, -number, self.unique)
            protocol.send(self._fd, answer)

    @property
    def pid(self) -> int:
        """The thread of the program that asks."""
        (pid,) = protocol.WORD.unpack_from(self.buffer, protocol.PID_AT)
        return pid

    @property
    def room(self) -> int:
        """How many bytes the answer of READDIR and READDIRPLUS may have."""
        (room,) = protocol.WORD.unpack_from(self.buffer, protocol.ROOM_AT)
        return room


class CurrentRequest(threading.local):
    """The request of this thread."""

    request: Request
