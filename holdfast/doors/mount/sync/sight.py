"""What is seen of a file: what it is, what it holds, and what tells later that it is the same."""

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
"""How a file is opened, so that nothing else is followed or waited for."""

FRESH_NS = 2_000_000_000
"""Within the coarsest clock of a file system, a file may change and show the same times."""


_FRESH = -1


class Mark(Struct, frozen=True, array_like=True):
    """What tells, without reading it, that a file is as it was."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Mark":
        """Return the mark of a file; of one that was changed just now, one that tells nothing."""
        fresh = time.time_ns() - found.st_ctime_ns < FRESH_NS
        ctime_ns = _FRESH if fresh else found.st_ctime_ns
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, ctime_ns)

    @classmethod
    def unsure(cls, inode: int, size: int, mtime_ns: int) -> "Mark":
        """Return the mark of a file that may be changing now."""
        return cls(inode, size, mtime_ns, _FRESH)

    def tells(self, other: "Mark | None") -> bool:
        """Tell whether the file is certainly as it was when its mark was *other*."""
        return self == other and self.ctime_ns != _FRESH

    def resembles(self, other: "Mark | None") -> bool:
        """Tell whether the file is as it was, but for what changed within the last moment."""
        mine = (self.inode, self.size, self.mtime_ns)
        return other is not None and mine == (other.inode, other.size, other.mtime_ns)


class LocalFile(Struct, frozen=True):
    """What is at a path: its content too if it is a file that can be a memory, and was read."""

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
    """Return what *name* in the open *directory* is; of the hash *sha* if its mark is *known*."""
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
    """Return what is to be thought of a path that could not be looked at."""
    if error.errno in (ENOENT, ENOTDIR):
        return ABSENT
    return FOREIGN if error.errno == ELOOP else UNREADABLE
