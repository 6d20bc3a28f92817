"""Read local files: kind, content, and a mark to detect changes without reading."""

import os
import stat
import time
from errno import EFBIG, ELOOP, ENOENT, ENOTDIR
from hashlib import sha256

from msgspec import Struct

from holdfast.doors.mount.filesystem.nodes import content_fault
from holdfast.doors.mount.sync.merge import LocalState, What
from holdfast.doors.mount.sync.unusual import born_at
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags to open a file without following links or blocking."""

FRESH_NS = 2_000_000_000
"""Within the coarsest time step of a file system, a file may change with equal times."""


_FRESH = -1


class Mark(Struct, frozen=True, array_like=True):
    """Metadata that shows, without reading it, that a file is unchanged."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Mark":
        """Return the mark of a file; it is unsure if the file changed just now."""
        fresh = time.time_ns() - found.st_ctime_ns < FRESH_NS
        ctime_ns = _FRESH if fresh else found.st_ctime_ns
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, ctime_ns)

    @classmethod
    def unsure(cls, inode: int, size: int, mtime_ns: int) -> "Mark":
        """Return an unsure mark, for a file that may be changing now."""
        return cls(inode, size, mtime_ns, _FRESH)

    def tells(self, other: "Mark | None") -> bool:
        """Check whether the file is certainly unchanged since its mark was *other*."""
        return self == other and self.ctime_ns != _FRESH

    def resembles(self, other: "Mark | None") -> bool:
        """Check whether inode, size and mtime equal those of *other*.

        This misses changes within the last time step of the file system.
        """
        mine = (self.inode, self.size, self.mtime_ns)
        return other is not None and mine == (other.inode, other.size, other.mtime_ns)


class LocalFile(Struct, frozen=True):
    """A path on disk; `content` is set for a file that was read."""

    found: LocalState
    mark: Mark | None = None
    born: int | None = None
    content: bytes | None = None
    changed_ns: int = 0


ABSENT = LocalFile(LocalState(What.ABSENT))
FOREIGN = LocalFile(LocalState(What.FOREIGN))
UNREADABLE = LocalFile(LocalState(What.UNREADABLE))
BUSY = LocalFile(LocalState(What.BUSY))
DIRECTORY = LocalFile(LocalState(What.DIRECTORY))


def look_at(directory: int, name: str, known: Mark | None, sha: str | None) -> LocalFile:
    """Return the file *name* in the open *directory*.

    If its mark is *known*, it is not read, and its hash is taken to be *sha*.
    """
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        return DIRECTORY if stat.S_ISDIR(found.st_mode) else FOREIGN
    fd = os.open(name, READ, dir_fd=directory)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return BUSY
        mark, born = Mark.of(found), born_at(fd, found)
        if mark.tells(known):
            return LocalFile(LocalState(What.FILE, sha), mark, born, changed_ns=found.st_ctime_ns)
        return _read(fd, found, mark, born)
    finally:
        os.close(fd)


def _read(fd: int, found: os.stat_result, mark: Mark, born: int | None) -> LocalFile:
    at = found.st_ctime_ns
    if found.st_size > CONTENT_BYTES_MAX:
        return LocalFile(LocalState(What.FILE, None, EFBIG), mark, born, changed_ns=at)
    with os.fdopen(os.dup(fd), "rb") as file:
        content = file.read(CONTENT_BYTES_MAX + 1)
    after = os.fstat(fd)
    if (after.st_size, after.st_ctime_ns) != (found.st_size, at) or len(content) != after.st_size:
        return BUSY
    hashed = sha256(content).hexdigest()
    return LocalFile(LocalState(What.FILE, hashed, content_fault(content)), mark, born, content, at)


def unseen(error: OSError) -> LocalFile:
    """Return the state of a path that could not be read because of *error*."""
    if error.errno in (ENOENT, ENOTDIR):
        return ABSENT
    return FOREIGN if error.errno == ELOOP else UNREADABLE
