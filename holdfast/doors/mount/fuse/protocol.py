"""Layout of requests of the kernel."""

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from errno import ENODEV, ENOENT
from struct import Struct

logger = logging.getLogger(__name__)

HEADER = Struct("=IIQQ")
"""Length, opcode, unique id, node id: how each request begins."""
HEADER_BYTES = 40
UNIQUE, UNIQUE_AT = Struct("=Q"), 8
WORD = Struct("=I")
PID_AT = 32
ANSWER = Struct("=IiQ")
"""Length, negative errno, unique id: how each answer begins."""
ANSWER_BYTES = ANSWER.size

MAX_WRITE = 128 * 1024
REQUEST_BYTES = MAX_WRITE + 4096
"""What libfuse itself keeps for a request: the largest write, and a page for its headers."""

HANDLE = Struct("=Q")
"""The handle with which FLUSH, FSYNC and RELEASE begin."""
PIECE = Struct("=QQI")
"""Handle, offset and size with which READ, WRITE and READDIR begin."""
ROOM_AT = HEADER_BYTES + 16
"""Where that size is."""
OPENED = Struct("=QII")
"""What OPEN answers: the handle, flags, and nothing."""
KEEP_CACHE, NO_FLUSH = 1 << 1, 1 << 5
"""The pages that the kernel has are good; closing needs no FLUSH."""
WRITTEN_AT = HEADER_BYTES + 40
"""Where the bytes of WRITE begin."""
WROTE = Struct("=II")
"""What WRITE answers: how many bytes, and nothing."""
ATTRIBUTE_AT = HEADER_BYTES + 8
"""Where GETXATTR names the attribute."""
BY_HANDLE = Struct("=IIQ")
"""Flags, nothing, handle with which GETATTR and SETATTR begin."""
GETATTR_BY_HANDLE, SETATTR_BY_HANDLE = 1 << 0, 1 << 6
"""The flags that say that there is a handle."""
ENTRY_BYTES, PLUS_ENTRY_BYTES = 24, 152
"""What READDIR and READDIRPLUS answer for each name, besides the name."""

LOOKUP, FORGET, GETATTR, SETATTR = 1, 2, 3, 4
MKNOD, MKDIR, UNLINK, RMDIR, RENAME = 8, 9, 10, 11, 12
OPEN, READ, WRITE, RELEASE, FSYNC = 14, 15, 16, 18, 20
GETXATTR, FLUSH, INIT, READDIR, RELEASEDIR = 22, 25, 26, 28, 29
CREATE, INTERRUPT, IOCTL, BATCH_FORGET, READDIRPLUS, RENAME2 = 35, 36, 39, 42, 44, 45

UNANSWERED = frozenset({FORGET, INTERRUPT, BATCH_FORGET})
GONE = frozenset({ENOENT, ENODEV})
"""What the kernel says to an answer: the request was withdrawn, the connection closed."""


def send(fd: int, *answer: bytes) -> bool:
    """Send the parts of one *answer*; return False if who asked is gone."""
    try:
        os.writev(fd, answer)
    except OSError as error:
        if error.errno not in GONE:
            logger.exception("cannot answer the kernel")
        return False
    return True


Process = Callable[[int], object]
"""Answers the request of so many bytes in the buffer it was made for, through libfuse."""


class Request:
    """The request that a thread has read from *fd* into `buffer`, and is answering."""

    __slots__ = ("_fd", "_process", "buffer", "node", "opcode", "reached", "size", "unique")

    def __init__(self, fd: int, process_at: Callable[[int], Process]) -> None:
        self.buffer = bytearray(REQUEST_BYTES)
        self._process = process_at(ctypes.addressof(ctypes.c_char.from_buffer(self.buffer)))
        self._fd = fd
        self.size = self.opcode = self.unique = self.node = 0
        self.reached = False
        """Set when libfuse has asked the core for attributes."""

    def read(self, size: int) -> None:
        """Take the *size* bytes that are in the buffer."""
        self.size = size
        _, self.opcode, self.unique, self.node = HEADER.unpack_from(self.buffer)

    def process(self) -> None:
        """Have libfuse answer it."""
        self._process(self.size)

    def answer(self, data: bytes = b"") -> bool:
        """Answer it with *data*, past libfuse; return False if who asked is gone."""
        size = ANSWER_BYTES + len(data)
        return send(self._fd, ANSWER.pack(size, 0, self.unique), data)

    def refuse(self, number: int) -> None:
        """Answer it with an errno, past libfuse, if it wants an answer."""
        if self.opcode not in UNANSWERED:
            answer = ANSWER.pack(ANSWER_BYTES, -number, self.unique)
            send(self._fd, answer)

    @property
    def pid(self) -> int:
        """The thread of the program that asks."""
        (pid,) = WORD.unpack_from(self.buffer, PID_AT)
        return pid

    @property
    def room(self) -> int:
        """How many bytes the answer of READDIR and READDIRPLUS may have."""
        (room,) = WORD.unpack_from(self.buffer, ROOM_AT)
        return room


class CurrentRequest(threading.local):
    """The request of this thread."""

    request: Request
