"""Knowledge of one synced store: agreed versions, heads, missing files, notices.

The state file has one line for each base, added once file and head are equal: both are never older
than the state, so that after a crash the change is found on both sides. The last line of a path
counts; a truncated line does not.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from errno import (
    EACCES,
    EEXIST,
    EFBIG,
    EILSEQ,
    EINVAL,
    ENAMETOOLONG,
    ENOSPC,
    EPERM,
    EROFS,
    errorcode,
)
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.doors.mount.names import is_shown
from holdfast.doors.mount.sync.files import LocalFile, Mark, is_reserved
from holdfast.ground.errors import InvalidInput
from holdfast.memories.stores.records import Applied, ChangesPage, Memory, Snapshot

SUFFIX = ".jsonl"
_NAME = 32
_TIDIED_AT = 1_000
"""Number of obsolete lines at which the file is rewritten."""


class Agreed(Struct, frozen=True):
    """A memory and its content: of a head, or of a base."""

    memory_id: str
    sha256: str

    @classmethod
    def of(cls, head: Memory | None) -> "Agreed | None":
        """Return the id and content hash of *head*."""
        return None if head is None else cls(head.id, head.content_sha256)


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

    @classmethod
    def of(cls, path: str, agreed: Agreed, file: LocalFile) -> "Known":
        """Return the base *agreed* of *path*, with the mark of *file*."""
        # A file with other content must not provide the mark.
        same = file.sha256 == agreed.sha256
        mark, born = (file.mark, file.born) if same else (None, None)
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
        self.existed = file.exists()
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

    def put(self, *known: Known) -> None:
        """Record *known* in one write; bases at other paths stay until `forget`."""
        new = [each for each in known if self._by_path.get(each.path) != each]
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
        if not written or self._fd is None or self.failed:
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


# The directories of stores are renamed when the stores' names changed or were swapped: through a
# temporary name from the store's id, so that the next start can identify it after a crash.


def check_directory(directory: Path, states: Mapping[str, State], *, known: bool) -> None:
    """Raise InvalidInput if *directory* has files without a recorded state.

    *known*: whether anything was ever synced with it; *states* are by current name.
    """
    theirs = {state.slug for state in states.values() if state.existed}
    strangers = [] if known else _names(directory)
    strangers += [slug for slug in states if slug not in theirs and _names(directory / slug)]
    if strangers:
        reason = f"holds {strangers[0]!r}, and was not synced with these stores before"
        raise InvalidInput("DIR", reason, given=directory, next="Choose an empty directory.")


def rename_directories(directory: Path, states: Mapping[str, State]) -> None:
    """Rename the directory of each store to its current name, and record that."""
    moving = {
        slug: directory / f".moving-{sha256(state.store_id.encode()).hexdigest()[:16]}"
        for slug, state in states.items()
    }
    for slug, state in states.items():
        if state.existed and state.slug != slug:
            with suppress(FileNotFoundError):
                (directory / state.slug).rename(moving[slug])
    for state in states.values():
        state.open()
    for slug, temporary in moving.items():
        with suppress(FileNotFoundError):
            temporary.rename(directory / slug)


def _names(directory: Path) -> list[str]:
    """Return the names in *directory*; none if it does not exist."""
    try:
        return sorted(each.name for each in directory.iterdir())
    except FileNotFoundError:
        return []


class LocalHeads:
    """The heads of one store, by path and by id, as of a sequence number."""

    def __init__(self) -> None:
        self.seq = 0
        self.cap = 0
        self._by_path: dict[str, Memory] = {}
        self._by_id: dict[str, Memory] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def at(self, path: str) -> Memory | None:
        """Return the head at *path* if it can be on disk, else None."""
        memory = self._by_path.get(path)
        return memory if memory is not None and _fits(path) else None

    def of(self, memory_id: str) -> Memory | None:
        """Return the head of *memory_id*, or None."""
        return self._by_id.get(memory_id)

    def paths(self) -> list[str]:
        """Return the paths of heads that can be on disk."""
        return [path for path in self._by_path if _fits(path)]

    @property
    def unfit(self) -> list[str]:
        """The ids of the memories that cannot be on disk."""
        return [memory.id for path, memory in list(self._by_path.items()) if not _fits(path)]

    def absorb(self, changes: ChangesPage) -> set[str]:
        """Apply newer changes of the feed; return the paths that changed."""
        self.cap = changes.cap
        touched: set[str] = set()
        for change in changes.changes:
            if change.seq > self.seq:
                touched |= self._put(change.memory_id, change.memory)
        self.seq = max(self.seq, changes.seq)
        return touched

    def reset(self, snapshot: Snapshot) -> set[str]:
        """Replace the heads by *snapshot*, unless it is older; return what changed."""
        touched: set[str] = set()
        if snapshot.seq < self.seq:
            return touched
        self.cap, self.seq = snapshot.cap, snapshot.seq
        found = {memory.id: memory for memory in snapshot.memories}
        for id in self._by_id.keys() | found.keys():
            touched |= self._put(id, found.get(id))
        return touched

    def put(self, applied: Applied) -> None:
        """Apply the result of an edit of this mount, before the feed has it."""
        for memory in applied.memories:
            self._put(memory.id, memory)
        for id in applied.deleted:
            self._put(id, None)

    def lose(self, memory_id: str) -> set[str]:
        """Record that a memory was deleted, at any seq; return the paths that changed."""
        return self._put(memory_id, None)

    def clear(self) -> set[str]:
        """Remove all heads of a deleted store; return their paths."""
        paths = set(self._by_path)
        self._by_path.clear()
        self._by_id.clear()
        return paths

    def _put(self, id: str, memory: Memory | None) -> set[str]:
        """Set *memory* as the head of *id*; return the paths that changed."""
        before = self._by_id.pop(id, None)
        if before is not None and self._by_path.get(before.path) is before:
            del self._by_path[before.path]
        if memory is not None:
            self._by_id[id] = self._by_path[memory.path] = memory
        return set() if before == memory else {each.path for each in (before, memory) if each}


def _fits(path: str) -> bool:
    """Check whether *path* can be on disk: short names, none of them reserved."""
    return is_shown(path) and not is_reserved(path)


class _Absence(Struct):
    """A missing file: since when, and from when on it counts as deleted, if known.

    `held` is a time before which it does not.
    """

    since: float
    due: float | None = None
    held: float = 0.0


class Missing:
    """Known files that are not on disk, by path, and when each counts as deleted."""

    def __init__(self) -> None:
        self._absent: dict[str, _Absence] = {}
        self._events: set[str] = set()

    def __contains__(self, path: str) -> bool:
        return path in self._absent

    def __len__(self) -> int:
        return len(self._absent)

    def add_events(self, paths: Iterable[str]) -> None:
        """Record events at *paths*: a file missing there was deleted or renamed."""
        self._events.update(paths)

    def has_event(self, path: str) -> bool:
        """Check whether *path* had an event since the file was last found."""
        return path in self._events

    def add(self, path: str, now: float, wait: float) -> None:
        """Record that the file is missing *now*; after an event it is due after *wait*."""
        absence = self._absent.setdefault(path, _Absence(now))
        if path in self._events and absence.due is None:
            absence.due = now + wait

    def hold(self, path: str, now: float, until: float) -> None:
        """Do not count it as deleted before *until*: it may have become a backup."""
        self._absent.setdefault(path, _Absence(now)).held = until

    def since(self, path: str, now: float) -> float:
        """Return since when the file has been missing; *now* if not recorded."""
        return self._absent[path].since if path in self._absent else now

    def due(self, path: str) -> float | None:
        """Return when the file counts as deleted; None without an event."""
        absence = self._absent[path]
        return None if absence.due is None else max(absence.due, absence.held)

    def confirm(self, paths: Iterable[str], now: float) -> None:
        """Record that *paths* count as deleted from *now* on."""
        for path in paths:
            if path in self._absent:
                self._absent[path].due = now

    def found(self, path: str) -> None:
        """Record that the file exists, or need not exist."""
        self._absent.pop(path, None)
        self._events.discard(path)

    def without_event(self) -> dict[str, float]:
        """Return since when each file without an event has been missing."""
        return {path: each.since for path, each in self._absent.items() if each.due is None}


LINES_MAX = 1_000
"""Lines of the errors file; the status counts all."""

UNDONE_MAX = 100
"""Undone changes that are still listed."""

ADVICE = {
    EFBIG: "is larger than 102,400 bytes: split it into several files",
    EILSEQ: "is not UTF-8 text, or holds a zero byte: save it as text",
    EINVAL: "has a name that no memory can have (it must be Unicode NFC, all visible): rename it",
    ENAMETOOLONG: "has too long a name, or is too deep: rename or move it",
    ENOSPC: "finds the store full: delete or merge other files",
    EEXIST: "has the place of another file, or of a directory of others: rename it",
    EACCES: "cannot be read or written here: see its permissions, or sign in again",
    EPERM: "is ignored, and not saved",
    EROFS: "was changed, but the store is read-only: the change was undone",
}
"""Problem and advice by errno."""

RETRIED = "could not be saved: it is tried again"
LINK = "is a link, a pipe or a device: put a plain file in its place"
VERSION_CONTROL = "is of version control: keep it outside"
NOT_OF_STORE = "is not of the store, which is read-only: remove it"
NOT_DONE = "cannot be changed on this disk: see its permissions and its space"
UNWRITTEN = "is a memory that could not be written here"


class Notice(Struct, frozen=True):
    """One problem: an errno, and what to do about it."""

    errno: int
    advice: str

    @classmethod
    def of(cls, errno: int, advice: str = "") -> "Notice":
        """Return the notice of *errno*, with the text *advice* or the default advice."""
        return cls(errno, advice or ADVICE.get(errno, RETRIED))


class SyncNotices:
    """Notices of one store, by path. One thread writes; any thread may read."""

    def __init__(self) -> None:
        self._notices: dict[str, Notice] = {}
        self._undone: dict[str, Notice] = {}

    def __len__(self) -> int:
        return len({**self._undone, **self._notices})

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._notices))

    @property
    def hidden(self) -> list[str]:
        """The paths of memories that could not be written."""
        return [path for path, each in self._notices.items() if each.advice == UNWRITTEN]

    def put(self, path: str, notice: Notice) -> bool:
        """Set the notice of *path*; return whether it is new."""
        news = self._notices.get(path) != notice
        if news:
            self._notices = {**self._notices, path: notice}
        return news

    def keep(self, path: str, errno: int) -> bool:
        """Add a notice of a past event at *path*; return whether it is new.

        At most 100 are stored; the oldest are dropped.
        """
        news = path not in self._undone
        rest = [item for item in self._undone.items() if item[0] != path]
        self._undone = dict([*rest, (path, Notice.of(errno))][-UNDONE_MAX:])
        return news

    def clear(self, path: str) -> None:
        """Remove the notice of *path*."""
        if path in self._notices:
            self._notices = {each: n for each, n in self._notices.items() if each != path}

    def lines(self, most: int = LINES_MAX) -> list[str]:
        """Return a line for each notice, by path: errno, path, advice.

        At most *most*; the last line then has the number of the rest.
        """
        notices = {**self._undone, **self._notices}
        lines = [
            f"{errorcode.get(notice.errno, 'EIO')} {_shown(path)} {notice.advice}"
            for path, notice in sorted(notices.items())[:most]
        ]
        left = len(notices) - len(lines)
        return [*lines, f"… and {left:,} more"] if left else lines

    def text(self) -> bytes:
        """Return the content of the errors file; empty without notices."""
        return "".join(f"{line}\n" for line in self.lines()).encode()


def _shown(path: str) -> str:
    """Return *path* on one line, with invisible and non-UTF-8 characters escaped."""
    if path.isprintable():
        return path
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in path
    )
