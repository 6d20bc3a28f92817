"""Leader and followers: up to sixteen threads on one FUSE connection, one of which receives.

Who holds the token receives a request, answers it and goes on, so work that waits for nothing
runs on one thread without switches. A handler that is about to wait gives the token away
(`step_aside`), answers from its own thread, and waits in line afterwards.
"""

import ctypes
import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from threading import get_ident

logger = logging.getLogger(__name__)

THREADS = 16
MAX_WRITE = 128 * 1024
BUFFER_BYTES = MAX_WRITE + 4096
"""What libfuse itself keeps for a request: the largest write and a page for its headers."""

# How requests and answers begin, and the requests that the loop tells apart: `fuse_kernel.h`.
HEADER = Struct("=IIQQ")  # length, opcode, unique id, node id
HEADER_BYTES = 40
ANSWER = Struct("=IiQ")  # length, negative errno, unique id
SIZE = Struct("=I")
SIZE_AT = HEADER_BYTES + 16  # in READDIR and READDIRPLUS
ATTRIBUTE_AT = HEADER_BYTES + 8  # in GETXATTR
CAPABILITY = b"security.capability\0"

LOOKUP, FORGET, MKNOD, MKDIR, UNLINK, RMDIR, RENAME = 1, 2, 8, 9, 10, 11, 12
READ, WRITE, RELEASE, FSYNC, GETXATTR, FLUSH, INIT = 15, 16, 18, 20, 22, 25, 26
READDIR, RELEASEDIR, FSYNCDIR, CREATE, INTERRUPT = 28, 29, 30, 35, 36
BATCH_FORGET, READDIRPLUS, RENAME2 = 42, 44, 45

UNANSWERED = frozenset({FORGET, INTERRUPT, BATCH_FORGET})
EXCLUSIVE = frozenset({UNLINK, RMDIR, RENAME, RENAME2})
"""Requests for which libfuse locks a name: others that touch it wait inside libfuse."""
NAMELESS = UNANSWERED | {READ, WRITE, RELEASE, FSYNC, FLUSH, READDIR, READDIRPLUS, RELEASEDIR}
"""Requests for which libfuse locks no name, so that they never wait for one."""
MARKED = EXCLUSIVE | {GETXATTR, INIT, READDIR, READDIRPLUS}
"""Requests that need more than to be passed on."""


class Present(threading.local):
    """The request that this thread is answering."""

    opcode: int = 0
    node: int = 0
    """The node it is about: the parent's for LOOKUP, CREATE and MKDIR."""
    room: int = 0
    """How many bytes the answer of READDIR and READDIRPLUS may have."""


Process = Callable[[int], object]
"""Answers the request of so many bytes in the buffer it was made for."""


class Loop:
    """Receives requests from *fd*; *process_at* an address gives what answers those read there."""

    def __init__(self, fd: int, process_at: Callable[[int], Process], present: Present) -> None:
        self._fd, self._process_at, self._present = fd, process_at, present
        self._token = threading.Lock()
        self._leader = 0
        self._mutex = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._in_line = 0
        self._exclusive = 0
        self._closed = False
        self.begun = threading.Event()
        """Set once the kernel's greeting was answered: from now on `ls` works."""
        self.ended = threading.Event()
        """Set once the kernel has closed the connection."""

    def start(self) -> None:
        """Begin to receive."""
        with self._mutex:
            self._add_thread()

    def step_aside(self) -> None:
        """Let another thread receive: the present one is about to wait. Harmless elsewhere."""
        if self._leader != get_ident():
            return
        with self._mutex:
            if not self._in_line and len(self._threads) < THREADS:
                self._add_thread()
        self._leader = 0
        self._token.release()

    def close(self) -> None:
        """Answer every further request that the connection is gone, until the kernel closes it."""
        self._closed = True

    def join(self, seconds: float) -> bool:
        """Wait at most *seconds*; return whether all threads have ended."""
        until = time.monotonic() + seconds
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _add_thread(self) -> None:
        """Start one more thread, which waits in line at once."""
        self._in_line += 1
        name = f"holdfast-mount-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        """Receive and answer until the kernel closes the connection."""
        buffer = bytearray(BUFFER_BYTES)
        process = self._process_at(ctypes.addressof(ctypes.c_char.from_buffer(buffer)))
        me = get_ident()
        while self._took_token(me):
            while self._leader == me:
                try:
                    size = os.readv(self._fd, (buffer,))
                except OSError as error:
                    self._failed(error)
                else:
                    self._answer(buffer, size, process)
            with self._mutex:
                self._in_line += 1

    def _took_token(self, me: int) -> bool:
        """Wait in line for the token; return False once there is nothing to receive any more."""
        self._token.acquire()
        with self._mutex:
            self._in_line -= 1
        if self.ended.is_set():
            self._token.release()
            return False
        self._leader = me
        return True

    def _failed(self, error: OSError) -> None:
        """Go on if the request was only withdrawn before it was read; else the end has come."""
        if error.errno in (errno.ENOENT, errno.EAGAIN):
            return
        if error.errno != errno.ENODEV:
            logger.error("cannot receive from the kernel: %s", error)
        self.ended.set()
        self._leader = 0
        self._token.release()

    def _answer(self, buffer: bytearray, size: int, process: Process) -> None:
        """Answer the request in *buffer*."""
        _, opcode, unique, node = HEADER.unpack_from(buffer)
        present = self._present
        present.opcode = opcode
        present.node = node
        if self._closed:
            self._refuse(opcode, unique, errno.ENOTCONN)
        elif opcode in MARKED:
            self._answer_marked(buffer, size, process)
        elif self._exclusive and opcode not in NAMELESS:
            self.step_aside()
            process(size)
        else:
            process(size)

    def _answer_marked(self, buffer: bytearray, size: int, process: Process) -> None:
        """Answer one of `MARKED`."""
        _, opcode, unique, _ = HEADER.unpack_from(buffer)
        if opcode == GETXATTR and buffer.startswith(CAPABILITY, ATTRIBUTE_AT):
            # The kernel asks before each write: not even libfuse is troubled with it.
            self._refuse(opcode, unique, errno.ENODATA)
        elif opcode in EXCLUSIVE:
            self._answer_exclusive(size, process)
        else:
            (self._present.room,) = SIZE.unpack_from(buffer, SIZE_AT)
            process(size)
            if opcode == INIT:
                self.begun.set()

    def _answer_exclusive(self, size: int, process: Process) -> None:
        """Answer a request that may wait for a name, and for which others may."""
        with self._mutex:
            self._exclusive += 1
        try:
            self.step_aside()
            process(size)
        finally:
            with self._mutex:
                self._exclusive -= 1

    def _refuse(self, opcode: int, unique: int, number: int) -> None:
        """Answer with an errno, past libfuse."""
        if opcode not in UNANSWERED:
            with suppress(OSError):  # the request was withdrawn, or the connection closed
                os.write(self._fd, ANSWER.pack(ANSWER.size, -number, unique))
