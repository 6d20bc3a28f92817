"""Names of files in a mount, and its options.

Editors and tools write beside a file before they write the file: what they leave for a moment is
told from what is meant by its name alone. Letters in the patterns are `[A-Za-z0-9_]`.
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
    """What becomes of a file that is made here under a name."""

    PLAIN = "plain"
    """A memory, once it is saved."""
    SCRATCH = "scratch"
    """Any bytes, in RAM, never a memory."""
    TRANSIENT = "transient"
    """A memory only if it is still there after a while."""
    REFUSED = "refused"
    """Never made: version control fails half way on what memories can hold."""


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
    """Return what a file made here as *name*, the last component of a path, is."""
    if name in _REFUSED:
        return Kind.REFUSED
    if _SCRATCH.fullmatch(name):
        return Kind.SCRATCH
    if _TRANSIENT.fullmatch(name):
        return Kind.TRANSIENT
    return Kind.PLAIN


def is_backup(name: str) -> bool:
    """Tell whether a memory renamed to *name* is put aside for one that is about to be written."""
    return name.endswith(_BACKUPS)


def is_shown(path: str) -> bool:
    """Tell whether every component of the memory's *path* is short enough for a directory."""
    if path.isascii() and len(path) <= NAME_BYTES_MAX:
        return True
    return all(len(name.encode()) <= NAME_BYTES_MAX for name in path.split("/"))


def checked(path: str) -> str:
    """Return *path*, within its store, if a memory can have it; else OSError.

    Bytes that are no UTF-8 arrive as lone surrogates: EILSEQ. Too long in one component, as a
    whole or in segments: ENAMETOOLONG. What the store refuses besides: EINVAL.
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
    """How a mount behaves; each is an option of `holdfast mount`."""

    spool: Path
    deadline: float = 5.0
    """Seconds within which every request is answered, but for one more."""
    grace: float = 3.0
    """Seconds after which a temporary file that is still there becomes a memory."""
    cache_bytes: int = 64 * MIB
    read_only: bool = False
    session_id: str | None = None
