"""Classification of file names in a mount, and the mount's options.

Editors and tools write temporary files beside a file before they write it. Only the name
distinguishes a temporary file from a real one. Letters in the patterns are `[A-Za-z0-9_]`.
"""

import re
from enum import Enum
from errno import EILSEQ, EINVAL, ENAMETOOLONG
from pathlib import Path

from msgspec import Struct

from holdfast.doors.mount.errors import failure
from holdfast.ground.errors import InvalidInput
from holdfast.memories.stores.validation import BYTES_MAX, SEGMENTS_MAX, checked_path

NAME_BYTES_MAX = 255
"""Bytes of one component, as the kernel and its programs expect."""


class Kind(Enum):
    """How the mount treats a new file, by its name."""

    PLAIN = "plain"
    """A memory, once it is saved."""
    SCRATCH = "scratch"
    """Any bytes, in RAM, never a memory."""
    TRANSIENT = "transient"
    """A memory only if it is still there after a while."""
    REFUSED = "refused"
    """Never created: version control would fail midway, as memories hold only text."""


_LETTER = "[A-Za-z0-9_]"
_SCRATCH = re.compile(
    rf"\..*\.sw{_LETTER}{{1,2}}|4913|\.\#.*|\#.*\#|\..*\.un~|.*\.kate-swp|\.~lock\..*\#"
    r"|\.fuse_hidden.*|\.nfs.*|\.DS_Store|\._.*",
    re.DOTALL,
)
_TRANSIENT = re.compile(
    rf"sed{_LETTER}{{6}}|XX{_LETTER}{{6}}|.*~|.*\.tmp|.*\.tmp\..*|tmp{_LETTER}{{8}}"
    rf"|\..*\.{_LETTER}{{6}}|.*\.o{_LETTER}{{6}}|\.tmp.*|\.goutputstream-.*|.*\.part"
    r"|.*\.crdownload",
    re.DOTALL,
)
_REFUSED = frozenset({".git", ".hg", ".svn", ".jj"})
_BACKUPS = ("~", ".bak", ".orig", ".old", ".sav", ".save")


def kind_of(name: str) -> Kind:
    """Return the kind of a new file called *name*, the last component of a path."""
    if name in _REFUSED:
        return Kind.REFUSED
    if _SCRATCH.fullmatch(name):
        return Kind.SCRATCH
    if _TRANSIENT.fullmatch(name):
        return Kind.TRANSIENT
    return Kind.PLAIN


def is_backup(name: str) -> bool:
    """Check whether *name* is a backup name.

    A memory renamed to one is about to be replaced by a new file at its old path.
    """
    return name.endswith(_BACKUPS)


def is_shown(path: str) -> bool:
    """Check whether each component of the memory's *path* fits into a directory."""
    if path.isascii() and len(path) <= NAME_BYTES_MAX:
        return True
    return all(len(name.encode()) <= NAME_BYTES_MAX for name in path.split("/"))


def checked(path: str) -> str:
    """Return *path*, within its store, if a memory can have it; else raise OSError.

    EILSEQ if it is not UTF-8 (such bytes arrive as lone surrogates), ENAMETOOLONG if a component,
    the whole or the number of segments is too long, EINVAL if the store refuses it otherwise.
    """
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise failure(EILSEQ) from None
    if size > BYTES_MAX or path.count("/") > SEGMENTS_MAX or not is_shown(path):
        raise failure(ENAMETOOLONG)
    try:
        return checked_path(path)
    except InvalidInput as error:
        raise failure(EINVAL) from error


MIB = 1024 * 1024


class MountOptions(Struct, frozen=True, kw_only=True):
    """Options of a mount; each is an option of `holdfast mount`."""

    spool: Path
    deadline: float = 5.0
    """Time limit of a request in seconds; it may take at most one second more."""
    grace: float = 3.0
    """Seconds after which a temporary file that still exists becomes a memory."""
    cache_bytes: int = 64 * MIB
    read_only: bool = False
    session_id: str | None = None
