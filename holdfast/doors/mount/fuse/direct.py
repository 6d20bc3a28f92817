"""What is answered past libfuse: requests that name a handle alone, and those never granted.

libfuse would look nothing up for them, and takes as long again as the core does.
"""

import errno
import logging
from collections.abc import Callable
from functools import partial

from holdfast.doors.mount.fuse import protocol
from holdfast.doors.mount.fuse.dispatch import Direct
from holdfast.doors.mount.fuse.invalidation import KernelInvalidator, Touched
from holdfast.doors.mount.fuse.opening import OpenFiles
from holdfast.doors.mount.fuse.operations import Operations
from holdfast.doors.mount.fuse.protocol import HEADER_BYTES
from holdfast.doors.mount.fuse.request import Request

logger = logging.getLogger(__name__)

CAPABILITY = b"security.capability\0"
SETTLE = 0.1
"""Seconds that a failed save waits at most, so that who sees it fail also sees what holds now."""


def errno_of(error: BaseException, operation: str) -> int:
    """Return the errno that *error*, raised by *operation*, is answered with."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    logger.error("%s failed", operation, exc_info=error)
    return errno.EIO


def answered(operation: str, direct: Direct) -> Direct:
    """Return *direct* for *operation*, so that whatever it raises is answered with an errno."""

    def call(request: Request) -> bool:
        try:
            return direct(request)
        except BaseException as error:  # noqa: BLE001 - the kernel waits for an answer
            request.refuse(errno_of(error, operation))
            return True

    return call


class Requests:
    """Answers from *core*."""

    def __init__(
        self, core: Operations, opening: OpenFiles, *, touched: Touched, notices: KernelInvalidator
    ) -> None:
        self._core, self._opening = core, opening
        self._touched, self._notices = touched, notices
        self._used = opening.nameless.used

    def table(self) -> dict[int, Direct]:
        """Return what answers which opcode."""
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
        """Answer what the kernel asks before each write; libfuse 3.14 cannot switch it off."""
        if not request.buffer.startswith(CAPABILITY, protocol.ATTRIBUTE_AT):
            return False
        request.refuse(errno.ENODATA)
        return True

    def _ioctl(self, request: Request) -> bool:
        """Refuse: Python asks each file that it opens whether it is a terminal."""
        request.refuse(errno.ENOTTY)
        return True

    def _interrupt(self, _request: Request) -> bool:
        """Do nothing: a request is answered within the deadline, interrupted or not."""
        return True
