"""Three-way merge of one path: base, local file and head of the store.

Pure rules. The base is the content of file and head when they were last equal; a side that differs
from it has changed since.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

from msgspec import Struct

BELIEVED_AT_ONCE = 8
"""Files that may be missing at once in a store of any size."""

BELIEVED_PART = 4
"""In larger stores, one in this many files may be missing at once."""

_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class Agreed(Struct, frozen=True):
    """A memory and its content: of a head, or of a base."""

    memory_id: str
    sha256: str


class What(Enum):
    """The kind of a path on disk."""

    ABSENT = "absent"
    FILE = "file"
    DIRECTORY = "directory"
    FOREIGN = "foreign"
    """A link, device or pipe: it is left alone, and so is the memory of that path."""
    UNREADABLE = "unreadable"
    BUSY = "busy"
    """The file changed while it was read."""


class LocalState(Struct, frozen=True):
    """State of a path on disk.

    `sha256` is a file's hash, None if it is too large to read. `fault` is the errno why it cannot
    be a memory, or 0.
    """

    what: What
    sha256: str | None = None
    fault: int = 0


class SyncAction(Enum):
    """The action that brings file and head of a path together."""

    NOTHING = "nothing"
    WAIT = "wait"
    """Check it again soon."""
    LEAVE = "leave"
    """It is no regular file: it stays, and is listed."""
    ADOPT = "adopt"
    """File and head are equal: record them as the base."""
    FORGET = "forget"
    """Neither exists any more: drop the base."""
    WRITE = "write"
    """Write the head to disk; the content that it replaces is a version."""
    REMOVE = "remove"
    """Remove the file; its content is a version."""
    CREATE = "create"
    SAVE = "save"
    DELETE = "delete"
    """Delete the memory, once it is certain that the file was deleted."""
    CONFLICT = "conflict"
    """Rename the file, which becomes a new memory; then write the head."""
    REFUSE = "refuse"
    """The file cannot be saved: it stays and is listed."""
    UNDO = "undo"
    """Spool the file; then restore the head."""


def decide(
    base: Agreed | None, disk: LocalState, head: Agreed | None, *, writable: bool = True
) -> SyncAction:
    """Return the action for a path; it never loses content and never ignores a head."""
    if disk.what in (What.FOREIGN, What.UNREADABLE):
        return SyncAction.LEAVE
    if disk.what is What.BUSY:
        return SyncAction.WAIT
    if disk.what is not What.FILE:
        return _absent(base, head, writable=writable)
    known = _as_known(base, disk.sha256, head)
    if known is not None:
        return known
    return _changed(base, disk, head) if writable else SyncAction.UNDO


def _as_known(base: Agreed | None, sha256: str | None, head: Agreed | None) -> SyncAction | None:
    """Return the action for a file with the content of the head or base, else None."""
    if head is not None and sha256 == head.sha256:
        return SyncAction.NOTHING if base == head else SyncAction.ADOPT
    if base is not None and sha256 == base.sha256:
        return SyncAction.REMOVE if head is None else SyncAction.WRITE
    return None


def _changed(base: Agreed | None, disk: LocalState, head: Agreed | None) -> SyncAction:
    if head is None:
        return SyncAction.REFUSE if disk.fault else SyncAction.CREATE
    if base != head:
        return SyncAction.CONFLICT
    return SyncAction.REFUSE if disk.fault else SyncAction.SAVE


def _absent(base: Agreed | None, head: Agreed | None, *, writable: bool) -> SyncAction:
    if head is None:
        return SyncAction.NOTHING if base is None else SyncAction.FORGET
    if base != head:
        return SyncAction.WRITE
    return SyncAction.DELETE if writable else SyncAction.UNDO


class FileIdentity(Struct, frozen=True):
    """A file's path and content, with inode and birth time to detect renames.

    *born* is None if the file system has no birth times; then an inode may have been reused for
    another file.
    """

    path: str
    sha256: str | None
    inode: int
    born: int | None


def renamed(gone: Sequence[FileIdentity], new: Sequence[FileIdentity]) -> dict[str, str]:
    """Match *new* files to files in *gone* that were renamed; return old paths by new.

    The same inode matches first; then equal content under the same name, then under any name.
    Empty files do not match by content: there are too many of them.
    """
    olds: dict[str, str] = {}
    left = {each.path: each for each in sorted(gone, key=lambda each: each.path)}
    rest = sorted(new, key=lambda each: each.path)
    for same in (_is_same, _is_copy_of_its_name, _is_copy):
        unpaired: list[FileIdentity] = []
        index = _by_key(left.values())
        for each in rest:
            old = next(
                (
                    path
                    for path in (*index.get(each.inode, ()), *index.get(each.sha256, ()))
                    if path in left and same(left[path], each)
                ),
                None,
            )
            if old is None:
                unpaired.append(each)
            else:
                olds[each.path] = old
                del left[old]
        rest = unpaired
    return olds


def _by_key(traced: Iterable[FileIdentity]) -> dict[int | str | None, list[str]]:
    index: dict[int | str | None, list[str]] = {}
    for each in traced:
        index.setdefault(each.inode, []).append(each.path)
        index.setdefault(each.sha256, []).append(each.path)
    return index


def _is_same(old: FileIdentity, new: FileIdentity) -> bool:
    if old.inode != new.inode:
        return False
    if old.born is None or new.born is None:
        return old.sha256 == new.sha256
    return old.born == new.born


def _is_copy_of_its_name(old: FileIdentity, new: FileIdentity) -> bool:
    return _is_copy(old, new) and old.path.rpartition("/")[2] == new.path.rpartition("/")[2]


def _is_copy(old: FileIdentity, new: FileIdentity) -> bool:
    return old.sha256 == new.sha256 and old.sha256 not in (None, _EMPTY)


def believed(missing: int, known: int) -> bool:
    """Check whether *missing* of *known* files count as deleted without events.

    Otherwise a directory emptied or moved away by mistake, or an unmounted disk, would delete a
    whole store.
    """
    return missing <= BELIEVED_AT_ONCE or missing * BELIEVED_PART <= known
