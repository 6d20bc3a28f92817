"""Safe folders of an export, and atomic writes in them.

The folder is not trusted: only regular files are opened, reads are bounded, and each name is
resolved relative to the descriptor of the folder that was listed.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, cast

from msgspec import Struct

from holdfast.ground.errors import InvalidInput, Reason, Unavailable
from holdfast.ground.permissions import create_file, create_folder, create_folders
from holdfast.memories.durable.markdown.format import MARKER, SUFFIX, File, is_exported_name

MOST_BYTES: Final = 262_144
"""Bytes of one file: more than the longest content with front matter."""


class FolderLimits(Struct, frozen=True, kw_only=True):
    """Limits of reading a folder.

    `together` is in bytes of Markdown, `names` counts entries of any kind, `depth` folders in
    folders. An export of the greatest permitted memory stays within them, and has one level of
    folders.
    """

    together: int = 1_073_741_824
    names: int = 1_000_000
    depth: int = 8


ROOMY: Final = FolderLimits()

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK: Final = 65_536

_TEMPORARY = re.compile(r"\.holdfast-[0-9a-f]{16}\.part")
"""Name of a temporary file, until it is complete."""
_EXPORTED = re.compile(r"(?!\.{1,2}/)[a-z0-9._-]{1,160}/[a-z0-9._-]{1,160}\.md")

_STORAGE: Final[dict[int, Reason]] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read_only",
    errno.EIO: "io",
    errno.EMFILE: "io",
    errno.ENFILE: "io",
}


class Passed(Struct, frozen=True):
    """A file or folder that was not read, with the reason."""

    path: str
    reason: str


class Folder(Struct, frozen=True, kw_only=True):
    """The Markdown files of a folder, by path, and the names that were not read."""

    files: tuple[File, ...]
    passed: tuple[Passed, ...]


def read_folder(directory: str | os.PathLike[str], bounds: FolderLimits = ROOMY) -> Folder:
    """Return the Markdown files in *directory* and its folders.

    Raises InvalidInput when *directory* is no folder or exceeds the limits. Hidden files are
    skipped, except those with a name of an export.
    """
    reading = _FolderReader(bounds)
    named = _checked(directory)
    with _system_errors(named), _opened(named, within=None) as folder:
        reading.look(folder, "", depth=0)
    return Folder(files=tuple(reading.files), passed=tuple(reading.passed))


class _FolderReader:
    """Files read so far, checked against the limits."""

    def __init__(self, bounds: FolderLimits) -> None:
        self._bounds = bounds
        self.files: list[File] = []
        self.passed: list[Passed] = []
        self._names = self._bytes = 0

    def look(self, folder: int, prefix: str, *, depth: int) -> None:
        """Read all files in *folder*; their paths begin with *prefix*."""
        for entry in self._entries(folder):
            path = prefix + _printable(entry.name)
            if entry.name.startswith(".") and not is_exported_name(entry.name):
                continue
            try:
                self._take(entry, folder, path, depth=depth)
            except OSError as error:
                self._pass(path, f"cannot be read: {_why(error)}")

    def _entries(self, folder: int) -> list[os.DirEntry[str]]:
        entries: list[os.DirEntry[str]] = []
        with os.scandir(folder) as found:
            for entry in found:
                entries.append(entry)
                self._names += 1
                if self._names > self._bounds.names:
                    raise _too_much(self._bounds.names, "files and folders")
        return sorted(entries, key=lambda entry: os.fsencode(entry.name))

    def _take(self, entry: os.DirEntry[str], folder: int, path: str, *, depth: int) -> None:
        if entry.is_symlink():
            self._pass(path, "is a link: links are not followed")
        elif entry.is_dir(follow_symlinks=False):
            if depth == self._bounds.depth:
                self._pass(path, f"lies more than {depth} folders deep")
                return
            with _opened(entry.name, within=folder) as inner:
                self.look(inner, f"{path}/", depth=depth + 1)
        elif entry.name.lower().endswith(SUFFIX):
            self._read(entry, folder, path)

    def _read(self, entry: os.DirEntry[str], folder: int, path: str) -> None:
        content = read_bytes(entry.name, folder) if entry.is_file(follow_symlinks=False) else None
        if content is None:
            self._pass(path, "is no regular file")
        elif len(content) > MOST_BYTES:
            self._pass(path, f"has more than {MOST_BYTES:,} bytes")
        else:
            self._bytes += len(content)
            if self._bytes > self._bounds.together:
                raise _too_much(self._bounds.together, "bytes of Markdown")
            try:
                self.files.append((path, content.decode()))
            except UnicodeDecodeError:
                self._pass(path, "is not UTF-8")

    def _pass(self, path: str, reason: str) -> None:
        self.passed.append(Passed(path, reason))


def read_bytes(name: str, folder: int) -> bytes | None:
    """Read the file *name* in *folder*, cut past its limit.

    Returns None if it is no regular file.
    """
    try:
        file = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        content = bytearray()
        while len(content) <= MOST_BYTES and (more := os.read(file, _CHUNK)):
            content += more
        return bytes(content)
    finally:
        os.close(file)


class ExportFolder:
    """A folder to export to: absent, empty, or an earlier export.

    Opened by `target`. Nothing is changed until `write`.
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def marker(self) -> bytes | None:
        """Return the content of the marker file, or None."""
        try:
            return read_bytes(MARKER, self._folder)
        except FileNotFoundError:
            return None

    def is_empty(self) -> bool:
        """Return whether it has no files but those of an interrupted export."""
        with os.scandir(self._folder) as found:
            return all(_TEMPORARY.fullmatch(each.name) for each in found)

    def check(self, files: Iterable[File]) -> None:
        """Raise InvalidInput unless each of *files* can be written to its path."""
        for path, _ in files:
            if path != MARKER and not _EXPORTED.fullmatch(path):
                raise InvalidInput("files", "must have the paths of an export", given=path)
            folder, slash, name = path.rpartition("/")
            found = self._found(folder, within=self._folder) if slash else None
            if found is not None and not stat.S_ISDIR(found):
                raise InvalidInput("directory", "holds something else where a folder must be")
            if found is not None:
                with _opened(folder, within=self._folder) as inner:
                    found = self._found(name, within=inner)
            elif not slash:
                found = self._found(name, within=self._folder)
            if found is not None and stat.S_ISDIR(found):
                raise InvalidInput("directory", "holds a folder where a file must be", given=path)

    def earlier(self, new: frozenset[str]) -> Iterator[tuple[str, str | None]]:
        """Yield path and text of earlier files that are not among *new*.

        The text is None for temporary files of an interrupted export.
        """
        yield from ((name, None) for name in _names(self._folder) if _TEMPORARY.fullmatch(name))
        for folder in self._folders():
            with _opened(folder, within=self._folder) as inner:
                for name in _names(inner):
                    path = f"{folder}/{name}"
                    if _TEMPORARY.fullmatch(name):
                        yield path, None
                    elif path not in new and _EXPORTED.fullmatch(path):
                        content = read_bytes(name, inner)
                        with suppress(UnicodeDecodeError):
                            if content is not None and len(content) <= MOST_BYTES:
                                yield path, content.decode()

    def write(self, files: Iterable[File]) -> None:
        """Write *files*, each to a temporary file that is then renamed.

        They survive a power loss.
        """
        folders = set[str]()
        for path, text in files:
            folder, slash, name = path.rpartition("/")
            if not slash:
                _write(name, text.encode(), self._folder)
                # Files without the marker would be no export.
                os.fsync(self._folder)
                continue
            create_folder(folder, within=self._folder)
            with _opened(folder, within=self._folder) as inner:
                _write(name, text.encode(), inner)
            folders.add(folder)
        for folder in folders:
            with _opened(folder, within=self._folder) as inner:
                os.fsync(inner)
        os.fsync(self._folder)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove the files at *paths*, and folders that become empty."""
        left: set[str] = set()
        for path in paths:
            folder, slash, name = path.rpartition("/")
            within = _opened(folder if slash else ".", within=self._folder)
            with within as inner, suppress(FileNotFoundError):
                os.unlink(name, dir_fd=inner)
                os.fsync(inner)
            left.update([folder] if slash else [])
        for folder in left:
            # A folder that is not empty stays.
            with suppress(OSError):
                os.rmdir(folder, dir_fd=self._folder)

    def _folders(self) -> list[str]:
        with os.scandir(self._folder) as found:
            return sorted(each.name for each in found if each.is_dir(follow_symlinks=False))

    @staticmethod
    def _found(name: str, *, within: int) -> int | None:
        try:
            return os.stat(name, dir_fd=within, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None


@contextmanager
def target(directory: str | os.PathLike[str]) -> Generator[ExportFolder, None, None]:
    """Open *directory* for an export, and create it if it is absent.

    New folders have the mode 0700, new files 0600; an existing folder keeps its mode. Raises
    InvalidInput when it cannot be written to, Unavailable when the storage fails.
    """
    named = _checked(directory)
    with _system_errors(named):
        create_folders(Path(named))
        with _opened(named, within=None) as folder:
            yield ExportFolder(folder)


def _checked(directory: object) -> str:
    """Return *directory* as text; raise InvalidInput if it cannot be a path."""
    try:
        named: object = os.fspath(cast("str", directory))
    except TypeError:
        named = None
    if not isinstance(named, str) or not named or "\0" in named:
        raise InvalidInput("directory", "must be the path of a folder", given=repr(named))
    return named


def _write(name: str, content: bytes, folder: int) -> None:
    temporary = f".holdfast-{secrets.token_hex(8)}.part"
    try:
        with create_file(temporary, within=folder) as file:
            file.write(content)
            file.flush()
            # Else a power loss may leave the name with an empty file.
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as found:
        return sorted(each.name for each in found if each.is_file(follow_symlinks=False))


@contextmanager
def _opened(name: str, *, within: int | None) -> Generator[int, None, None]:
    """Open the folder *name* within another, or by its path.

    A path may be a link, as the user named it; a name within a folder may not.
    """
    flags = _FOLDER if within is not None else _FOLDER & ~os.O_NOFOLLOW
    folder = os.open(name, flags, dir_fd=within)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _system_errors(directory: str) -> Generator[None, None, None]:
    """Translate OSError raised within to InvalidInput or Unavailable."""
    try:
        yield
    except OSError as error:
        storage = _STORAGE.get(error.errno or 0)
        if storage is not None:
            message = f"The folder cannot be used: {_why(error)}."
            raise Unavailable(message, reason=storage) from error
        reason = f"cannot be used: {_why(error)}"
        raise InvalidInput("directory", reason, given=directory) from error


def _too_much(limit: int, what: str) -> InvalidInput:
    return InvalidInput("directory", f"must hold at most {limit:,} {what}", limit=limit)


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _printable(name: str) -> str:
    """Return *name* as text, with invalid bytes as escapes."""
    return os.fsencode(name).decode(errors="backslashreplace")
