"""What becomes of one path, from what was last agreed, what is on disk and what the store has.

Pure rules. What was last agreed (the base) is what file and head both were when they were last
seen to be equal; so whichever differs from it has changed since.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

from msgspec import Struct

BELIEVED_AT_ONCE = 8
"""Memories that may be missing at once, whatever part of the store they are."""

BELIEVED_PART = 4
"""One in so many memories may be missing at once."""

_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class Agreed(Struct, frozen=True):
    """A memory and its content: of a head, or of a base."""

    memory_id: str
    sha256: str


class What(Enum):
    """What is found on disk at a path."""

    ABSENT = "absent"
    FILE = "file"
    DIRECTORY = "directory"
    FOREIGN = "foreign"
    """A link, a device, a pipe: left alone, and so is the memory that is to be there."""
    UNREADABLE = "unreadable"
    BUSY = "busy"
    """It changed while it was read."""


class LocalState(Struct, frozen=True):
    """What is on disk: of a file its hash, and why it cannot be a memory (an errno), or 0.

    The hash is None where the file is too large to be read.
    """

    what: What
    sha256: str | None = None
    fault: int = 0


class SyncAction(Enum):
    """What is done about a path."""

    NOTHING = "nothing"
    WAIT = "wait"
    """It is looked at again."""
    LEAVE = "leave"
    """What is there is no file of ours: it stays, and is listed."""
    ADOPT = "adopt"
    """File and head are equal: that is the base."""
    FORGET = "forget"
    """Neither is there any more."""
    WRITE = "write"
    """The head goes to the disk; what it takes the place of is a version."""
    REMOVE = "remove"
    """The file goes; it is a version."""
    CREATE = "create"
    SAVE = "save"
    DELETE = "delete"
    """The memory is deleted, once it is sure that the file was."""
    CONFLICT = "conflict"
    """The file goes aside and becomes a memory of its own; then the head is written."""
    REFUSE = "refuse"
    """The file cannot be saved: it stays, and is listed."""
    UNDO = "undo"
    """The file is kept elsewhere; then it is as the head says."""


def decide(
    base: Agreed | None, disk: LocalState, head: Agreed | None, *, writable: bool = True
) -> SyncAction:
    """Return what is to be done about a path; no content is ever lost, and no head overlooked."""
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
    """Return what is to be done about a file whose content the store has or had; else None."""
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
    """A file's path, content, and what tells that it is the same file under another name.

    *born* is None where the file system does not tell when a file was made; then an inode may
    have been used again for another.
    """

    path: str
    sha256: str | None
    inode: int
    born: int | None


def renamed(gone: Sequence[FileIdentity], new: Sequence[FileIdentity]) -> dict[str, str]:
    """Return the old path of each path in *new* that is one of *gone* under another name.

    The same file first; then equal content, of the same name before any other, but for files
    without content: there are too many of them.
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
    """Tell whether *missing* of *known* files, whose deletion nobody saw, were deleted.

    A directory that was emptied or moved away by mistake, or a disk that is not there, would
    take a store with it.
    """
    return missing <= BELIEVED_AT_ONCE or missing * BELIEVED_PART <= known
