"""Binding to libfuse, through mfusepy.

Only mfusepy's descriptions of libfuse's structures are used. Its class `FUSE` decodes names
strictly, drops rename's flags, answers `readdir` without offsets, makes EINVAL of exceptions it
does not know, and replaces signal handlers.
"""

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EINVAL, EIO, ENODATA, ERANGE, ESTALE
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.doors.mount.filesystem.filesystem import StoreFilesystem
from holdfast.doors.mount.filesystem.nodes import Attributes, DirectoryEntry
from holdfast.doors.mount.fuse import kernel as protocol
from holdfast.doors.mount.fuse.dispatch import FuseDispatcher
from holdfast.doors.mount.fuse.kernel import (
    ChangeCounter,
    CurrentRequest,
    Directories,
    KernelCaches,
    KernelInvalidator,
    UnlinkedFiles,
    after,
)
from holdfast.doors.mount.fuse.libfuse import FuseSession, MountFailed, bindings, packing
from holdfast.doors.mount.process.system import at, source_of
from holdfast.doors.mount.process.unmount import detach

logger = logging.getLogger(__name__)

REMEMBERED = 60.0
"""Seconds for which the kernel caches attributes and names, unless they are invalidated."""
NOTICES_SINCE = 12
"""First minor version of the protocol with invalidation notices."""
LINGER = 1.0
"""Seconds that open handles have after a stop, and threads after the end."""
CAPABILITY = b"security.capability"
"""Requested before each write; libfuse 3.14 cannot switch that off."""
SETTLE = 0.1
"""Seconds that a failed save waits at most for its notices to reach the kernel.

A program that sees the save fail then also sees the current content.
"""
PAGES = 10_000
"""Nodes with recorded content; over this limit all are dropped, which costs a read each."""
OPTIONS = ("subtype=holdfast", "nosuid", "nodev")
FOR_OTHERS = ("allow_other", "default_permissions")

# Capabilities of the kernel, from `fuse_common.h`. Locks are held by the kernel itself; reading
# requests through a pipe costs one more call.
POSIX_LOCKS, SPLICE_READ, FLOCK_LOCKS = 1 << 1, 1 << 9, 1 << 10
READDIRPLUS, READDIRPLUS_AUTO = 1 << 13, 1 << 14

NAMING = frozenset({protocol.LOOKUP, protocol.CREATE, protocol.MKDIR})
"""Requests about a name in the directory that is their node."""
WITH_ATTRIBUTES = 2
"""FUSE_FILL_DIR_PLUS: an entry comes with its attributes."""
BLOCK = 4096
SECTOR = 512


def text(path: bytes | None) -> str:
    """Decode *path* for the core, which refuses bytes that are not UTF-8."""
    return path.decode("utf-8", "surrogateescape") if path else ""


class Listing:
    """An open directory: its names at the first read, with their current entries."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._names: list[str] = []
        self._entries: Sequence[DirectoryEntry | None] = ()
        self._as_of = -1

    def entries(
        self, core: StoreFilesystem, touched: ChangeCounter, *, first: bool
    ) -> Sequence[DirectoryEntry | None]:
        """Return the entries in the order of the first read; None for a removed one.

        *first* starts a new read.
        """
        if not first and self._as_of == touched.last:
            return self._entries
        self._as_of = touched.last
        present = core.readdir(self.path)
        if first:
            self._names = [entry.name for entry in present]
            self._entries = present
        else:
            known = {entry.name: entry for entry in present}
            self._entries = [known.get(name) for name in self._names]
        return self._entries


class Adapter:
    """Callbacks for libfuse: one method for each function of its table, on *core*.

    Pointers are numbers. A path is None where libfuse passes a handle.
    """

    def __init__(self, core: StoreFilesystem, notices: KernelInvalidator) -> None:
        self.present, self.touched = CurrentRequest(), ChangeCounter()
        self.directories, self.unlinked = Directories(), UnlinkedFiles()
        self._core, self._notices = core, notices
        self._pages: dict[int, tuple[int, int, int]] = {}
        """The content (inode, mtime, size) that the kernel's pages of each node are from."""
        self._listings: dict[int, Listing] = {}
        self._numbers = count(1)
        self._callbacks: list[object] = []
        self._structures: Any = bindings()
        stat = self._structures.c_stat
        times = ("st_atimespec", "st_mtimespec", "st_ctimespec")
        sizes = ("st_size", "st_blksize", "st_blocks")
        self._pack = packing(stat, "st_ino", "st_nlink", "st_mode", *sizes, *times)
        self._stat_bytes = ctypes.sizeof(stat)
        self._handle_at: int = self._structures.fuse_file_info.fh.offset
        # A fill is short: releasing the interpreter lock for it would only cost time.
        self._filler = ctypes.PYFUNCTYPE(
            ctypes.c_int,
            *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_longlong, ctypes.c_int),
        )

    def operations(self) -> Any:
        """Return libfuse's table of functions."""
        table = self._structures.fuse_operations()
        for name, prototype in self._structures.fuse_operations._fields_:
            method = getattr(self, f"_{name}", None)
            if method is not None:
                plain = ctypes.CFUNCTYPE(prototype._restype_, *map(plainly, prototype._argtypes_))
                callback = plain(guarded(method))
                self._callbacks.append(callback)  # the table does not keep them alive
                setattr(table, name, ctypes.cast(callback, prototype))
        return table

    def _init(self, conn: int, config: int) -> None:
        connection = self._structures.fuse_conn_info.from_address(conn)
        connection.want &= ~(POSIX_LOCKS | FLOCK_LOCKS | SPLICE_READ | READDIRPLUS_AUTO)
        connection.want |= connection.capable & READDIRPLUS
        connection.max_write = protocol.MAX_WRITE
        settings = self._structures.fuse_config.from_address(config)
        remembered = REMEMBERED if connection.proto_minor >= NOTICES_SINCE else 0.0
        settings.attr_timeout = settings.entry_timeout = remembered
        settings.negative_timeout = 0.0
        settings.auto_cache = settings.kernel_cache = settings.direct_io = 0
        settings.use_ino = settings.hard_remove = settings.no_rofd_flush = 1
        # Without paths for handles libfuse locks no name while a handle is read or saved.
        settings.nullpath_ok = 1
        settings.set_uid, settings.uid = 1, os.getuid()
        settings.set_gid, settings.gid = 1, os.getgid()

    def _stat(self, attributes: Attributes) -> bytes:
        """Return *attributes* as `struct stat`; libfuse adds the owner."""
        size, blocks = attributes.size, -(-attributes.size // SECTOR)
        s, ns = divmod(attributes.mtime_ns, 1_000_000_000)
        what = attributes.inode, attributes.nlink, attributes.mode
        return self._pack(*what, size, BLOCK, blocks, s, ns, s, ns, s, ns)

    def _handle(self, info: int) -> int:
        return ctypes.c_uint64.from_address(info + self._handle_at).value

    def _getattr(self, path: bytes | None, stat: int, info: int | None) -> None:
        name, request = text(path), self.present.request
        request.reached = True
        if request.opcode in NAMING:
            self.directories.learn(name.rpartition("/")[0], request.node)
        attributes = self._core.getattr(name, self._handle(info) if info else None)
        ctypes.memmove(stat, self._stat(attributes), self._stat_bytes)

    def _access(self, path: bytes, mode: int) -> None:
        self._core.access(text(path), mode)

    def _opendir(self, path: bytes, info: int) -> None:
        number = next(self._numbers)
        self._listings[number] = Listing(text(path))
        ctypes.c_uint64.from_address(info + self._handle_at).value = number

    def _readdir(
        self, _path: None, into: int, filler: int, offset: int, info: int, plus: int
    ) -> None:
        """Fill in the entries that fit, each with the offset at which to continue.

        An entry that does not fit is not tried: libfuse would count it as known to the kernel.
        """
        listing, request = self._listings[self._handle(info)], self.present.request
        entries = listing.entries(self._core, self.touched, first=not offset)
        self.directories.learn(listing.path, request.node)
        fill, room = self._filler(filler), request.room
        besides = (protocol.PLUS_ENTRY_BYTES if plus else protocol.ENTRY_BYTES) + 7
        for place in range(offset, len(entries)):
            entry = entries[place]
            if entry is None:
                continue
            name = entry.name.encode("utf-8", "surrogateescape")
            room -= (len(name) + besides) & ~7
            if room < 0:
                return
            fill(into, name, self._stat(entry.attributes), place + 1, WITH_ATTRIBUTES)

    def _releasedir(self, _path: None, info: int) -> None:
        del self._listings[self._handle(info)]

    def _fsyncdir(self, _path: None, _data: int, info: int) -> None:
        self._core.fsyncdir(self._listings[self._handle(info)].path)

    def _open(self, path: bytes, info: int) -> None:
        """Open a file; the kernel keeps its cached pages if the content is unchanged.

        libfuse's `auto_cache` checks the same with a second request. The kernel opens a node that
        it has cached: if that was deleted meanwhile, ESTALE makes it look the name up again, and
        create the file if requested; ENOENT would go to the program.
        """
        opened, name = self._structures.fuse_file_info.from_address(info), text(path)
        request = self.present.request
        try:
            handle = opened.fh = self._core.open(name, opened.flags)
        except FileNotFoundError as missing:
            raise OSError(ESTALE, os.strerror(ESTALE)) from missing
        request.reached = True
        self.unlinked.opened(handle, name, request)
        if opened.flags & os.O_TRUNC:
            self.touched()
        with suppress(OSError):  # the file is open nevertheless
            found, pages = self._core.getattr(name, handle), self._pages
            content = found.inode, found.mtime_ns, found.size
            opened.keep_cache = pages.get(request.node) == content
            if len(pages) >= PAGES:
                pages.clear()
            pages[request.node] = content

    def _create(self, path: bytes, _mode: int, info: int) -> None:
        request = self.present.request
        if request.opcode == protocol.MKNOD:  # libfuse makes plain files by create
            self._core.mknod(text(path))
        opened = self._structures.fuse_file_info.from_address(info)
        opened.fh = self._core.create(text(path), opened.flags)
        self.unlinked.opened(opened.fh, text(path), request)
        self.touched()

    def _read(self, _path: None, into: int, size: int, offset: int, info: int) -> int:
        data = self._core.read(self._used(info), size, offset)
        ctypes.memmove(into, data, len(data))
        return len(data)

    def _write(self, _path: None, data: int, size: int, offset: int, info: int) -> int:
        handle = self._used(info)
        try:
            return self._core.write(handle, ctypes.string_at(data, size), offset)
        finally:
            self.touched()

    def _flush(self, _path: None, info: int) -> None:
        try:
            self._core.flush(self._used(info))
        except BaseException:
            self._show_current()
            raise
        finally:
            self.touched()

    def _fsync(self, _path: None, _data: int, info: int) -> None:
        try:
            self._core.fsync(self._used(info))
        except BaseException:
            self._show_current()
            raise
        finally:
            self.touched()

    def _show_current(self) -> None:
        """Wait for the notices of a failed save to reach the kernel."""
        self._core.kernel.step_aside()
        self._notices.settle(SETTLE)

    def _used(self, info: int) -> int:
        """Return the handle, and record its node."""
        handle = ctypes.c_uint64.from_address(info + self._handle_at).value
        if handle in self.unlinked.unplaced:
            self.unlinked.used(handle, self.present.request.node)
        return handle

    def _release(self, _path: None, info: int) -> None:
        handle = self._handle(info)
        self.unlinked.released(handle)
        self._core.release(handle)

    def _truncate(self, path: bytes | None, length: int, info: int | None) -> None:
        self._core.truncate(text(path), length, self._handle(info) if info else None)
        self.touched()

    def _unlink(self, path: bytes) -> None:
        self._core.unlink(text(path))
        self.unlinked.removed(text(path))
        self.touched()

    def _rename(self, old: bytes, new: bytes, flags: int) -> None:
        names = text(old), text(new)
        self._core.rename(*names, flags)
        self.directories.moved(*names)
        self.unlinked.moved(*names)
        for listing in [*self._listings.values()]:
            listing.path = after(listing.path, *names)
        self.touched()

    def _mkdir(self, path: bytes, _mode: int) -> None:
        self._core.mkdir(text(path))
        self.touched()

    def _rmdir(self, path: bytes) -> None:
        self._core.rmdir(text(path))
        self.directories.removed(text(path))
        self.touched()

    def _symlink(self, _target: bytes, path: bytes) -> None:
        self._core.symlink(text(path))

    def _link(self, _old: bytes, path: bytes) -> None:
        self._core.link(text(path))

    def _mknod(self, path: bytes, _mode: int, _device: int) -> None:
        self._core.mknod(text(path))

    def _change_attributes(self, path: bytes | None, *_values: int) -> None:
        if path:
            self._core.change_attributes(text(path))

    _chmod = _chown = _utimens = _change_attributes

    def _statfs(self, path: bytes, answer: int) -> None:
        space = self._core.statfs(text(path))
        reply = self._structures.c_statvfs.from_address(answer)
        reply.f_bsize = reply.f_frsize = BLOCK
        reply.f_blocks, reply.f_bfree = space.blocks, space.free_blocks
        reply.f_files, reply.f_ffree = space.files, space.free_files
        reply.f_bavail, reply.f_favail = space.free_blocks, space.free_files
        reply.f_namemax = space.name_max

    def _getxattr(self, path: bytes, name: bytes, answer: int | None, size: int) -> int:
        if name == CAPABILITY:
            return -ENODATA
        return fitted(self._core.getxattr(text(path), text(name)), answer, size)

    def _listxattr(self, path: bytes, answer: int | None, size: int) -> int:
        names = self._core.listxattr(text(path))
        return fitted(b"".join(name.encode() + b"\0" for name in names), answer, size)

    def _setxattr(self, path: bytes, name: bytes, *_value: int) -> None:
        self._core.setxattr(text(path), text(name))

    def _removexattr(self, path: bytes, name: bytes) -> None:
        self._core.removexattr(text(path), text(name))


def errno_of(error: BaseException, operation: str) -> int:
    """Return the errno of *error*; log it and return EIO if it has none."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    logger.error("%s failed", operation, exc_info=error)
    return EIO


def plainly(kind: Any) -> Any:
    """Return the ctypes type of an argument of *kind*; structure pointers are numbers."""
    return kind if isinstance(getattr(kind, "_type_", None), str) else ctypes.c_void_p


def fitted(value: bytes, answer: int | None, size: int) -> int:
    """Copy *value* to *answer*, which has room for *size* bytes; return its length.

    With *size* 0 only the length is returned. Raise ERANGE if *value* does not fit.
    """
    if size and answer is not None:
        if len(value) > size:
            raise OSError(ERANGE, os.strerror(ERANGE))
        ctypes.memmove(answer, value, len(value))
    return len(value)


def guarded(method: Callable[..., int | None]) -> Callable[..., int]:
    """Wrap *method* for libfuse: an exception becomes a negative errno."""

    def call(*arguments: object) -> int:
        try:
            return method(*arguments) or 0
        except BaseException as error:  # noqa: BLE001 - the kernel waits for a reply
            return -errno_of(error, method.__name__[1:])

    return call


def leave(directory: Path) -> None:
    """Detach the mount at *directory* if it is this process's, not a later one."""
    mounted = at(directory)
    if mounted is None or mounted.pid != os.getpid():
        return
    try:
        detach(directory, lazy=True)
    except OSError as error:
        if error.errno != EINVAL:
            raise


def serve(
    core: StoreFilesystem,
    directory: Path,
    *,
    allow_other: bool,
    stop: threading.Event,
    ready: Callable[[], None],
) -> None:
    """Mount *core* at *directory* and serve requests until it is unmounted.

    *ready* is called once the first `ls` works. Set *stop* to detach the mount; it is set here if
    the mount is ended from outside. After a stop, open handles have one second to be closed; then
    they get ENOTCONN. Raise Refused without libfuse, MountFailed if the mount is not permitted.
    Signal handlers are not changed.
    """
    # Its path in the mount table, resolved while the mount still answers.
    place = Path(os.path.realpath(directory))
    notices = KernelInvalidator()
    adapter = Adapter(core, notices)
    options = [f"fsname={source_of(os.getpid())}", *OPTIONS, *(FOR_OTHERS if allow_other else ())]
    session = FuseSession(adapter.operations(), directory.absolute(), options)
    loop = FuseDispatcher(session.fd, session.buffer_at, adapter.present, adapter.unlinked)
    core.kernel = KernelCaches(
        loop.step_aside,
        session.drop_content,
        session.drop_name,
        notices=notices,
        directories=adapter.directories,
        touched=adapter.touched,
    )
    loop.start(ended=stop.set)
    try:
        while not loop.begun.wait(LINGER):
            if loop.ended.is_set():
                raise MountFailed(f"The mount at {directory} ended before it began")
        ready()
        stop.wait()
    finally:
        leave(place)
        loop.ended.wait(LINGER)
        loop.close()
        if notices.close(LINGER) and loop.ended.is_set() and loop.join(LINGER):
            session.destroy()
