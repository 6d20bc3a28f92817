"""Requests of the FUSE kernel protocol, and the handles of unlinked files."""

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from errno import ENODEV, ENOENT
from struct import Struct
from typing import Any, NamedTuple

from holdfast.doors.mount.fuse.invalidation import after

logger = logging.getLogger(__name__)

HEADER = Struct("=IIQQ")
"""Start of each request: length, opcode, unique id, node id."""
HEADER_BYTES = 40
UNIQUE, UNIQUE_AT = Struct("=Q"), 8
WORD = Struct("=I")
PID_AT = 32
ANSWER = Struct("=IiQ")
"""Start of each reply: length, negative errno, unique id."""

MAX_WRITE = 128 * 1024
REQUEST_BYTES = MAX_WRITE + 4096
"""Buffer size of a request, as in libfuse: the largest write, and a page for headers."""

ROOM_AT = HEADER_BYTES + 16
"""Offset of the size of the reply in READDIR and READDIRPLUS."""
BY_HANDLE = Struct("=IIQ")
"""Start of GETATTR and SETATTR: flags, padding, handle."""
GETATTR_BY_HANDLE, SETATTR_BY_HANDLE = 1 << 0, 1 << 6
"""The flags that mark the handle as valid."""
ENTRY_BYTES, PLUS_ENTRY_BYTES = 24, 152
"""Bytes of an entry in replies to READDIR and READDIRPLUS, without the name."""

LOOKUP, FORGET, GETATTR, SETATTR = 1, 2, 3, 4
MKNOD, MKDIR, UNLINK, RMDIR, RENAME = 8, 9, 10, 11, 12
OPEN, RELEASE, INIT, READDIR, RELEASEDIR = 14, 18, 26, 28, 29
CREATE, INTERRUPT, BATCH_FORGET, READDIRPLUS, RENAME2 = 35, 36, 42, 44, 45

UNANSWERED = frozenset({FORGET, INTERRUPT, BATCH_FORGET})
GONE = frozenset({ENOENT, ENODEV})
"""Errors of a reply: the request was withdrawn, the connection closed."""


BufferAt = Callable[[int], tuple[Any, Callable[[], object]]]
"""Return libfuse's buffer at an address, and the function that answers its request."""


class Request:
    """The request that a thread read from *fd* into `buffer` and is answering."""

    __slots__ = ("_fd", "_sized", "buffer", "node", "opcode", "process", "reached", "unique")

    def __init__(self, fd: int, buffer_at: BufferAt) -> None:
        self.buffer = bytearray(REQUEST_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))
        self._sized, self.process = buffer_at(address)
        """`process` answers the request through libfuse."""
        self._fd = fd
        self.opcode = self.unique = self.node = 0
        self.reached = False
        """Set when libfuse has called `getattr` of the core."""

    def read(self, size: int) -> None:
        """Parse the header of the *size* bytes in the buffer."""
        self._sized.size = size
        _, self.opcode, self.unique, self.node = HEADER.unpack_from(self.buffer)

    def refuse(self, number: int) -> None:
        """Answer with an errno, without libfuse, if the request has a reply."""
        if self.opcode in UNANSWERED:
            return
        try:
            os.write(self._fd, ANSWER.pack(ANSWER.size, -number, self.unique))
        except OSError as error:
            if error.errno not in GONE:
                logger.exception("cannot answer the kernel")

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


# libfuse's path interface finds a node by its name, so that `fstat` of an unlinked file would fail,
# and with it every temporary file that is unlinked before it is used. With a handle it succeeds, so
# the handle of the open file is written into the request.

UNUSED = 1 << 63
"""A bit that no unique id of the kernel has set: the kernel drops a reply with it."""


class OpenFile(NamedTuple):
    """An open file: its path, updated on renames, and the thread that opened it."""

    path: str
    pid: int


class UnlinkedFiles:
    """Open files without a name (unlinked), and the node of each."""

    def __init__(self) -> None:
        self._opened: dict[int, OpenFile] = {}
        self._nodes: dict[int, int] = {}
        self._unplaced: set[int] = set()
        self._unlinked: dict[int, OpenFile] = {}

    def opened(self, handle: int, path: str, request: Request) -> None:
        """Record that *request* opened *handle*; a new file's node is not known yet."""
        self._opened[handle] = OpenFile(path, request.pid)
        if request.opcode == OPEN:
            self._nodes[handle] = request.node
        else:
            self._unplaced.add(handle)

    def used(self, handle: int, node: int) -> None:
        """Record that *handle* belongs to *node*, as seen in a read or write request."""
        if handle in self._unplaced:
            self._unplaced.discard(handle)
            self._nodes[handle] = node

    def released(self, handle: int) -> None:
        """Forget *handle*."""
        self._opened.pop(handle, None)
        self._nodes.pop(handle, None)
        self._unlinked.pop(handle, None)
        self._unplaced.discard(handle)

    def removed(self, path: str) -> None:
        """Record that *path* was unlinked."""
        for handle, opened in [*self._opened.items()]:
            if opened.path == path:
                self._unlinked[handle] = opened
                del self._opened[handle]

    def moved(self, old: str, new: str) -> None:
        """Record that *old* was renamed to *new*."""
        self.removed(new)
        for handle, opened in [*self._opened.items()]:
            self._opened[handle] = opened._replace(path=after(opened.path, old, new))

    def give_handle(self, request: Request) -> None:
        """Add its handle to a GETATTR or SETATTR of an unlinked file."""
        if not self._unlinked:
            return
        handle = self._handle(request.node)
        if request.opcode == SETATTR:
            give(handle, request, SETATTR_BY_HANDLE)
        else:
            give(handle or self._suspect(request), request, GETATTR_BY_HANDLE)

    def _handle(self, node: int) -> int | None:
        """Return a handle of *node* if it was unlinked, else None."""
        return next((each for each in self._unlinked if self._nodes.get(each) == node), None)

    def _suspect(self, request: Request) -> int | None:
        """Return the handle of a file that was created, unlinked and not used since.

        Its node is unknown. So libfuse processes the request first, with a reply that the kernel
        drops: a node that it finds has a name.
        """
        mine = [
            handle
            for handle, opened in self._unlinked.items()
            if handle in self._unplaced and opened.pid == request.pid
        ]
        return None if not mine or found(request) else mine[-1]


def give(handle: int | None, request: Request, flag: int) -> None:
    """Write *handle*, if not None, into *request*, unless that already has one."""
    flags, _, _ = BY_HANDLE.unpack_from(request.buffer, HEADER_BYTES)
    if handle is not None and not flags & flag:
        BY_HANDLE.pack_into(request.buffer, HEADER_BYTES, flags | flag, 0, handle)


def found(request: Request) -> bool:
    """Return whether libfuse finds a name for the node of a GETATTR *request*."""
    request.reached = False
    unique = UNIQUE
    unique.pack_into(request.buffer, UNIQUE_AT, request.unique | UNUSED)
    request.process()
    unique.pack_into(request.buffer, UNIQUE_AT, request.unique)
    return request.reached
