"""Layout of the FUSE kernel protocol: requests and replies."""

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from errno import ENODEV, ENOENT
from struct import Struct

logger = logging.getLogger(__name__)

HEADER = Struct("=IIQQ")
"""Start of each request: length, opcode, unique id, node id."""
HEADER_BYTES = 40
UNIQUE, UNIQUE_AT = Struct("=Q"), 8
WORD = Struct("=I")
PID_AT = 32
ANSWER = Struct("=IiQ")
"""Start of each reply: length, negative errno, unique id."""
ANSWER_BYTES = ANSWER.size

MAX_WRITE = 128 * 1024
REQUEST_BYTES = MAX_WRITE + 4096
"""Buffer size of a request, as in libfuse: the largest write, and a page for headers."""

HANDLE = Struct("=Q")
"""Start of FLUSH, FSYNC and RELEASE: the handle."""
PIECE = Struct("=QQI")
"""Start of READ, WRITE and READDIR: handle, offset and size."""
ROOM_AT = HEADER_BYTES + 16
"""Offset of that size."""
OPENED = Struct("=QII")
"""Reply to OPEN: the handle, flags, padding."""
KEEP_CACHE, NO_FLUSH = 1 << 1, 1 << 5
"""The kernel's cached pages are valid; closing needs no FLUSH."""
WRITTEN_AT = HEADER_BYTES + 40
"""Offset of the bytes of WRITE."""
WROTE = Struct("=II")
"""Reply to WRITE: the number of bytes, padding."""
ATTRIBUTE_AT = HEADER_BYTES + 8
"""Offset of the attribute's name in GETXATTR."""
BY_HANDLE = Struct("=IIQ")
"""Start of GETATTR and SETATTR: flags, padding, handle."""
GETATTR_BY_HANDLE, SETATTR_BY_HANDLE = 1 << 0, 1 << 6
"""The flags that mark the handle as valid."""
ENTRY_BYTES, PLUS_ENTRY_BYTES = 24, 152
"""Bytes of an entry in replies to READDIR and READDIRPLUS, without the name."""

LOOKUP, FORGET, GETATTR, SETATTR = 1, 2, 3, 4
MKNOD, MKDIR, UNLINK, RMDIR, RENAME = 8, 9, 10, 11, 12
OPEN, READ, WRITE, RELEASE, FSYNC = 14, 15, 16, 18, 20
GETXATTR, FLUSH, INIT, READDIR, RELEASEDIR = 22, 25, 26, 28, 29
CREATE, INTERRUPT, IOCTL, BATCH_FORGET, READDIRPLUS, RENAME2 = 35, 36, 39, 42, 44, 45

UNANSWERED = frozenset({FORGET, INTERRUPT, BATCH_FORGET})
GONE = frozenset({ENOENT, ENODEV})
"""Errors of a reply: the request was withdrawn, the connection closed."""


def send(fd: int, *answer: bytes) -> bool:
    """Send the parts of one *answer*; return False if the request was withdrawn."""
    try:
        os.writev(fd, answer)
    except OSError as error:
        if error.errno not in GONE:
            logger.exception("cannot answer the kernel")
        return False
    return True


Process = Callable[[int], object]
"""Answer the request in its buffer, of the given size in bytes, through libfuse."""


class Request:
    """The request that a thread read from *fd* into `buffer` and is answering."""

    __slots__ = ("_fd", "_process", "buffer", "node", "opcode", "reached", "size", "unique")

    def __init__(self, fd: int, process_at: Callable[[int], Process]) -> None:
        self.buffer = bytearray(REQUEST_BYTES)
        self._process = process_at(ctypes.addressof(ctypes.c_char.from_buffer(self.buffer)))
        self._fd = fd
        self.size = self.opcode = self.unique = self.node = 0
        self.reached = False
        """Set when libfuse has called `getattr` of the core."""

    def read(self, size: int) -> None:
        """Parse the header of the *size* bytes in the buffer."""
        self.size = size
        _, self.opcode, self.unique, self.node = HEADER.unpack_from(self.buffer)

    def process(self) -> None:
        """Answer the request through libfuse."""
        self._process(self.size)

    def answer(self, data: bytes = b"") -> bool:
        """Answer with *data*, without libfuse; return False if it was withdrawn."""
        size = ANSWER_BYTES + len(data)
        return send(self._fd, ANSWER.pack(size, 0, self.unique), data)

    def refuse(self, number: int) -> None:
        """Answer with an errno, without libfuse, if the request has a reply."""
        if self.opcode not in UNANSWERED:
            answer = ANSWER.pack(ANSWER_BYTES, -number, self.unique)
            send(self._fd, answer)

    @property
    def pid(self) -> int:
        """The thread id of the requesting program."""
        (pid,) = WORD.unpack_from(self.buffer, PID_AT)
        return pid

    @property
    def room(self) -> int:
        """Size limit in bytes of the reply to READDIR and READDIRPLUS."""
        (room,) = WORD.unpack_from(self.buffer, ROOM_AT)
        return room


class CurrentRequest(threading.local):
    """The request of this thread."""

    request: Request
