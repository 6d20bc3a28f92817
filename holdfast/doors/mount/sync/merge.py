"""Three-way merge of one path: base, local file and head of the store.

Pure rules. The base is the content of file and head when they were last equal; a side that differs
from it has changed since.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from enum import Enum

from msgspec import Struct

from holdfast.doors.mount.names import Kind, kind_of
from holdfast.doors.mount.sync.files import FileType, LocalFile
from holdfast.doors.mount.sync.state import Agreed, Known
from holdfast.memories.stores.records import Memory

BELIEVED_AT_ONCE = 8
"""Files that may be missing at once in a store of any size."""

BELIEVED_PART = 4
"""In larger stores, one in this many files may be missing at once."""

_CONFLICT = re.compile(r".*\.conflict-\d{8}T\d{6}Z(-\d+)?", re.DOTALL)
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class SyncAction(Enum):
    """The action that brings file and head of a path together, in the order of work."""

    WAIT = "wait"
    """Check it again soon."""
    AGREE = "agree"
    """File and head are equal, or both absent: record that as the base."""
    REPORT = "report"
    """The file cannot be a memory: it stays and is listed."""
    DELETE_HERE = "delete here"
    """Remove the file; its content is a version."""
    KEEP_BOTH = "keep both"
    """Rename the file, which becomes a new memory; then write the head."""
    UNDO = "undo"
    """Spool the file; then restore the head."""
    DOWNLOAD = "download"
    """Write the head to disk; the content that it replaces is a version."""
    UPLOAD = "upload"
    DELETE_THERE = "delete there"
    """Delete the memory, once it is certain that the file was deleted."""


class Case(Struct, frozen=True, kw_only=True):
    """The action for *path*, with the base, head and file that it follows from."""

    path: str
    base: Known | None
    head: Memory | None
    file: LocalFile
    act: SyncAction

    @property
    def is_new(self) -> bool:
        """Whether the file becomes a new memory."""
        return self.act is SyncAction.UPLOAD and self.head is None

    @property
    def identity(self) -> "FileIdentity":
        """The identity of the file, to recognise it under another name."""
        file = self.file
        return FileIdentity(self.path, file.sha256, file.mark.inode if file.mark else -1, file.born)


def decide(
    base: Agreed | None, file: LocalFile, head: Agreed | None, *, writable: bool = True
) -> SyncAction:
    """Return the action for a path; it never loses content and never ignores a head."""
    if file.type in (FileType.FOREIGN, FileType.UNREADABLE):
        return SyncAction.REPORT
    if file.type is FileType.BUSY:
        return SyncAction.WAIT
    if file.type is not FileType.FILE:
        return _without_file(base, head, writable=writable)
    return _with_file(base, file, head, writable=writable)


def _with_file(
    base: Agreed | None, file: LocalFile, head: Agreed | None, *, writable: bool
) -> SyncAction:
    if head is not None and file.sha256 == head.sha256:
        return SyncAction.AGREE
    if base is not None and file.sha256 == base.sha256:
        return SyncAction.DELETE_HERE if head is None else SyncAction.DOWNLOAD
    if not writable:
        return SyncAction.UNDO
    if head is not None and base != head:
        return SyncAction.KEEP_BOTH
    return SyncAction.REPORT if file.fault else SyncAction.UPLOAD


def _without_file(base: Agreed | None, head: Agreed | None, *, writable: bool) -> SyncAction:
    if head is None:
        return SyncAction.AGREE
    if base != head:
        return SyncAction.DOWNLOAD
    return SyncAction.DELETE_THERE if writable else SyncAction.UNDO


class FileIdentity(Struct, frozen=True):
    """A file's path and content, with inode and birth time to detect renames.

    *born* is None if the file system has no birth times; then an inode may have been reused for
    another file.
    """

    path: str
    sha256: str | None
    inode: int
    born: int | None

    @classmethod
    def of(cls, known: Known) -> "FileIdentity":
        """Return the identity of the file when it was last agreed on."""
        return cls(known.path, known.sha256, known.mark.inode if known.mark else -1, known.born)

    @property
    def keys(self) -> tuple[Hashable, Hashable, Hashable]:
        """The file itself; its content under its name; its content; None if unknown.

        Empty files do not match by content: there are too many of them.
        """
        itself = (self.inode, self.sha256 if self.born is None else self.born)
        if self.sha256 in (None, _EMPTY):
            return itself, None, None
        return itself, (self.sha256, self.path.rpartition("/")[2]), self.sha256


def renamed(missing: Sequence[FileIdentity], new: Sequence[FileIdentity]) -> dict[str, str]:
    """Match *new* files to renamed ones in *missing*; return old paths by new paths.

    The same file matches first; then equal content under the same name, then under any name.
    """
    olds: dict[str, str] = {}
    taken: set[str] = set()
    for place in range(3):
        left: defaultdict[Hashable, list[str]] = defaultdict(list)
        for each in sorted(missing, key=lambda each: each.path, reverse=True):
            if each.path not in taken:
                left[each.keys[place]].append(each.path)
        for each in sorted(new, key=lambda each: each.path):
            key = each.keys[place]
            if key is not None and each.path not in olds and left.get(key):
                olds[each.path] = left[key].pop()
                taken.add(olds[each.path])
    return olds


def believed(missing: int, known: int) -> bool:
    """Check whether *missing* of *known* files count as deleted without events.

    Otherwise a directory emptied or moved away by mistake, or an unmounted disk, would delete a
    whole store.
    """
    return missing <= BELIEVED_AT_ONCE or missing * BELIEVED_PART <= known


def kind_at(path: str) -> Kind:
    """Return the kind of a new file at *path*; the copy of a conflict is plain."""
    name = path.rpartition("/")[2]
    return Kind.PLAIN if _CONFLICT.fullmatch(name) else kind_of(name)
