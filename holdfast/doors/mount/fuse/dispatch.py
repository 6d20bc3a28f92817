"""Receive kernel requests and dispatch them, with fast paths.

The thread that holds the token receives a request, answers it and continues, so work without waits
runs on one thread without switches. A handler that is about to wait releases the token
(`step_aside`), answers from its own thread, and queues for the token afterwards.
"""

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident

from holdfast.doors.mount.fuse import protocol
from holdfast.doors.mount.fuse.handles import OpenFiles
from holdfast.doors.mount.fuse.invalidation import KernelInvalidator, Touched
from holdfast.doors.mount.fuse.kernel import Operations
from holdfast.doors.mount.fuse.protocol import HEADER_BYTES, CurrentRequest, Process, Request

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


Direct = Callable[[Request], bool]
"""Answer a request without libfuse, or prepare it for libfuse and return False."""


def _ignore() -> None:
    """Do nothing."""


class FuseDispatcher:
    """Receive requests from *fd* and answer them, by *direct* or through libfuse.

    *direct* has handlers by opcode. *process_at* returns, for the address of a buffer, the
    function that answers requests in it.
    """

    def __init__(
        self,
        fd: int,
        process_at: Callable[[int], Process],
        present: CurrentRequest,
        direct: Mapping[int, Direct],
    ) -> None:
        self._fd, self._process_at, self._present = fd, process_at, present
        self._direct = direct
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
        request = self._present.request = Request(self._fd, self._process_at)
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
        """Answer *request*, directly or through libfuse."""
        opcode = request.opcode
        if self._closed:
            request.refuse(errno.ENOTCONN)
            return
        direct = self._direct.get(opcode)
        if direct is not None and direct(request):
            return
        if opcode in EXCLUSIVE:
            self._answer_exclusive(request)
            return
        if self._exclusive and opcode not in NAMELESS:
            self.step_aside()
        request.process()
        if opcode == protocol.INIT:
            self.begun.set()

    def _answer_exclusive(self, request: Request) -> None:
        """Answer a request that locks names, on a thread without the token."""
        with self._mutex:
            self._exclusive += 1
        try:
            self.step_aside()
            request.process()
        finally:
            with self._mutex:
                self._exclusive -= 1


# These requests need no look-up by libfuse, which would take as long again as the core does.

CAPABILITY = b"security.capability\0"
SETTLE = 0.1
"""Seconds that a failed save waits at most for its notices to reach the kernel.

A program that sees the save fail then also sees the current content.
"""


def errno_of(error: BaseException, operation: str) -> int:
    """Return the errno of *error*; log it and return EIO if it has none."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    logger.error("%s failed", operation, exc_info=error)
    return errno.EIO


def answered(operation: str, direct: Direct) -> Direct:
    """Wrap *direct* for *operation* so that any exception is answered with an errno."""

    def call(request: Request) -> bool:
        try:
            return direct(request)
        except BaseException as error:  # noqa: BLE001 - the kernel waits for a reply
            request.refuse(errno_of(error, operation))
            return True

    return call


class Requests:
    """Answer requests directly from *core*, without libfuse."""

    def __init__(
        self, core: Operations, opening: OpenFiles, *, touched: Touched, notices: KernelInvalidator
    ) -> None:
        self._core, self._opening = core, opening
        self._touched, self._notices = touched, notices
        self._used = opening.nameless.used

    def table(self) -> dict[int, Direct]:
        """Return the handlers by opcode."""
        return {
            protocol.OPEN: answered("open", self._opening.open),
            protocol.READ: answered("read", self._read),
            protocol.WRITE: answered("write", self._write),
            protocol.FLUSH: answered("flush", partial(self._save, self._core.flush)),
            protocol.FSYNC: answered("fsync", partial(self._save, self._core.fsync)),
            protocol.RELEASE: answered("release", self._opening.release),
            protocol.GETATTR: answered("getattr", self._opening.nameless.getattr),
            protocol.SETATTR: answered("setattr", self._opening.nameless.setattr),
            protocol.GETXATTR: answered("getxattr", self._getxattr),
            protocol.IOCTL: answered("ioctl", self._ioctl),
            protocol.INTERRUPT: answered("interrupt", self._interrupt),
        }

    def _read(self, request: Request) -> bool:
        handle, offset, size = protocol.PIECE.unpack_from(request.buffer, HEADER_BYTES)
        self._used(handle, request.node)
        request.answer(self._core.read(handle, size, offset))
        return True

    def _write(self, request: Request) -> bool:
        handle, offset, size = protocol.PIECE.unpack_from(request.buffer, HEADER_BYTES)
        self._used(handle, request.node)
        with memoryview(request.buffer) as view:
            data = bytes(view[protocol.WRITTEN_AT : protocol.WRITTEN_AT + size])
        try:
            wrote = self._core.write(handle, data, offset)
        finally:
            self._touched()
        request.answer(protocol.WROTE.pack(wrote, 0))
        return True

    def _save(self, save: Callable[[int], None], request: Request) -> bool:
        (handle,) = protocol.HANDLE.unpack_from(request.buffer, HEADER_BYTES)
        self._used(handle, request.node)
        try:
            save(handle)
        except BaseException:
            self._core.kernel.step_aside()
            self._notices.settle(SETTLE)
            raise
        finally:
            self._touched()
        request.answer()
        return True

    def _getxattr(self, request: Request) -> bool:
        """Answer ENODATA to `security.capability`, requested before each write.

        libfuse 3.14 cannot switch that request off.
        """
        if not request.buffer.startswith(CAPABILITY, protocol.ATTRIBUTE_AT):
            return False
        request.refuse(errno.ENODATA)
        return True

    def _ioctl(self, request: Request) -> bool:
        """Answer ENOTTY: Python checks each file that it opens for a terminal."""
        request.refuse(errno.ENOTTY)
        return True

    def _interrupt(self, _request: Request) -> bool:
        """Do nothing: every request is answered within the deadline."""
        return True
