"""Sync state of one store: the last common version of each file and memory.

The state file has one line for each base, added once file and head are equal: both are never older
than the state, so that after a crash the change is found on both sides. The last line of a path
counts; a truncated line does not.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.doors.mount.sync.merge import Agreed, FileIdentity
from holdfast.doors.mount.sync.sight import LocalFile, Mark

SUFFIX = ".jsonl"
_NAME = 32
_TIDIED_AT = 1_000
"""Number of obsolete lines at which the file is rewritten."""


class Known(Struct, frozen=True, array_like=True):
    """Base of a path: its memory when file and head were equal, and the file's mark."""

    path: str
    memory_id: str
    sha256: str
    mark: Mark | None
    born: int | None

    @property
    def agreed(self) -> Agreed:
        """The memory and content of the base."""
        return Agreed(self.memory_id, self.sha256)

    @property
    def traced(self) -> FileIdentity:
        """The identity of the file, to recognise it under another name."""
        return FileIdentity(self.path, self.sha256, self.mark.inode if self.mark else -1, self.born)

    @classmethod
    def of(cls, path: str, agreed: Agreed, seen: LocalFile) -> "Known":
        """Return the base *agreed* of *path*, with the mark of the file *seen*."""
        # A file with other content must not provide the mark.
        same = seen.found.sha256 == agreed.sha256
        mark, born = (seen.mark, seen.born) if same else (None, None)
        return cls(path, agreed.memory_id, agreed.sha256, mark, born)


class Header(Struct, frozen=True, kw_only=True, tag_field="type", tag="synced_store"):
    """First line of a state file: the store, and the name of its directory."""

    version: int = 1
    store_id: str
    slug: str


class State:
    """The bases of one store, stored in *file*."""

    def __init__(self, file: Path, header: Header) -> None:
        self._file, self._header = file, header
        self._by_path: dict[str, Known] = {}
        self._by_id: dict[str, str] = {}
        self._lines = 0
        self._fd: int | None = None
        self.store_id, self.slug = header.store_id, header.slug
        """The name of the directory when it was last synced."""
        self.failed = False
        """Whether the last line could not be written."""
        self.kept = file.exists()
        """Whether the state file existed at the start."""
        with suppress(msgspec.DecodeError):
            for line in _lines(file):
                self._take(line)

    def __len__(self) -> int:
        return len(self._by_path)

    def __iter__(self) -> Iterator[Known]:
        return iter(list(self._by_path.values()))

    def get(self, path: str) -> Known | None:
        """Return the base of *path*, or None."""
        return self._by_path.get(path)

    def of(self, memory_id: str) -> Known | None:
        """Return the last recorded base of the memory *memory_id*, or None."""
        path = self._by_id.get(memory_id)
        return None if path is None else self._by_path[path]

    def below(self, directory: str) -> list[str]:
        """Return the paths with a base below *directory*."""
        prefix = directory.removesuffix("/") + "/"
        return [path for path in self._by_path if path.startswith(prefix)]

    def put(self, known: Known) -> None:
        """Record *known*; a base of its memory at another path stays until `forget`."""
        if self._by_path.get(known.path) != known:
            self._set(known)
            self._append([known])

    def put_all(self, known: Iterable[Known]) -> None:
        """Record all of *known* in one write."""
        new = list(known)
        for each in new:
            self._set(each)
        self._append(new)

    def forget(self, path: str) -> None:
        """Remove the base of *path*."""
        if path in self._by_path:
            self._drop(path)
            self._append([(path,)])

    def open(self) -> None:
        """Open the state file for writing, after rewriting it atomically."""
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._rewrite()

    def tidy(self) -> None:
        """Rewrite the file if most lines are obsolete, or after a failed write."""
        if self.failed or self._lines > 2 * len(self) + _TIDIED_AT:
            with suppress(OSError):
                self._rewrite()

    def close(self) -> None:
        """Rewrite the file without obsolete lines, and close it."""
        if self._fd is not None:
            with suppress(OSError):
                self._rewrite()
            os.close(self._fd)
            self._fd = None

    def remove(self) -> None:
        """Delete the state of a deleted store."""
        self._by_path.clear()
        self._by_id.clear()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self._file.unlink(missing_ok=True)

    def _take(self, line: bytes) -> None:
        """Apply a line of the file."""
        if line.startswith(b"{"):
            self.slug = msgspec.json.decode(line, type=Header).slug
            return
        parts = msgspec.json.decode(line, type=list[object])
        if len(parts) == 1:
            self._drop(str(parts[0]))
        else:
            self._set(msgspec.convert(parts, Known))

    def _set(self, known: Known) -> None:
        self._drop(known.path)
        self._by_path[known.path] = known
        self._by_id[known.memory_id] = known.path

    def _drop(self, path: str) -> None:
        known = self._by_path.pop(path, None)
        if known is not None and self._by_id.get(known.memory_id) == path:
            del self._by_id[known.memory_id]

    def _append(self, lines: Iterable[object]) -> None:
        written = [msgspec.json.encode(line) + b"\n" for line in lines]
        self._lines += len(written)
        if self._fd is None or self.failed:
            return
        try:
            _write(self._fd, b"".join(written))
        except OSError:
            self.failed = True

    def _rewrite(self) -> None:
        part = self._file.with_suffix(".part")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            lines: list[object] = [self._header, *self._by_path.values()]
            _write(fd, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            os.fsync(fd)
            part.replace(self._file)
        except BaseException:
            os.close(fd)
            self.failed = True
            raise
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._lines, self.failed = fd, len(self), False


def state_file(folder: Path, store_id: str) -> Path:
    """Return the path of the state file of a store in *folder*."""
    # The id comes from a server.
    return folder / (sha256(store_id.encode()).hexdigest()[:_NAME] + SUFFIX)


def _lines(file: Path) -> list[bytes]:
    """Return the complete lines of *file*."""
    try:
        return file.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


def _write(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]
