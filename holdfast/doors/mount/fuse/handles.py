"""Handles of open files, unlinked files and listings.

libfuse's path interface finds a node by its name, so that `fstat` of an unlinked file would fail,
and with it every temporary file that is unlinked before it is used. By a handle it finds it: the
request is given that of the open file.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.doors.mount.fuse import protocol
from holdfast.doors.mount.fuse.invalidation import CachedPages, Touched, after
from holdfast.doors.mount.fuse.kernel import DirectoryEntry, Operations
from holdfast.doors.mount.fuse.protocol import BY_HANDLE, HEADER_BYTES, Request

NOBODY = 1 << 63
"""A bit that no request of the kernel has in its unique id: it drops the answer."""


class OpenFile(NamedTuple):
    """An open file: where it was opened or has been renamed to, and by whom."""

    path: str
    pid: int


class Nameless:
    """Which open files have lost their name, and which node each of them is."""

    def __init__(self) -> None:
        self._opened: dict[int, OpenFile] = {}
        self._nodes: dict[int, int] = {}
        self._unplaced: set[int] = set()
        self._lost: dict[int, OpenFile] = {}

    def opened(self, handle: int, path: str, request: Request) -> None:
        """Note that *handle* was opened by *request*; of a new file the node is not known yet."""
        self._opened[handle] = OpenFile(path, request.pid)
        if request.opcode == protocol.OPEN:
            self._nodes[handle] = request.node
        else:
            self._unplaced.add(handle)

    def used(self, handle: int, node: int) -> None:
        """Note that *handle* is of *node*, as reading and writing tell."""
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
        """Note that *path* is no name any more."""
        for handle, opened in [*self._opened.items()]:
            if opened.path == path:
                self._lost[handle] = opened
                del self._opened[handle]

    def moved(self, old: str, new: str) -> None:
        """Note that *new* is what was *old*."""
        self.removed(new)
        for handle, opened in [*self._opened.items()]:
            self._opened[handle] = opened._replace(path=after(opened.path, old, new))

    def getattr(self, request: Request) -> bool:
        """Have a GETATTR of a file that lost its name answered by its handle."""
        if self._lost:
            handle = self._handle(request.node) or self._suspect(request)
            give(handle, request, protocol.GETATTR_BY_HANDLE)
        return False

    def setattr(self, request: Request) -> bool:
        """Have a SETATTR of a file that lost its name answered by its handle."""
        if self._lost:
            give(self._handle(request.node), request, protocol.SETATTR_BY_HANDLE)
        return False

    def _handle(self, node: int) -> int | None:
        """Return a handle of *node*, if that has lost its name."""
        return next((each for each in self._lost if self._nodes.get(each) == node), None)

    def _suspect(self, request: Request) -> int | None:
        """Return the handle of a file that was made, lost its name, and was not used since.

        Which node it is nobody has said. So libfuse is asked first, with an answer for nobody:
        what it finds has a name.
        """
        mine = [
            handle
            for handle, opened in self._lost.items()
            if handle in self._unplaced and opened.pid == request.pid
        ]
        return None if not mine or found(request) else mine[-1]


def give(handle: int | None, request: Request, flag: int) -> None:
    """Write *handle* into *request*, unless there is none, or it has one."""
    flags, _, _ = BY_HANDLE.unpack_from(request.buffer, HEADER_BYTES)
    if handle is not None and not flags & flag:
        BY_HANDLE.pack_into(request.buffer, HEADER_BYTES, flags | flag, 0, handle)


def found(request: Request) -> bool:
    """Return whether libfuse finds a name for what *request* asks the attributes of."""
    request.reached = False
    unique = protocol.UNIQUE
    unique.pack_into(request.buffer, protocol.UNIQUE_AT, request.unique | NOBODY)
    request.process()
    unique.pack_into(request.buffer, protocol.UNIQUE_AT, request.unique)
    return request.reached


# libfuse counts who has a file open only to hide files that are unlinked, which is switched off.

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


class Listing:
    """An open directory: the names it had when reading began, with what they are now."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._names: list[str] = []
        self._entries: Sequence[DirectoryEntry | None] = ()
        self._as_of = -1

    def entries(
        self, core: Operations, touched: Touched, *, anew: bool
    ) -> Sequence[DirectoryEntry | None]:
        """Return the entries, at the places they have since reading began; None: gone."""
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
