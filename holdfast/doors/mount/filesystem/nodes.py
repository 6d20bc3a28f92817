"""Nodes of a mounted store, buffers of unsaved bytes, and the kernel's interface.

A mount holds ten thousand files in memory, so `Work`, which most of them never need, is created
when a file is opened and dropped when it is idle.
"""

import codecs
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from errno import EFBIG, EILSEQ
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.doors.mount.names import Kind
from holdfast.doors.mount.storage.spool import SpoolEntry
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import Applied, Memory
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX


class Attributes(Struct, frozen=True, kw_only=True):
    """Attributes of one name for `stat`; `mode` has type and permission bits."""

    inode: int
    mode: int
    size: int
    nlink: int
    mtime_ns: int


class DirectoryEntry(Struct, frozen=True):
    """One name in a directory."""

    name: str
    attributes: Attributes


class Space(Struct, frozen=True, kw_only=True):
    """Free space for `df`: blocks of 4,096 bytes, and files."""

    blocks: int
    free_blocks: int
    files: int
    free_files: int
    name_max: int = 255


class Kernel(Protocol):
    """Calls from the core to its binding."""

    def step_aside(self) -> None:
        """Let another thread receive requests: this one is about to wait for storage.

        Only the first call in a request has an effect; outside a request it does nothing.
        """
        ...

    def forget_content(self, path: str) -> None:
        """Invalidate data and attributes of *path*, soon, from another thread."""
        ...

    def forget_name(self, directory: str, name: str) -> None:
        """Invalidate *name* in *directory*, soon, from another thread."""
        ...


class NoKernel:
    """A kernel without caches, for a core that is called directly."""

    def step_aside(self) -> None:
        """Do nothing."""

    def forget_content(self, path: str) -> None:
        """Do nothing."""

    def forget_name(self, directory: str, name: str) -> None:
        """Do nothing."""


# One buffer serves all handles of a file. It records how it differs from the last save, which
# decides how it is saved: appended bytes go after the memory's current content, a whole
# replacement is unconditional, any other edit requires the content it was based on.

SCRATCH_BYTES_MAX = 6 * 1024 * 1024
"""Bytes of one scratch file; many times vim's swap file of the largest memory."""

_UNTOUCHED = sys.maxsize
_CHARACTER_MAX = 4
"""Bytes of the longest character."""
_ASCII_END = 0x80
_LEADS = ((0xC0, 2), (0xE0, 3), (0xF0, 4))
"""Lowest lead byte of a UTF-8 character, and the character's size in bytes."""


def content_fault(content: bytes, *, zeros: bool = False) -> int:
    """Return the errno why no memory can have *content*, EFBIG or EILSEQ, or 0.

    Zero bytes are a fault unless *zeros*.
    """
    if len(content) > CONTENT_BYTES_MAX:
        return EFBIG
    if not zeros and 0 in content:
        return EILSEQ
    if not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError:
            return EILSEQ
    return 0


def _cut_at_end(content: bytes | bytearray) -> bytes:
    """Return the bytes of an incomplete character at the end of *content*."""
    tail = bytes(content[1 - _CHARACTER_MAX :])
    for back in range(1, len(tail) + 1):
        byte = tail[-back]
        if not _continues(byte):
            whole = max((size for lead, size in _LEADS if byte >= lead), default=1)
            return tail[-back:] if back < whole else b""
    return b""


def _continues(byte: int) -> bool:
    """Check whether *byte* is a UTF-8 continuation byte."""
    return _ASCII_END <= byte < _LEADS[0][0]


def _is_text(stream: bytes) -> bool:
    """Check whether *stream* is UTF-8, allowing an incomplete character at its end."""
    try:
        codecs.utf_8_decode(stream, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


class BufferSnapshot(Struct, frozen=True, kw_only=True):
    """Snapshot of a dirty buffer: its content, and how it differs from its base.

    `appended` is what was added to the base, if that is the only change.
    """

    content: bytes
    memory_id: str | None
    base_sha256: str | None
    base_size: int
    low: int
    replaced: bool
    zeros: bool

    @property
    def appended(self) -> bytes | None:
        """The bytes to append to the memory's current content; None for other changes."""
        if self.replaced or self.base_sha256 is None or self.low < self.base_size:
            return None
        return self.content[self.base_size :]

    def on(self, earlier: "BufferSnapshot") -> "BufferSnapshot":
        """Return this snapshot, based on *earlier*, rebased on the base of *earlier*."""
        return replace(
            self,
            memory_id=earlier.memory_id,
            base_sha256=earlier.base_sha256,
            base_size=earlier.base_size,
            low=min(self.low, earlier.low),
            replaced=self.replaced or earlier.replaced,
        )


class Buffer:
    """The bytes of one open file, and their difference to *base*, the last save.

    *memory_id* is the memory that the base is the content of, None for a new file. *zeros* is
    whether the content may have zero bytes, None if not known yet.
    """

    __slots__ = (
        "base_sha256",
        "base_size",
        "changed_at",
        "data",
        "low",
        "memory_id",
        "replaced",
        "unsaved",
        "version",
        "zeros",
    )

    def __init__(
        self,
        base: bytes,
        changed_at: datetime,
        *,
        memory_id: str | None = None,
        base_sha256: str | None = None,
        zeros: bool | None = False,
    ) -> None:
        self.data = bytearray(base)
        self.changed_at = changed_at
        self.memory_id, self.base_sha256, self.base_size = memory_id, base_sha256, len(base)
        self.low = _UNTOUCHED
        self.replaced = False
        self.unsaved = False
        self.zeros = zeros
        self.version = 0

    def fault(self, data: bytes, offset: int) -> int:
        """Return why a memory cannot hold *data* at *offset*: EFBIG, EILSEQ, or 0.

        A character that the end of a write cuts is no fault: later bytes may complete it. Neither
        are zero bytes that fill the gap between the end of the file and *offset*.
        """
        if offset + len(data) > CONTENT_BYTES_MAX:
            return EFBIG
        if not self.zeros and 0 in data:
            return EILSEQ
        size = len(self.data)
        if offset == size and size and self.data[-1] >= _ASCII_END:
            return 0 if _is_text(_cut_at_end(self.data) + data) else EILSEQ
        if data.isascii():
            return 0
        start = 0
        if 0 < offset != size:
            # The bytes before may still be written, and so may begin the first character.
            while start < min(len(data), _CHARACTER_MAX - 1) and _continues(data[start]):
                start += 1
        return 0 if _is_text(data[start:]) else EILSEQ

    def write(self, data: bytes, offset: int, at: datetime) -> None:
        """Write *data* at *offset*; fill a gap after the end with zero bytes."""
        own, size = self.data, len(self.data)
        if offset < size:
            own[offset : offset + len(data)] = data
        else:
            if offset > size:
                own.extend(bytes(offset - size))
                offset = size
            own += data
        self.low = min(self.low, offset)
        self.unsaved, self.changed_at = True, at
        self.version += 1

    def truncate(self, length: int, at: datetime) -> None:
        """Cut the file to *length* bytes, or extend it with zero bytes.

        Cutting it to 0 is a replacement.
        """
        size = len(self.data)
        if length == 0:
            self.data.clear()
            self.replaced = True
        elif length < size:
            del self.data[length:]
        elif length > size:
            self.data.extend(bytes(length - size))
        else:
            return
        self.low = min(self.low, length, size)
        self.unsaved, self.changed_at = True, at
        self.version += 1

    def snapshot(self, handles: "Iterable[FileHandle]" = ()) -> BufferSnapshot:
        """Return a snapshot to save; later writes are relative to it.

        Writes through *handles* become part of the save.
        """
        for handle in handles:
            handle.sent, handle.wrote = handle.sent or handle.wrote, False
        snapshot = BufferSnapshot(
            content=bytes(self.data),
            memory_id=self.memory_id,
            base_sha256=self.base_sha256,
            base_size=self.base_size,
            low=self.low,
            replaced=self.replaced or self.memory_id is None,
            zeros=bool(self.zeros),
        )
        self.base_size = len(self.data)
        self.low, self.replaced, self.unsaved = _UNTOUCHED, False, False
        return snapshot

    def undo_snapshot(self, snapshot: BufferSnapshot) -> None:
        """Mark the changes of *snapshot*, the last snapshot, as unsaved again."""
        self.memory_id = snapshot.memory_id
        self.base_sha256, self.base_size = snapshot.base_sha256, snapshot.base_size
        self.low = min(self.low, snapshot.low)
        self.replaced = self.replaced or snapshot.replaced
        self.unsaved = True

    def restore(self, snapshot: BufferSnapshot, *, unsaved: bool) -> None:
        """Reset the buffer to the snapshot *snapshot*, saved or *unsaved*."""
        self.data[:] = snapshot.content
        self.base_size = len(self.data)
        self.low, self.replaced, self.unsaved = _UNTOUCHED, False, False
        self.version += 1
        if unsaved:
            self.undo_snapshot(snapshot)

    def rebase(self, content: bytes, *, memory_id: str, base_sha256: str) -> None:
        """Move the bytes appended since the last save after *content*, the new head."""
        tail = self.data[self.base_size :]
        self.data = bytearray(content) + tail
        self.base_size = len(content)
        self.low = self.base_size if tail else _UNTOUCHED
        self.memory_id, self.base_sha256 = memory_id, base_sha256
        self.version += 1

    @property
    def only_appended(self) -> bool:
        """Whether the only change since the last save is bytes added at the end."""
        return not self.replaced and self.low >= self.base_size


class File:
    """One file: a memory, or one that may become a memory.

    `entry` is its directory entry, built on demand and dropped when the file changes. `orphan`:
    it was removed here, so that unsaved writes to it are discarded. A file without a parent is in
    no directory; if it is no orphan, another client removed or displaced it. Programs that have
    it open still see the attributes of `former`, the memory it was.
    """

    __slots__ = (
        "buffer",
        "entry",
        "former",
        "inode",
        "kind",
        "memory",
        "name",
        "orphan",
        "parent",
        "path",
        "seq",
        "work",
    )

    def __init__(self, inode: int, path: str, *, kind: Kind = Kind.PLAIN) -> None:
        self.inode, self.path, self.kind = inode, path, kind
        self.name = path[path.rindex("/") + 1 :]
        self.parent: Directory | None = None
        self.memory: Memory | None = None
        self.former: Memory | None = None
        self.seq = 0
        self.buffer: Buffer | None = None
        self.work: Work | None = None
        self.entry: DirectoryEntry | None = None
        self.orphan = False

    @property
    def has_attempt(self) -> bool:
        """Whether a save of it is in flight or waits for a retry."""
        return self.work is not None and self.work.attempt is not None

    @property
    def unsaved(self) -> bool:
        """Whether it has bytes that are not yet in the store and should be."""
        if self.kind is Kind.SCRATCH or self.orphan:
            return False
        return (self.buffer is not None and self.buffer.unsaved) or self.has_attempt


class Directory:
    """One directory: it exists while it has entries, or is `local`, created here."""

    __slots__ = ("changed_at", "children", "entry", "inode", "local", "name", "parent", "path")

    def __init__(self, inode: int, path: str, *, local: bool, at: datetime) -> None:
        self.inode, self.path, self.local, self.changed_at = inode, path, local, at
        self.name = path[path.rindex("/") + 1 :]
        self.parent: Directory | None = None
        self.children: dict[str, File | Directory] = {}
        self.entry: DirectoryEntry | None = None

    def below(self) -> "Iterator[File | Directory]":
        """Yield every file and directory below this, parents before their children."""
        for child in list(self.children.values()):
            yield child
            if isinstance(child, Directory):
                yield from child.below()

    def files(self) -> list[File]:
        """Return every file below this."""
        return [node for node in self.below() if isinstance(node, File)]


Node = File | Directory
Nodes = dict[str, Node]


class EditAttempt(Struct, eq=False):
    """Edits sent, or about to be sent, under one id.

    A retry sends the same edits with the same id, so that they are applied once. In `doubt`, they
    may have been applied, or be applied later, though no response came: until one comes, no other
    edit of these files is sent. `commit` applies the response. `snapshot` is the content that it
    saves, if any, and `spooled` the spool entry that holds it; once it is `left` there for a person
    or the next mount, the outcome of the edits does not change the entry.
    """

    edits: tuple[Edit, ...]
    edit_id: str
    commit: Callable[[list[Applied]], None]
    snapshot: BufferSnapshot | None = None
    doubt: bool = False
    left: bool = False
    spooled: SpoolEntry | None = None
    tries: int = 0


class FileHandle(Struct, eq=False):
    """An open file. *content* is what it reads while the storage is unavailable.

    *content*, *sha256* and *memory_id* are also the base of writes through it. `wrote`: bytes
    were written through it since the last save. `sent`: some of its bytes are in a save that has
    not succeeded yet. `failed`, `sticky_error` and `dead` are errnos, 0 if none: `failed` of bytes
    that will never be saved, `sticky_error` of every further write, `dead` of every operation.
    """

    slug: str
    file: "File"
    writable: bool
    append: bool
    content: bytes = b""
    sha256: str = ""
    memory_id: str | None = None
    sticky_error: int = 0
    dead: int = 0
    failed: int = 0
    wrote: bool = False
    sent: bool = False

    def pin(self, content: bytes, sha256: str, memory_id: str | None) -> None:
        """Base the handle on *content* of the memory *memory_id*."""
        self.content, self.sha256, self.memory_id = content, sha256, memory_id


class Work(Struct, eq=False):
    """Saves and timers under way for one file.

    `locked` is the file's lock, held while edits of it are sent. `attempt` is the last save sent
    that has not succeeded yet; `unsure` another edit of the file that got no response. `due`: a
    close requested a save that could not be tried. `spooled` is the spool entry with the unsaved
    bytes, without those of the attempt, as of `spooled_version` of the buffer; `spooled_id` is the
    edit id under which they will be saved, `closed` their snapshot, and `spare` an older entry that
    still holds a part of them. `stored_path` is the path at which the store still has the memory
    while its rename to a backup is pending. `retry` and `grace` cancel timers.
    """

    handles: list[FileHandle] = field(default_factory=list[FileHandle])
    attempt: EditAttempt | None = None
    unsure: EditAttempt | None = None
    locked: bool = False
    due: bool = False
    spooled: SpoolEntry | None = None
    spare: SpoolEntry | None = None
    spooled_id: str = ""
    spooled_version: int = -1
    closed: BufferSnapshot | None = None
    stored_path: str | None = None
    retry: Callable[[], None] | None = None
    grace: Callable[[], None] | None = None
    tries: int = 0

    @property
    def written(self) -> bool:
        """Whether a program has it open for writing."""
        return any(handle.writable for handle in self.handles)

    def stop_retrying(self) -> None:
        """Cancel the retry of the save."""
        cancel, self.retry = self.retry, None
        if cancel is not None:
            cancel()

    def stop_grace(self) -> None:
        """Cancel the grace period of the file."""
        cancel, self.grace = self.grace, None
        if cancel is not None:
            cancel()


def work_of(file: "File") -> Work:
    """Return the `Work` of *file*, created if it has none."""
    work = file.work
    if work is None:
        work = file.work = Work()
    return work


def tidy(file: "File") -> None:
    """Drop the `Work` of *file* if nothing is under way for it."""
    work = file.work
    if work is not None and not (
        work.handles
        or work.locked
        or work.due
        or work.attempt
        or work.unsure
        or work.spooled
        or work.stored_path
        or work.retry
        or work.grace
    ):
        file.work = None
