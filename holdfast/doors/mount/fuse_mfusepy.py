"""FUSE through libfuse's path interface: translates its calls to the core's, and holds no rule.

Of mfusepy only the descriptions of libfuse's structures are used. Its class `FUSE` decodes names
strictly, drops rename's flags, answers `readdir` without offsets, makes EINVAL of exceptions it
does not know, and replaces signal handlers.
"""

import ctypes
import errno
import logging
import os
import stat as modes
import threading
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Any

from holdfast.doors.mount.invalidation import Directories, Notices
from holdfast.doors.mount.kernel import Attributes, Entry
from holdfast.doors.mount.libfuse import MountFailed, Session, bindings, detach, packing
from holdfast.doors.mount.loop import (
    CREATE,
    LOOKUP,
    MAX_WRITE,
    MKDIR,
    MKNOD,
    READDIRPLUS,
    Loop,
    Present,
)

logger = logging.getLogger(__name__)

REMEMBERED = 60.0
"""Seconds for which the kernel keeps attributes and names, unless told otherwise."""
NAMING = frozenset({LOOKUP, CREATE, MKDIR})
FLOCK_LOCKS, SPLICE_READ, READDIRPLUS_ALWAYS, READDIRPLUS_AUTO = 1 << 10, 1 << 9, 1 << 13, 1 << 14
POSIX_LOCKS = 1 << 1
NOTICES_SINCE = 12
BLOCK = 4096
FILL_PLUS = 2
ENTRY_BYTES = 152
LINGER = 1.0
SETTLE = 0.1


def text(path: bytes) -> str:
    """Return *path* as the core takes it: what is not UTF-8 stays recognisable."""
    return path.decode("utf-8", "surrogateescape")


class Listing:
    """An open directory: the names it had when reading began, and what they are now."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names: list[str] = []
        self.entries: list[Entry] = []
        self.at = -1


class Adapter:
    """Answers libfuse from *core*."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.present = Present()
        self.directories = Directories()
        self.changes = 0
        self._listings: dict[int, Listing] = {}
        self._numbers = count(1)
        self._failed_to_save: Callable[[], None] = lambda: None
        module = bindings()
        self._module = module
        info = module.fuse_file_info
        self._fh_at: int = info.fh.offset
        self._stat_bytes = ctypes.sizeof(module.c_stat)
        self._pack = packing(
            module.c_stat,
            "st_ino",
            "st_mode",
            "st_nlink",
            "st_size",
            "st_blksize",
            "st_blocks",
            "st_atimespec",
            "st_mtimespec",
            "st_ctimespec",
        )
        self._filler = ctypes.PYFUNCTYPE(
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_longlong,
            ctypes.c_int,
        )
        self._callbacks: list[Any] = []

    def operations(self) -> Any:
        """Return libfuse's table of calls, filled with those that have a method here."""
        table = self._module.fuse_operations()
        for name, prototype in self._module.fuse_operations._fields_:
            method = getattr(self, f"_{name}", None)
            if method is not None:
                plain = ctypes.CFUNCTYPE(prototype._restype_, *map(raw, prototype._argtypes_))
                callback = plain(guarded(method))
                self._callbacks.append(callback)
                setattr(table, name, ctypes.cast(callback, prototype))
        return table

    def _stat(self, attributes: Attributes) -> bytes:
        seconds, rest = divmod(attributes.mtime_ns, 1_000_000_000)
        size = attributes.size
        return self._pack(
            attributes.inode,
            attributes.mode,
            attributes.nlink,
            size,
            BLOCK,
            -(-size // 512),
            seconds,
            rest,
            seconds,
            rest,
            seconds,
            rest,
        )

    def _handle(self, info: int) -> int:
        return ctypes.c_uint64.from_address(info + self._fh_at).value

    def _set_handle(self, info: int, handle: int) -> None:
        ctypes.c_uint64.from_address(info + self._fh_at).value = handle

    def _init(self, conn: int, config: int) -> None:
        connection = self._module.fuse_conn_info.from_address(conn)
        connection.want &= ~(FLOCK_LOCKS | POSIX_LOCKS | SPLICE_READ | READDIRPLUS_AUTO)
        connection.want |= connection.capable & READDIRPLUS_ALWAYS
        connection.max_write = MAX_WRITE
        remembered = REMEMBERED if connection.proto_minor >= NOTICES_SINCE else 0.0
        settings = self._module.fuse_config.from_address(config)
        settings.attr_timeout = settings.entry_timeout = remembered
        settings.negative_timeout = 0.0
        settings.ac_attr_timeout_set, settings.ac_attr_timeout = 1, 0.0
        settings.auto_cache = settings.use_ino = settings.hard_remove = 1
        settings.no_rofd_flush = settings.nullpath_ok = 1
        settings.kernel_cache = settings.direct_io = 0
        settings.set_uid, settings.uid = 1, os.getuid()
        settings.set_gid, settings.gid = 1, os.getgid()

    def _getattr(self, path: bytes | None, stat: int, info: int | None) -> None:
        name = text(path) if path else ""
        present = self.present
        if name and present.opcode in NAMING:
            self.directories.learn(name.rpartition("/")[0], present.node)
        attributes = self.core.getattr(name, self._handle(info) if info else None)
        ctypes.memmove(stat, self._stat(attributes), self._stat_bytes)

    def _access(self, path: bytes, mask: int) -> None:
        self.core.access(text(path), mask)

    def _opendir(self, path: bytes, info: int) -> None:
        number = next(self._numbers)
        self._listings[number] = Listing(text(path))
        self._set_handle(info, number)

    def _readdir(
        self, path: bytes | None, dh: int, filler: int, offset: int, info: int, flags: int
    ) -> None:
        listing = self._listings[self._handle(info)]
        entries = self._entries(listing, offset)
        present = self.present
        if flags:
            self.directories.learn("" if listing.path == "/" else listing.path, present.node)
        fill, stat, room = self._filler(filler), self._stat, present.room
        for at in range(offset, len(entries)):
            entry = entries[at]
            if entry is None:
                continue
            name = os.fsencode(entry.name)
            room -= (ENTRY_BYTES + len(name) + 7) & ~7
            if room < 0 or fill(dh, name, stat(entry.attributes), at + 1, FILL_PLUS):
                return

    def _entries(self, listing: Listing, offset: int) -> list[Entry | None]:
        if offset == 0 or listing.at != self.changes:
            listing.at = self.changes
            present = self.core.readdir(listing.path)
            if offset == 0:
                listing.names = [entry.name for entry in present]
                listing.entries = present
            else:
                known = {entry.name: entry for entry in present}
                listing.entries = [known.get(name) for name in listing.names]
        return listing.entries

    def _releasedir(self, path: bytes | None, info: int) -> None:
        del self._listings[self._handle(info)]

    def _fsyncdir(self, path: bytes | None, data: int, info: int) -> None:
        self.core.fsyncdir(self._listings[self._handle(info)].path)

    def _open(self, path: bytes, info: int) -> None:
        flags = ctypes.c_int.from_address(info).value
        self._set_handle(info, self.core.open(text(path), flags))

    def _create(self, path: bytes, mode: int, info: int) -> None:
        if self.present.opcode == MKNOD:
            self.core.mknod(text(path))
        self.changes += 1
        flags = ctypes.c_int.from_address(info).value
        self._set_handle(info, self.core.create(text(path), flags))

    def _read(self, path: bytes | None, buffer: int, size: int, offset: int, info: int) -> int:
        data = self.core.read(self._handle(info), size, offset)
        ctypes.memmove(buffer, data, len(data))
        return len(data)

    def _write(self, path: bytes | None, buffer: int, size: int, offset: int, info: int) -> int:
        self.changes += 1
        return self.core.write(self._handle(info), ctypes.string_at(buffer, size), offset)

    def _truncate(self, path: bytes | None, length: int, info: int | None) -> None:
        self.changes += 1
        handle = self._handle(info) if info else None
        self.core.truncate(text(path) if path else "", length, handle)

    def _flush(self, path: bytes | None, info: int) -> None:
        self.core.flush(self._handle(info))

    def _fsync(self, path: bytes | None, data: int, info: int) -> None:
        self.core.fsync(self._handle(info))

    def _release(self, path: bytes | None, info: int) -> None:
        self.core.release(self._handle(info))

    def _unlink(self, path: bytes) -> None:
        self.changes += 1
        self.core.unlink(text(path))

    def _rename(self, old: bytes, new: bytes, flags: int) -> None:
        self.changes += 1
        self.core.rename(text(old), text(new), flags)
        self.directories.moved(text(old), text(new))

    def _mkdir(self, path: bytes, mode: int) -> None:
        self.changes += 1
        self.core.mkdir(text(path))

    def _rmdir(self, path: bytes) -> None:
        self.changes += 1
        self.core.rmdir(text(path))
        self.directories.removed(text(path))

    def _symlink(self, target: bytes, path: bytes) -> None:
        self.core.symlink(text(path))

    def _link(self, old: bytes, path: bytes) -> None:
        self.core.link(text(path))

    def _mknod(self, path: bytes, mode: int, device: int) -> None:
        self.core.mknod(text(path))

    def _chmod(self, path: bytes | None, mode: int, info: int | None) -> None:
        if path:
            self.core.change_attributes(text(path))

    def _chown(self, path: bytes | None, uid: int, gid: int, info: int | None) -> None:
        if path:
            self.core.change_attributes(text(path))

    def _utimens(self, path: bytes | None, times: int, info: int | None) -> None:
        if path:
            self.core.change_attributes(text(path))

    def _statfs(self, path: bytes, buffer: int) -> None:
        space = self.core.statfs(text(path))
        answer = self._module.c_statvfs.from_address(buffer)
        answer.f_bsize = answer.f_frsize = BLOCK
        answer.f_blocks = space.blocks
        answer.f_bfree = answer.f_bavail = space.free_blocks
        answer.f_files = space.files
        answer.f_ffree = answer.f_favail = space.free_files
        answer.f_namemax = space.name_max

    def _getxattr(self, path: bytes, name: bytes, buffer: int | None, size: int) -> int:
        return fitted(self.core.getxattr(text(path), text(name)), buffer, size)

    def _listxattr(self, path: bytes, buffer: int | None, size: int) -> int:
        names = self.core.listxattr(text(path))
        return fitted(b"".join(name.encode() + b"\0" for name in names), buffer, size)

    def _setxattr(self, path: bytes, name: bytes, value: int, size: int, flags: int) -> None:
        self.core.setxattr(text(path), text(name))

    def _removexattr(self, path: bytes, name: bytes) -> None:
        self.core.removexattr(text(path), text(name))

    def _fallocate(self, path: bytes | None, mode: int, offset: int, size: int, info: int) -> int:
        return -errno.EOPNOTSUPP

    def _ioctl(
        self, path: bytes | None, command: int, argument: int, info: int, flags: int, data: int
    ) -> int:
        return -errno.ENOTTY


def raw(kind: Any) -> Any:
    """Return how a callback takes an argument of *kind*: any pointer as a number."""
    pointers = (ctypes._Pointer, ctypes._CFuncPtr)
    return ctypes.c_void_p if issubclass(kind, pointers) else kind


def fitted(value: bytes, buffer: int | None, size: int) -> int:
    """Copy *value* to *buffer* if it fits; return its length, or a negative errno."""
    if not size or buffer is None:
        return len(value)
    if len(value) > size:
        return -errno.ERANGE
    ctypes.memmove(buffer, value, len(value))
    return len(value)


def guarded(method: Callable[..., int | None]) -> Callable[..., int]:
    """Return *method* as libfuse may call it: whatever it raises becomes a negative errno."""

    def call(*arguments: object) -> int:
        try:
            return method(*arguments) or 0
        except OSError as error:
            if error.errno:
                return -error.errno
            logger.exception("%s failed without an errno", method.__name__[1:])
        except BaseException:
            logger.exception("%s failed", method.__name__[1:])
        return -errno.EIO

    return call


class FuseKernel:
    """The kernel, as the core speaks to it."""

    def __init__(self, adapter: Adapter, session: Session, loop: Loop, notices: Notices) -> None:
        self._adapter, self._session, self._notices = adapter, session, notices
        self.step_aside = loop.step_aside

    def forget_content(self, path: str) -> None:
        self._adapter.changes += 1
        self._notices.put(lambda: self._drop_content(path))

    def forget_name(self, directory: str, name: str) -> None:
        self._adapter.changes += 1
        self._notices.put(lambda: self._drop_name(directory, name))

    def _drop_content(self, path: str) -> None:
        if not self._session.drop_content(os.fsencode(path)):
            directory, _, name = path.rpartition("/")
            self._drop_name(directory or "/", name)

    def _drop_name(self, directory: str, name: str) -> None:
        node = self._adapter.directories.node("" if directory == "/" else directory)
        if node is not None:
            self._session.drop_name(node, os.fsencode(name))


def serve(
    core: Any,
    directory: Path,
    *,
    allow_other: bool,
    stop: threading.Event,
    ready: Callable[[], None],
) -> None:
    """Mount *core* at *directory* and answer until unmounted.

    *ready* is called once the first `ls` works. Set *stop* to have it detached; it is set, too,
    when the mount was ended from outside. Handles that are still open a second later get ENOTCONN.
    """
    adapter = Adapter(core)
    options = ["fsname=holdfast", "subtype=holdfast", "nosuid", "nodev"]
    if allow_other:
        options += ["allow_other", "default_permissions"]
    session = Session(adapter.operations(), directory.absolute(), options)
    loop = Loop(session.fd, session.process_at, adapter.present)
    notices = Notices()
    core.kernel = FuseKernel(adapter, session, loop, notices)
    loop.start()
    loop.begun.wait()
    ready()
    threading.Thread(target=lambda: (loop.ended.wait(), stop.set()), daemon=True).start()
    stop.wait()
    if not loop.ended.is_set():
        detach(directory)
        loop.ended.wait(LINGER)
    loop.close()
    if notices.close(LINGER) and loop.ended.is_set() and loop.join(LINGER):
        session.destroy()
