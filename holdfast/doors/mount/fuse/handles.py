"""Open files that lost their name in this mount: the kernel asks for them, libfuse has lost them.

libfuse's path interface finds a node by its name, so that `fstat` of an unlinked file would fail,
and with it every temporary file that is unlinked before it is used. By a handle it finds it: the
request is given that of the open file.
"""

from typing import NamedTuple

from holdfast.doors.mount.fuse import protocol
from holdfast.doors.mount.fuse.invalidation import after
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
