"""Read, write and remove the local files of one store, only inside its directory.

Each component of a path is opened separately, and links are never followed, so that nothing outside
is read or written even if a program replaces a directory. A new file is exchanged with the old one,
and the old one is checked before it is removed: it may be newer than expected.
"""

import os
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from errno import ELOOP
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from holdfast.doors.mount.sync import own
from holdfast.doors.mount.sync.merge import What
from holdfast.doors.mount.sync.sight import READ, LocalFile, Mark, look_at, unseen
from holdfast.doors.mount.sync.unusual import born_at, exchange, rename_new, sync_all

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE_BITS = 0o222


class LocalEntry(Struct, frozen=True):
    """One entry of a directory walk; `mark` is set for files."""

    path: str
    what: What
    mark: Mark | None = None


class Put(Struct, frozen=True):
    """Identity of a file that was written; `alone`: it is unchanged since."""

    mark: Mark
    born: int | None
    alone: bool


class LocalDirectory:
    """The directory of one store, *root*, an absolute path.

    The paths of its methods are those of memories.
    """

    def __init__(self, root: Path, *, writable: bool = True) -> None:
        self.root, self.writable = root, writable

    def make_root(self) -> bool:
        """Create the directory if it is missing; return whether it was.

        Raise NotADirectoryError if something else is in its place.
        """
        missing = False
        try:
            self.root.mkdir(mode=0o755, parents=True)
            missing = True
        except FileExistsError:
            pass
        fd = os.open(self.root, _DIRECTORY)
        try:
            if missing:
                os.fchmod(fd, self._directory_mode)
        finally:
            os.close(fd)
        return missing

    def look(self, path: str, known: Mark | None = None, sha256: str | None = None) -> LocalFile:
        """Return the file at *path*.

        If its mark is *known*, it is not read, and its hash is taken to be *sha256*.
        """
        try:
            with self._above(path) as (directory, name):
                return look_at(directory, name, known, sha256)
        except OSError as error:
            return unseen(error)

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
                if entry.what is What.DIRECTORY and into(entry.path):
                    pending.append(entry.path)
                yield entry

    def put(
        self, path: str, content: bytes, *, at_ns: int, over: str | None, lasting: bool = True
    ) -> Put | None:
        """Write *content* to *path*, replacing a file with the hash *over*, or none.

        Return None and change nothing if the path has something else. *lasting*: sync it to disk.
        Raise OSError if it cannot be written, or if a parent is no directory.
        """
        with self._above(path, make=True) as (directory, name), self._changing(directory):
            part = self._begin(directory, content, at_ns, lasting=lasting)
            try:
                if not _placed(directory, part, name, over):
                    return None
                if lasting:
                    os.fsync(directory)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(part.name, dir_fd=directory)
            return _put(directory, name, part)

    def take(self, path: str, sha256: str) -> bool:
        """Remove the file at *path* if it still has the hash *sha256*; return whether."""
        with self._above(path) as (directory, name), self._changing(directory):
            away = own.taken(sha256)
            os.rename(name, away, src_dir_fd=directory, dst_dir_fd=directory)
            if look_at(directory, away, None, None).found.sha256 == sha256:
                os.unlink(away, dir_fd=directory)
                return True
            # If the name is taken again, a scan finds the file under its temporary name.
            with suppress(FileExistsError):
                rename_new(directory, away, directory, name)
            return False

    def put_own(self, path: str, content: bytes) -> None:
        """Write *content* to *path*, a reserved name, replacing any file there."""
        with self._above(path) as (directory, name), self._changing(directory):
            part = self._begin(directory, content, time.time_ns(), lasting=False).name
            try:
                os.rename(part, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                os.unlink(part, dir_fd=directory)
                raise

    def drop(self, path: str) -> None:
        """Remove the file at *path*, with any content."""
        with self._above(path) as (directory, name), self._changing(directory):
            os.unlink(name, dir_fd=directory)

    def move(self, old: str, new: str) -> bool:
        """Rename *old* to *new*; return False if that fails or *new* exists."""
        try:
            with (
                self._above(old) as (source, name),
                self._above(new, make=True) as (target, goal),
                self._changing(source),
                self._changing(target),
            ):
                rename_new(source, name, target, goal)
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

    def read(self, path: str, most: int) -> bytes | None:
        """Return the bytes of the file at *path*, or None if over *most* bytes."""
        with self._above(path) as (directory, name):
            fd = os.open(name, READ, dir_fd=directory)
            with os.fdopen(fd, "rb") as file:
                content = file.read(most + 1)
        return None if len(content) > most else content

    def sync(self) -> None:
        """Sync files to disk that were written without *lasting*."""
        fd = os.open(self.root, _DIRECTORY)
        try:
            sync_all(fd)
        finally:
            os.close(fd)

    def set_writable(self, *, writable: bool) -> None:
        """Set the modes of all files for a writable or a read-only store, if needed."""
        self.writable = writable
        if bool(self.root.stat().st_mode & _WRITE_BITS) == writable:
            return
        self._set_mode("/", self._directory_mode)
        for entry in self.walk():
            if entry.what is What.DIRECTORY:
                self._set_mode(entry.path, self._directory_mode)
            elif entry.what is What.FILE:
                self._set_mode(entry.path, self._file_mode)

    @property
    def _directory_mode(self) -> int:
        return 0o755 if self.writable else 0o555

    @property
    def _file_mode(self) -> int:
        return 0o644 if self.writable else 0o444

    def _set_mode(self, path: str, mode: int) -> None:
        with suppress(OSError):
            if path == "/":
                self.root.chmod(mode, follow_symlinks=False)
                return
            with self._above(path) as (directory, name):
                fd = os.open(name, READ, dir_fd=directory)
                try:
                    os.fchmod(fd, mode)
                finally:
                    os.close(fd)

    def _begin(self, directory: int, content: bytes, at_ns: int, *, lasting: bool) -> "_Part":
        """Write *content* to a temporary file, and return it."""
        part = own.begun()
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
                born = born_at(fd, found)
        except BaseException:
            os.unlink(part, dir_fd=directory)
            raise
        hashed = sha256(content).hexdigest()
        return _Part(part, hashed, (found.st_ino, found.st_size, found.st_mtime_ns), born)

    @contextmanager
    def _above(self, path: str, *, make: bool = False) -> Generator[tuple[int, str]]:
        """Yield the open directory of *path*, and the path's last component."""
        *above, name = path[1:].split("/")
        fd = os.open(self.root, _DIRECTORY)
        try:
            for each in above:
                below = self._step(fd, each, make=make)
                os.close(fd)
                fd = below
            yield fd, name
        finally:
            os.close(fd)

    def _step(self, directory: int, name: str, *, make: bool) -> int:
        try:
            return os.open(name, _DIRECTORY, dir_fd=directory)
        except NotADirectoryError:
            there = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(there.st_mode):
                raise
            raise OSError(ELOOP, os.strerror(ELOOP), name) from None
        except FileNotFoundError:
            if not make:
                raise
        with self._changing(directory), suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=directory)
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
        return LocalEntry(path, What.ABSENT)
    if stat.S_ISREG(found.st_mode):
        return LocalEntry(path, What.FILE, Mark.of(found))
    return LocalEntry(path, What.DIRECTORY if stat.S_ISDIR(found.st_mode) else What.FOREIGN)


class _Part(NamedTuple):
    """A temporary file to be renamed, identified by inode, size and mtime."""

    name: str
    sha256: str
    identity: tuple[int, int, int]
    born: int | None


def _put(directory: int, name: str, part: _Part) -> Put:
    """Return the identity of *part* under *name*, and whether it is unchanged there."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return Put(Mark.unsure(*part.identity), part.born, alone=False)
    if (found.st_ino, found.st_size, found.st_mtime_ns) != part.identity:
        return Put(Mark.unsure(*part.identity), part.born, alone=False)
    return Put(Mark.of(found), part.born, alone=True)


def _placed(directory: int, part: _Part, name: str, over: str | None) -> bool:
    """Rename *part* to *name* if it is free, or has a file with the hash *over*."""
    if over is None:
        try:
            rename_new(directory, part.name, directory, name)
        except FileExistsError:
            return False
        return True
    try:
        return _replaced(directory, part, name, over)
    except FileNotFoundError:
        return False


def _replaced(directory: int, part: _Part, name: str, over: str) -> bool:
    away = own.taken(part.sha256, over)
    os.rename(part.name, away, src_dir_fd=directory, dst_dir_fd=directory)
    try:
        if not exchange(directory, away, name):
            there = look_at(directory, name, None, None).found.sha256 == over
            if there:
                os.rename(away, name, src_dir_fd=directory, dst_dir_fd=directory)
            return there
        if look_at(directory, away, None, None).found.sha256 == over:
            return True
        exchange(directory, away, name)
        return False
    finally:
        with suppress(FileNotFoundError):
            if look_at(directory, away, None, None).found.sha256 in (part.sha256, over):
                os.unlink(away, dir_fd=directory)
