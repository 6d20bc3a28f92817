"""Opening and closing files past libfuse, once it has said which path a node is at.

libfuse counts who has a file open only to hide files that are unlinked, which is switched off.
"""

import os

from holdfast.doors.mount.fuse import protocol
from holdfast.doors.mount.fuse.handles import Nameless
from holdfast.doors.mount.fuse.invalidation import CachedPages, Touched
from holdfast.doors.mount.fuse.kernel import Operations
from holdfast.doors.mount.fuse.protocol import HEADER_BYTES, Request

NODES = 10_000
"""Nodes whose path is remembered: past them libfuse is asked again."""


class OpenFiles:
    """The files that are opened, and the paths of those that were."""

    def __init__(self, core: Operations, touched: Touched) -> None:
        self._core, self._touched = core, touched
        self.nameless = Nameless()
        self._pages = CachedPages()
        self._paths: dict[int, str] = {}
        self._nodes: dict[str, int] = {}

    def open(self, request: Request) -> bool:
        """Answer OPEN, if the path of its node is known."""
        path = self._paths.get(request.node)
        if path is None:
            return False
        (flags,) = protocol.WORD.unpack_from(request.buffer, HEADER_BYTES)
        try:
            handle, keep = self.opened(path, flags, request)
        except FileNotFoundError:
            return False  # it is just being renamed, perhaps: libfuse knows
        answer = protocol.KEEP_CACHE if keep else 0
        if flags & os.O_ACCMODE == os.O_RDONLY:
            answer |= protocol.NO_FLUSH
        if not request.answer(protocol.OPENED.pack(handle, answer, 0)):
            self.closed(handle)
        return True

    def opened(self, path: str, flags: int, request: Request) -> tuple[int, bool]:
        """Open the file; return its handle, and whether the kernel's pages are of what it is."""
        handle = self._core.open(path, flags)
        self.nameless.opened(handle, path, request)
        if flags & os.O_TRUNC:
            self._touched()
        try:
            now = self._core.getattr(path, handle)
        except OSError:
            return handle, False  # it is open all the same
        return handle, self._pages.are_of(request.node, now)

    def created(self, path: str, flags: int, request: Request) -> int:
        """Make the file, and return its handle."""
        handle = self._core.create(path, flags)
        self.nameless.opened(handle, path, request)
        self._touched()
        return handle

    def release(self, request: Request) -> bool:
        """Answer RELEASE."""
        (handle,) = protocol.HANDLE.unpack_from(request.buffer, HEADER_BYTES)
        self.closed(handle)
        request.answer()
        return True

    def closed(self, handle: int) -> None:
        """Give *handle* back."""
        self.nameless.released(handle)
        self._core.release(handle)

    def learn(self, node: int, path: str) -> None:
        """Remember that *node* is at *path*."""
        if len(self._paths) >= NODES:
            self._forget()
        self._paths[node], self._nodes[path] = path, node

    def removed(self, path: str) -> None:
        """Note that *path* is no name any more."""
        self.nameless.removed(path)
        self._paths.pop(self._nodes.pop(path, 0), None)

    def moved(self, old: str, new: str) -> None:
        """Note that *new* is what was *old*; libfuse knows what all below is called now."""
        self.nameless.moved(old, new)
        self._forget()

    def _forget(self) -> None:
        """Ask libfuse again for every path."""
        self._paths.clear()
        self._nodes.clear()
