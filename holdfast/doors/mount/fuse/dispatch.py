"""Receive kernel requests and dispatch them to libfuse.

libfuse's own loop hides what its path interface leaves out: the node of a request, and its handle.
The thread that holds the token receives a request, answers it and continues, so work without waits
runs on one thread without switches. A handler that is about to wait releases the token
(`step_aside`), answers from its own thread, and queues for the token afterwards.
"""

import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from threading import get_ident

from holdfast.doors.mount.fuse import kernel as protocol
from holdfast.doors.mount.fuse.kernel import (
    BufferAt,
    CurrentRequest,
    Request,
    StaleOpens,
    UnlinkedFiles,
)

logger = logging.getLogger(__name__)

THREADS = 16

EXCLUSIVE = frozenset({protocol.UNLINK, protocol.RMDIR, protocol.RENAME, protocol.RENAME2})
"""Requests for which libfuse locks a name: other requests for it wait inside libfuse."""
NAMELESS = frozenset(
    {
        protocol.FORGET,
        protocol.BATCH_FORGET,
        protocol.RELEASE,
        protocol.READDIR,
        protocol.READDIRPLUS,
        protocol.RELEASEDIR,
    }
)
"""Requests for which libfuse locks no name: they never wait for such a lock."""


def _ignore() -> None:
    """Do nothing."""


class FuseDispatcher:
    """Receive requests from *fd* and answer them through libfuse.

    *buffer_at* returns libfuse's buffer at an address, and what answers the request in it.
    """

    def __init__(
        self,
        fd: int,
        buffer_at: BufferAt,
        present: CurrentRequest,
        unlinked: UnlinkedFiles,
    ) -> None:
        self._fd, self._buffer_at, self._present = fd, buffer_at, present
        self._unlinked, self._stale = unlinked, StaleOpens()
        self._token = threading.Lock()
        self._leader = 0
        self._mutex = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._in_line = 0
        self._exclusive = 0
        self._closed = False
        self._on_end: Callable[[], None] = _ignore
        self.begun = threading.Event()
        """Set once the kernel's INIT request was answered: from then on `ls` works."""
        self.ended = threading.Event()
        """Set once the kernel has closed the connection."""

    def start(self, *, ended: Callable[[], None]) -> None:
        """Start receiving; *ended* is called once the kernel has closed the connection."""
        self._on_end = ended
        with self._mutex:
            self._add_thread()

    def step_aside(self) -> None:
        """Let another thread receive, as this one is about to wait.

        On a thread without the token this does nothing.
        """
        if self._leader != get_ident():
            return
        with self._mutex:
            if not self._in_line and len(self._threads) < THREADS:
                self._add_thread()
        self._leader = 0
        self._token.release()

    def close(self) -> None:
        """Answer all further requests with ENOTCONN."""
        self._closed = True

    def join(self, seconds: float) -> bool:
        """Wait at most *seconds*; return whether all threads have ended."""
        until = time.monotonic() + seconds
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _add_thread(self) -> None:
        """Start one more thread, which queues for the token at once."""
        self._in_line += 1
        name = f"holdfast-mount-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        """Receive and answer until the kernel closes the connection."""
        request = self._present.request = Request(self._fd, self._buffer_at)
        into = (request.buffer,)
        me = get_ident()
        while self._took_token(me):
            while self._leader == me:
                try:
                    size = os.readv(self._fd, into)
                except OSError as error:
                    self._failed(error)
                    continue
                try:
                    request.read(size)
                    self._answer(request)
                except Exception:
                    logger.exception("a request could not be answered")
                    request.refuse(errno.EIO)
            with self._mutex:
                self._in_line += 1

    def _took_token(self, me: int) -> bool:
        """Wait for the token; return False once the connection has ended."""
        self._token.acquire()
        with self._mutex:
            self._in_line -= 1
        if self.ended.is_set():
            self._token.release()
            return False
        self._leader = me
        return True

    def _failed(self, error: OSError) -> None:
        """Continue if the request was withdrawn before it was read; else end."""
        if error.errno in (errno.ENOENT, errno.EAGAIN):
            return
        if error.errno not in (errno.ENODEV, errno.ECONNABORTED):
            logger.error("cannot receive from the kernel: %s", error)
        self.ended.set()
        self._leader = 0
        self._token.release()
        self._on_end()

    def _answer(self, request: Request) -> None:
        """Answer *request* through libfuse, but for INTERRUPT: all end by the deadline."""
        opcode = request.opcode
        if self._closed:
            request.refuse(errno.ENOTCONN)
            return
        if opcode == protocol.INTERRUPT:
            return
        if opcode in (protocol.GETATTR, protocol.SETATTR):
            self._unlinked.give_handle(request)
        if opcode in EXCLUSIVE:
            self._answer_exclusive(request)
            return
        if self._exclusive and opcode not in NAMELESS:
            if opcode == protocol.OPEN:
                self._stale.begin(request.pid)
            self.step_aside()
        request.reached = False
        request.process()
        if opcode in (protocol.OPEN, protocol.CREATE):
            self._stale.end(request.pid, found=request.reached or opcode == protocol.CREATE)
        elif opcode == protocol.INIT:
            self.begun.set()

    def _answer_exclusive(self, request: Request) -> None:
        """Answer a request that locks names, on a thread without the token."""
        with self._mutex:
            self._exclusive += 1
        try:
            self.step_aside()
            self._stale.settle()
            request.process()
        finally:
            with self._mutex:
                self._exclusive -= 1
