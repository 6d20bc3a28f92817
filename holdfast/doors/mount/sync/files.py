"""Read, write and remove the local files of one store, only inside its directory.

Each component of a path is opened separately, and links are never followed, so that nothing outside
is read or written even if a program replaces a directory. A new file is exchanged with the old one,
and the old one is checked before it is removed: it may be newer than expected. If the system
cannot exchange names, a short race remains.
"""

import ctypes
import errno
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from holdfast.doors.mount.filesystem.nodes import content_fault
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX

ERRORS = "/.memory-errors"
"""Path of the errors file in the directory of its store."""

FRESH_NS = 2_000_000_000
"""Within the coarsest time step of a file system, a file may change with equal times."""

_FRESH = -1
_TEMPORARY = re.compile(r"\.memory-(?:new|out)-[0-9a-f]{16}(?:-[0-9a-f]{8,16}){0,2}")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE_BITS = 0o222


def is_reserved(path: str) -> bool:
    """Check whether *path*, within its store, is never a memory or a change."""
    return path == ERRORS or _TEMPORARY.fullmatch(path, path.rfind("/") + 1) is not None


def is_unfinished(path: str) -> bool:
    """Check whether *path* is of a file that was still being written."""
    return path[path.rfind("/") + 1 :].startswith(".memory-new-")


class FileType(Enum):
    """The type of a path on disk."""

    ABSENT = "absent"
    FILE = "file"
    DIRECTORY = "directory"
    FOREIGN = "foreign"
    """A link, device or pipe: it is left alone, and so is the memory of that path."""
    UNREADABLE = "unreadable"
    BUSY = "busy"
    """The file changed while it was read."""


class Mark(Struct, frozen=True, array_like=True):
    """Metadata that shows, without reading it, that a file is unchanged."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Mark":
        """Return the mark of a file; it proves nothing if the file changed just now."""
        fresh = time.time_ns() - found.st_ctime_ns < FRESH_NS
        ctime_ns = _FRESH if fresh else found.st_ctime_ns
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, ctime_ns)

    def proves(self, other: "Mark | None") -> bool:
        """Check whether the file is certainly unchanged since its mark was *other*."""
        return self == other and self.ctime_ns != _FRESH

    def resembles(self, other: "Mark | None") -> bool:
        """Check whether inode, size and mtime equal those of *other*.

        This misses changes within the last time step of the file system.
        """
        mine = (self.inode, self.size, self.mtime_ns)
        return other is not None and mine == (other.inode, other.size, other.mtime_ns)


class LocalFile(Struct, frozen=True):
    """A path on disk.

    `sha256` is a file's hash, None if it is too large to read. `fault` is the errno why it cannot
    be a memory, or 0. `born` is its birth time in ns since 1970, None if unknown. `content` is set
    for a file that was read.
    """

    type: FileType
    sha256: str | None = None
    fault: int = 0
    mark: Mark | None = None
    born: int | None = None
    content: bytes | None = None
    changed_ns: int = 0


ABSENT = LocalFile(FileType.ABSENT)
_DIRECTORY_FOUND = LocalFile(FileType.DIRECTORY)
_FOREIGN = LocalFile(FileType.FOREIGN)
_BUSY = LocalFile(FileType.BUSY)
_UNREADABLE = LocalFile(FileType.UNREADABLE)


class LocalEntry(Struct, frozen=True):
    """One entry of a directory walk; `mark` is set for files."""

    path: str
    type: FileType
    mark: Mark | None = None


class LocalDirectory:
    """The directory of one store, *root*, an absolute path.

    The paths of its methods are those of memories. `made` are the directories that exist only for
    memories: they are removed once they are empty.
    """

    def __init__(self, root: Path, *, writable: bool = True) -> None:
        self.root, self.writable = root, writable
        self.made: set[str] = set()

    def make_root(self) -> bool:
        """Create the directory if it is missing; return whether it was.

        Raise NotADirectoryError if something else is in its place.
        """
        missing = False
        with suppress(FileExistsError):
            self.root.mkdir(mode=0o755, parents=True)
            missing = True
        with _opened(self.root) as fd:
            if missing:
                os.fchmod(fd, self._directory_mode)
        return missing

    def look(self, path: str, known: Mark | None = None, sha256: str | None = None) -> LocalFile:
        """Return the file at *path*.

        If its mark is *known*, it is not read, and its hash is taken to be *sha256*.
        """
        try:
            with self._above(path) as (directory, name):
                return _look_at(directory, name, known, sha256)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return ABSENT
            return _FOREIGN if error.errno == errno.ELOOP else _UNREADABLE

    def walk(
        self, top: str = "/", *, into: Callable[[str], bool] = lambda _: True
    ) -> Iterator[LocalEntry]:
        """Yield the entries below the directory *top*; descend if *into*(path).

        Links are not followed. Unreadable directories are skipped. Names that are not UTF-8 have
        lone surrogates.
        """
        pending = [top]
        while pending:
            for entry in self._listed(pending.pop()):
                if entry.type is FileType.DIRECTORY and into(entry.path):
                    pending.append(entry.path)
                yield entry

    def put(
        self, path: str, content: bytes, *, at_ns: int, over: str | None, lasting: bool = True
    ) -> LocalFile | None:
        """Write *content* to *path*, replacing a file with the hash *over*, or none.

        Return the new file, without a mark if it has changed since. Return None and change nothing
        if the path has something else. *lasting*: sync it to disk. Raise OSError if it cannot be
        written, or if a parent is no directory.
        """
        hashed = sha256(content).hexdigest()
        with self._above(path, make=True) as (directory, name), self._changing(directory):
            part, found, born = self._begin(directory, content, at_ns, lasting=lasting)
            try:
                if over is None:
                    _rename_new(directory, part, directory, name)
                elif not _replaced(directory, part, name, (over, hashed)):
                    return None
            except (FileExistsError, FileNotFoundError):
                return None
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=directory)
            if lasting:
                os.fsync(directory)
            return LocalFile(FileType.FILE, hashed, 0, _mark_of(directory, name, found), born)

    def take(self, path: str, sha256: str | None) -> bool:
        """Remove the file at *path* if it still has the hash *sha256*; return whether.

        None is any hash. A file that is already absent counts as removed.
        """
        try:
            with self._above(path) as (directory, name), self._changing(directory):
                if sha256 is None:
                    os.unlink(name, dir_fd=directory)
                    return True
                out = _temporary("out")
                os.rename(name, out, src_dir_fd=directory, dst_dir_fd=directory)
                if _look_at(directory, out).sha256 == sha256:
                    os.unlink(out, dir_fd=directory)
                    return True
                # If the name is taken again, a scan finds the file under its temporary name.
                with suppress(FileExistsError):
                    _rename_new(directory, out, directory, name)
        except FileNotFoundError:
            return True
        return False

    def put_errors(self, content: bytes) -> None:
        """Write *content* to the errors file, replacing any file there."""
        with self._above(ERRORS) as (directory, name), self._changing(directory):
            part, _, _ = self._begin(directory, content, time.time_ns(), lasting=False)
            try:
                os.rename(part, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                os.unlink(part, dir_fd=directory)
                raise

    def move(self, old: str, new: str) -> bool:
        """Rename *old* to *new*; return False if that fails or *new* exists."""
        try:
            with (
                self._above(old) as (source, name),
                self._above(new, make=True) as (target, goal),
                self._changing(source),
                self._changing(target),
            ):
                _rename_new(source, name, target, goal)
        except OSError:
            return False
        return True

    def clear(self, path: str) -> bool:
        """Remove the directory at *path* if it is empty; return False if it remains."""
        try:
            with self._above(path) as (directory, name), self._changing(directory):
                os.rmdir(name, dir_fd=directory)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def prune(self, path: str) -> None:
        """Remove the empty directories above *path* that exist only for memories."""
        above = path.rpartition("/")[0]
        while above in self.made and self.clear(above):
            self.made.discard(above)
            above = above.rpartition("/")[0]

    def read(self, path: str, most: int) -> bytes | None:
        """Return the bytes of the file at *path*, or None if over *most* bytes."""
        with self._above(path) as (directory, name):
            fd = os.open(name, _READ, dir_fd=directory)
            with os.fdopen(fd, "rb") as file:
                content = file.read(most + 1)
        return None if len(content) > most else content

    def sync(self) -> None:
        """Sync files to disk that were written without *lasting*."""
        with _opened(self.root) as fd:
            if _syncfs is None or _syncfs(fd) != 0:
                os.sync()

    def set_writable(self, *, writable: bool) -> None:
        """Set the modes of all files for a writable or a read-only store, if needed."""
        self.writable = writable
        if bool(self.root.stat().st_mode & _WRITE_BITS) == writable:
            return
        self.root.chmod(self._directory_mode, follow_symlinks=False)
        for entry in self.walk():
            mode = self._directory_mode if entry.type is FileType.DIRECTORY else self._file_mode
            if entry.type in (FileType.DIRECTORY, FileType.FILE):
                with suppress(OSError), self._above(entry.path) as (directory, name):
                    fd = os.open(name, _READ, dir_fd=directory)
                    try:
                        os.fchmod(fd, mode)
                    finally:
                        os.close(fd)

    @property
    def _directory_mode(self) -> int:
        return 0o755 if self.writable else 0o555

    @property
    def _file_mode(self) -> int:
        return 0o644 if self.writable else 0o444

    def _begin(
        self, directory: int, content: bytes, at_ns: int, *, lasting: bool
    ) -> tuple[str, os.stat_result, int | None]:
        """Write *content* to a temporary file; return its name, status and birth time."""
        part = _temporary("new")
        fd = os.open(part, _NEW, 0o600, dir_fd=directory)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(fd, self._file_mode)
                os.utime(fd, ns=(at_ns, at_ns))
                if lasting:
                    os.fsync(fd)
                found = os.fstat(fd)
                return part, found, _born_at(fd, found)
        except BaseException:
            os.unlink(part, dir_fd=directory)
            raise

    @contextmanager
    def _above(self, path: str, *, make: bool = False) -> Generator[tuple[int, str]]:
        """Yield the open directory of *path*, and the path's last component."""
        *above, name = path[1:].split("/")
        fd = os.open(self.root, _DIRECTORY)
        try:
            for depth, each in enumerate(above, 1):
                made = "/" + "/".join(above[:depth]) if make else None
                below = self._step(fd, each, made)
                os.close(fd)
                fd = below
            yield fd, name
        finally:
            os.close(fd)

    def _step(self, directory: int, name: str, made: str | None) -> int:
        """Open the directory *name*; if it is missing, make it if its path is *made*."""
        try:
            return os.open(name, _DIRECTORY, dir_fd=directory)
        except NotADirectoryError:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                raise
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        except FileNotFoundError:
            if made is None:
                raise
        with self._changing(directory), suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=directory)
            self.made.add(made)
        fd = os.open(name, _DIRECTORY, dir_fd=directory)
        os.fchmod(fd, self._directory_mode)
        return fd

    @contextmanager
    def _changing(self, directory: int) -> Generator[None]:
        """Make *directory* writable for this context if its mode is read-only."""
        mode = stat.S_IMODE(os.fstat(directory).st_mode)
        if self.writable or mode & stat.S_IWUSR or os.geteuid() == 0:
            yield
            return
        os.fchmod(directory, mode | stat.S_IWUSR)
        try:
            yield
        finally:
            os.fchmod(directory, mode)

    def _listed(self, path: str) -> list[LocalEntry]:
        prefix = path.removesuffix("/") + "/"
        try:
            with self._above(prefix + ".") as (directory, _), os.scandir(directory) as names:
                return [_entry(prefix, each) for each in names]
        except OSError:
            return []


def _entry(prefix: str, each: "os.DirEntry[str]") -> LocalEntry:
    path = prefix + each.name
    try:
        found = each.stat(follow_symlinks=False)
    except OSError:
        return LocalEntry(path, FileType.ABSENT)
    if stat.S_ISREG(found.st_mode):
        return LocalEntry(path, FileType.FILE, Mark.of(found))
    directory = stat.S_ISDIR(found.st_mode)
    return LocalEntry(path, FileType.DIRECTORY if directory else FileType.FOREIGN)


@contextmanager
def _opened(directory: Path) -> Generator[int]:
    fd = os.open(directory, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _temporary(kind: str) -> str:
    return f".memory-{kind}-{secrets.token_hex(8)}"


def _look_at(
    directory: int, name: str, known: Mark | None = None, sha: str | None = None
) -> LocalFile:
    """Return the file *name* in the open *directory*; not read if its mark is *known*."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        return _DIRECTORY_FOUND if stat.S_ISDIR(found.st_mode) else _FOREIGN
    fd = os.open(name, _READ, dir_fd=directory)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return _BUSY
        mark, born, at = Mark.of(found), _born_at(fd, found), found.st_ctime_ns
        if mark.proves(known):
            return LocalFile(FileType.FILE, sha, 0, mark, born, changed_ns=at)
        if found.st_size > CONTENT_BYTES_MAX:
            return LocalFile(FileType.FILE, None, errno.EFBIG, mark, born, changed_ns=at)
        content = file.read(CONTENT_BYTES_MAX + 1)
        after = os.fstat(fd)
    if (after.st_size, after.st_ctime_ns) != (found.st_size, at) or len(content) != after.st_size:
        return _BUSY
    hashed, fault = sha256(content).hexdigest(), content_fault(content)
    return LocalFile(FileType.FILE, hashed, fault, mark, born, content, at)


def _mark_of(directory: int, name: str, written: os.stat_result) -> Mark | None:
    """Return the mark of the file *name* if it is still the one *written*, else None."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    same = all(
        getattr(found, field) == getattr(written, field)
        for field in ("st_ino", "st_size", "st_mtime_ns")
    )
    return Mark.of(found) if same else None


def _replaced(directory: int, part: str, name: str, hashes: tuple[str, str]) -> bool:
    """Rename *part* over the file *name* with the first of *hashes*; return whether.

    *hashes* are of the old and of the new content.
    """
    # After a crash, a file under this name is removed only if its content is known.
    out = _temporary("out")
    os.rename(part, out, src_dir_fd=directory, dst_dir_fd=directory)
    try:
        if not _rename(directory, out, directory, name, _EXCHANGE):
            same = _look_at(directory, name).sha256 == hashes[0]
            if same:
                os.rename(out, name, src_dir_fd=directory, dst_dir_fd=directory)
            return same
        if _look_at(directory, out).sha256 == hashes[0]:
            return True
        _rename(directory, out, directory, name, _EXCHANGE)
        return False
    finally:
        with suppress(FileNotFoundError):
            if _look_at(directory, out).sha256 in hashes:
                os.unlink(out, dir_fd=directory)


# System calls without a Python wrapper. Each may be missing.

_NO_REPLACE, _EXCHANGE = 1, 2
_EMPTY_PATH, _BIRTH = 0x1000, 0x800
_STATX_BYTES, _BIRTH_AT = 256, 80
_CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_renameat2 = getattr(_libc, "renameat2", None)
_statx = getattr(_libc, "statx", None)
_syncfs = getattr(_libc, "syncfs", None)


def _rename(old_directory: int, old: str, directory: int, new: str, flags: int) -> bool:
    """Rename with *flags* of renameat2; return False if it is unsupported."""
    if _renameat2 is None:
        return False
    if _renameat2(old_directory, os.fsencode(old), directory, os.fsencode(new), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), old, None, new)


def _rename_new(old_directory: int, old: str, directory: int, new: str) -> None:
    """Rename *old* to *new*; FileExistsError if *new* exists."""
    if _rename(old_directory, old, directory, new, _NO_REPLACE):
        return
    try:
        os.link(old, new, src_dir_fd=old_directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        with suppress(FileNotFoundError):
            os.stat(new, dir_fd=directory, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from None
        os.rename(old, new, src_dir_fd=old_directory, dst_dir_fd=directory)
    else:
        os.unlink(old, dir_fd=old_directory)


def _born_at(file: int, found: os.stat_result) -> int | None:
    """Return the birth time of the open *file* in ns since 1970; None if unknown."""
    birthtime = getattr(found, "st_birthtime", None)
    if birthtime is not None:
        return int(birthtime * 1e9)
    if _statx is None:
        return None
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx(file, b"", _EMPTY_PATH, _BIRTH, answer) != 0:
        return None
    if not int.from_bytes(answer[:4], sys.byteorder) & _BIRTH:
        return None
    seconds = int.from_bytes(answer[_BIRTH_AT : _BIRTH_AT + 8], sys.byteorder, signed=True)
    rest = int.from_bytes(answer[_BIRTH_AT + 8 : _BIRTH_AT + 12], sys.byteorder)
    return seconds * 1_000_000_000 + rest
