"""Requests of the FUSE kernel, its nodes, and the invalidation of its caches."""

import ctypes
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from errno import ENODEV, ENOENT
from itertools import count
from struct import Struct
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

HEADER = Struct("=IIQQ8xI")
"""Start of each request: length, opcode, unique id, node id, thread id of the program."""
HEADER_BYTES = 40
UNIQUE, UNIQUE_AT = Struct("=Q"), 8
WORD = Struct("=I")
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
WITHDRAWN = frozenset({ENOENT, ENODEV})
"""Errors of a reply: the request was withdrawn, the connection closed."""


BufferAt = Callable[[int], tuple[Any, Callable[[], object]]]
"""Return libfuse's buffer at an address, and the function that answers its request."""


class Request:
    """The request that a thread read from *fd* into `buffer` and is answering."""

    __slots__ = ("_fd", "_sized", "buffer", "node", "opcode", "pid", "process", "reached", "unique")

    def __init__(self, fd: int, buffer_at: BufferAt) -> None:
        self.buffer = bytearray(REQUEST_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))
        self._sized, self.process = buffer_at(address)
        """`process` answers the request through libfuse."""
        self._fd = fd
        self.opcode = self.unique = self.node = self.pid = 0
        self.reached = False
        """Set when libfuse found a name for its node: `getattr` was called, or `open` worked."""

    def read(self, size: int) -> None:
        """Parse the header of the *size* bytes in the buffer."""
        self._sized.size = size
        _, self.opcode, self.unique, self.node, self.pid = HEADER.unpack_from(self.buffer)

    def refuse(self, number: int) -> None:
        """Answer with an errno, without libfuse, if the request has a reply."""
        if self.opcode in UNANSWERED:
            return
        try:
            os.write(self._fd, ANSWER.pack(ANSWER.size, -number, self.unique))
        except OSError as error:
            if error.errno not in WITHDRAWN:
                logger.exception("cannot answer the kernel")

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
        self.unplaced: set[int] = set()
        """Handles of new files: their nodes are not known yet."""
        self._unlinked: dict[int, OpenFile] = {}

    def opened(self, handle: int, path: str, request: Request) -> None:
        """Record that *request* opened *handle*; a new file's node is not known yet."""
        self._opened[handle] = OpenFile(path, request.pid)
        if request.opcode == OPEN:
            self._nodes[handle] = request.node
        else:
            self.unplaced.add(handle)

    def used(self, handle: int, node: int) -> None:
        """Record that the *unplaced* handle belongs to *node*, as seen in a request."""
        self.unplaced.discard(handle)
        self._nodes[handle] = node

    def released(self, handle: int) -> None:
        """Forget *handle*."""
        self._opened.pop(handle, None)
        self._nodes.pop(handle, None)
        self._unlinked.pop(handle, None)
        self.unplaced.discard(handle)

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
            if handle in self.unplaced and opened.pid == request.pid
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


# A rename takes the name from the node that it replaces. The kernel answers the ESTALE of an open
# by looking the name up again, but only once: the second ESTALE goes to the program.

REOPEN_SECONDS = 0.1
"""Seconds that a rename or removal waits at most for the opens before it."""


class StaleOpens:
    """The threads of programs whose open found no name, until the second open of each.

    An open beside a rename may be one of them, so it is here from its start.
    """

    def __init__(self) -> None:
        self._failed: dict[int, bool] = {}
        """Whether the first open of a thread has failed yet."""
        self._change = threading.Condition()

    def begin(self, pid: int) -> None:
        """Record that the thread *pid* opens a file while names change."""
        with self._change:
            self._failed.setdefault(pid, False)

    def end(self, pid: int, *, found: bool) -> None:
        """Record that an open or create of the thread *pid* has ended."""
        if found and pid not in self._failed:
            return
        with self._change:
            again = self._failed.pop(pid, False)
            if not found and not again:
                self._failed[pid] = True
            self._change.notify_all()

    def settle(self) -> None:
        """Wait until the opens that are here have succeeded or failed twice."""
        if not self._failed:
            return
        with self._change:
            waiting = set(self._failed)
            if not self._change.wait_for(lambda: waiting.isdisjoint(self._failed), REOPEN_SECONDS):
                for pid in waiting:
                    self._failed.pop(pid, None)


# Notices invalidate what the kernel caches.

THREADS = 4
"""A notice waits while a request changes its directory; notices of other directories do not."""
ROOT = 1
"""The kernel's node id of the directory that is mounted."""

Notice = Callable[[], object]


def after(path: str, old: str, new: str) -> str:
    """Return *path* as it is after *old* was renamed to *new*."""
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


class ChangeCounter:
    """Change counter of names and attributes: call it after each change."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.last = 0
        """The number of the last change, which only grows."""

    def __call__(self) -> None:
        """Record that something may have changed."""
        self.last = next(self._numbers)


class Directories:
    """The kernel's node id of each directory in which it has looked up a name.

    libfuse's path interface hides node ids, but a name can only be dropped by its directory's.
    A stale id does no harm: the kernel knows no such name there.
    """

    def __init__(self) -> None:
        self._nodes = {"/": ROOT}
        self._mutex = threading.Lock()

    def learn(self, directory: str, node: int) -> None:
        """Record that *directory* is *node*."""
        self._nodes[directory or "/"] = node

    def node(self, directory: str) -> int | None:
        """Return the node of *directory*, None if the kernel looked up no name in it."""
        return self._nodes.get(directory)

    def moved(self, old: str, new: str) -> None:
        """Move the node ids of *old*, and of all below it, to *new*."""
        with self._mutex:
            for path in [*self._nodes]:
                if (now := after(path, old, new)) != path:
                    self._nodes[now] = self._nodes.pop(path)

    def removed(self, directory: str) -> None:
        """Forget *directory*."""
        self._nodes.pop(directory, None)


class KernelInvalidator:
    """Send notices to the kernel from separate threads, in order for each directory.

    Inside a handler a notice would wait for a lock of the kernel that the request itself holds.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Notice]] = {}
        self._free: deque[str] = deque()
        """The directories with notices that no thread is sending."""
        self._change = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def put(self, directory: str, notice: Notice) -> None:
        """Queue *notice*, which is about *directory* or an entry in it."""
        with self._change:
            if self._closed:
                return
            if directory in self._waiting:
                self._waiting[directory].append(notice)
                return
            self._waiting[directory] = deque((notice,))
            self._free.append(directory)
            if self._idle < len(self._free) and len(self._threads) < THREADS:
                name = f"holdfast-notices-{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._change.notify_all()

    def settle(self, seconds: float) -> bool:
        """Wait at most *seconds* until the queue is empty; return whether it is."""
        with self._change:
            return self._change.wait_for(lambda: not self._waiting, timeout=seconds)

    def close(self, seconds: float) -> bool:
        """Stop sending; return whether all threads ended, within *seconds* each."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        """Send queued notices until closed."""
        while directory := self._taken():
            while notice := self._next(directory):
                try:
                    notice()
                except Exception:
                    logger.exception("a notice to the kernel failed")

    def _taken(self) -> str | None:
        """Wait for a directory with notices and take it; return None once closed."""
        with self._change:
            self._idle += 1
            self._change.wait_for(lambda: self._free or self._closed)
            self._idle -= 1
            return None if self._closed else self._free.popleft()

    def _next(self, directory: str) -> Notice | None:
        """Return the next notice of *directory*; release it and return None if none."""
        with self._change:
            waiting = self._waiting[directory]
            if waiting and not self._closed:
                return waiting.popleft()
            del self._waiting[directory]
            self._change.notify_all()
            return None


class KernelCaches:
    """The `nodes.Kernel` of a FUSE mount: invalidate caches through notices.

    *drop_content* of a path returns False if libfuse does not know the path; *drop_name* takes
    a directory's node and a name in it.
    """

    def __init__(
        self,
        step_aside: Callable[[], None],
        drop_content: Callable[[bytes], bool],
        drop_name: Callable[[int, bytes], object],
        *,
        notices: KernelInvalidator,
        directories: Directories,
        touched: ChangeCounter,
    ) -> None:
        self.step_aside = step_aside
        self._drop_content, self._drop_name = drop_content, drop_name
        self._notices, self._directories, self._touched = notices, directories, touched

    def forget_content(self, path: str) -> None:
        """Invalidate the kernel's data and attributes of *path*."""
        self._touched()
        directory, _, name = path.rpartition("/")
        place = directory or "/"
        self._notices.put(place, lambda: self._send_content(path, place, name))

    def forget_name(self, directory: str, name: str) -> None:
        """Invalidate the kernel's entry *name* in *directory*."""
        self._touched()
        self._notices.put(directory, lambda: self._send_name(directory, name))

    def _send_content(self, path: str, directory: str, name: str) -> None:
        """Invalidate by path, or by name if libfuse may not know the path yet."""
        if not self._drop_content(os.fsencode(path)):
            self._send_name(directory, name)

    def _send_name(self, directory: str, name: str) -> None:
        """Invalidate the name, if the kernel ever looked up a name in *directory*."""
        node = self._directories.node(directory)
        if node is not None and name:
            self._drop_name(node, os.fsencode(name))
