"""Handles of open files, unlinked files and listings.

libfuse's path interface finds a node by its name, so that `fstat` of an unlinked file would fail,
and with it every temporary file that is unlinked before it is used. With a handle it succeeds, so
the handle of the open file is written into the request.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.doors.mount.fuse import protocol
from holdfast.doors.mount.fuse.invalidation import CachedPages, Touched, after
from holdfast.doors.mount.fuse.kernel import DirectoryEntry, Operations
from holdfast.doors.mount.fuse.protocol import BY_HANDLE, HEADER_BYTES, Request

NOBODY = 1 << 63
"""A bit that no unique id of the kernel has set: the kernel drops a reply with it."""


class OpenFile(NamedTuple):
    """An open file: its path, updated on renames, and the thread that opened it."""

    path: str
    pid: int


class Nameless:
    """Open files without a name (unlinked), and the node of each."""

    def __init__(self) -> None:
        self._opened: dict[int, OpenFile] = {}
        self._nodes: dict[int, int] = {}
        self._unplaced: set[int] = set()
        self._lost: dict[int, OpenFile] = {}

    def opened(self, handle: int, path: str, request: Request) -> None:
        """Record that *request* opened *handle*; a new file's node is not known yet."""
        self._opened[handle] = OpenFile(path, request.pid)
        if request.opcode == protocol.OPEN:
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
        self._lost.pop(handle, None)
        self._unplaced.discard(handle)

    def removed(self, path: str) -> None:
        """Record that *path* was unlinked."""
        for handle, opened in [*self._opened.items()]:
            if opened.path == path:
                self._lost[handle] = opened
                del self._opened[handle]

    def moved(self, old: str, new: str) -> None:
        """Record that *old* was renamed to *new*."""
        self.removed(new)
        for handle, opened in [*self._opened.items()]:
            self._opened[handle] = opened._replace(path=after(opened.path, old, new))

    def getattr(self, request: Request) -> bool:
        """Add its handle to a GETATTR of an unlinked file."""
        if self._lost:
            handle = self._handle(request.node) or self._suspect(request)
            give(handle, request, protocol.GETATTR_BY_HANDLE)
        return False

    def setattr(self, request: Request) -> bool:
        """Add its handle to a SETATTR of an unlinked file."""
        if self._lost:
            give(self._handle(request.node), request, protocol.SETATTR_BY_HANDLE)
        return False

    def _handle(self, node: int) -> int | None:
        """Return a handle of *node* if it was unlinked, else None."""
        return next((each for each in self._lost if self._nodes.get(each) == node), None)

    def _suspect(self, request: Request) -> int | None:
        """Return the handle of a file that was created, unlinked and not used since.

        Its node is unknown. So libfuse processes the request first, with a reply that the kernel
        drops: a node that it finds has a name.
        """
        mine = [
            handle
            for handle, opened in self._lost.items()
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
    unique = protocol.UNIQUE
    unique.pack_into(request.buffer, protocol.UNIQUE_AT, request.unique | NOBODY)
    request.process()
    unique.pack_into(request.buffer, protocol.UNIQUE_AT, request.unique)
    return request.reached


# libfuse counts open handles only to hide unlinked files, which is switched off.

NODES = 10_000
"""Nodes with a cached path; over this limit the cache is cleared and libfuse resolves them."""


class OpenFiles:
    """Open and release files directly, with a cache of the paths of nodes."""

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
            return False  # perhaps a rename is in progress: libfuse knows the path
        answer = protocol.KEEP_CACHE if keep else 0
        if flags & os.O_ACCMODE == os.O_RDONLY:
            answer |= protocol.NO_FLUSH
        if not request.answer(protocol.OPENED.pack(handle, answer, 0)):
            self.closed(handle)
        return True

    def opened(self, path: str, flags: int, request: Request) -> tuple[int, bool]:
        """Open the file; return its handle, and whether the kernel's pages are current."""
        handle = self._core.open(path, flags)
        self.nameless.opened(handle, path, request)
        if flags & os.O_TRUNC:
            self._touched()
        try:
            now = self._core.getattr(path, handle)
        except OSError:
            return handle, False  # the file is open nevertheless
        return handle, self._pages.are_of(request.node, now)

    def created(self, path: str, flags: int, request: Request) -> int:
        """Create the file and return its handle."""
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
        """Release *handle*."""
        self.nameless.released(handle)
        self._core.release(handle)

    def learn(self, node: int, path: str) -> None:
        """Cache *path* as the path of *node*."""
        if len(self._paths) >= NODES:
            self._forget()
        self._paths[node], self._nodes[path] = path, node

    def removed(self, path: str) -> None:
        """Record that *path* was unlinked."""
        self.nameless.removed(path)
        self._paths.pop(self._nodes.pop(path, 0), None)

    def moved(self, old: str, new: str) -> None:
        """Record that *old* was renamed to *new*; clear the cache, as paths below changed."""
        self.nameless.moved(old, new)
        self._forget()

    def _forget(self) -> None:
        """Clear the cache of paths."""
        self._paths.clear()
        self._nodes.clear()


class Listing:
    """An open directory: its names at the first read, with their current entries."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._names: list[str] = []
        self._entries: Sequence[DirectoryEntry | None] = ()
        self._as_of = -1

    def entries(
        self, core: Operations, touched: Touched, *, anew: bool
    ) -> Sequence[DirectoryEntry | None]:
        """Return the entries in the order of the first read; None for a removed one.

        *anew* starts a new read.
        """
        if not anew and self._as_of == touched.last:
            return self._entries
        self._as_of = touched.last
        present = core.readdir(self.path)
        if anew:
            self._names = [entry.name for entry in present]
            self._entries = present
        else:
            known = {entry.name: entry for entry in present}
            self._entries = [known.get(name) for name in self._names]
        return self._entries
