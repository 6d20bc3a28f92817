"""Reserved file names in a synced directory, which are never memories or changes."""

import re
import secrets

ERRORS = "/.memory-errors"
"""Path of the errors file in the directory of its store."""

_BEGUN = re.compile(r"\.memory-new-[0-9a-f]{16}")
_WHOLE = re.compile(r"\.memory-out-([0-9a-f]{16})-([0-9a-f]{16})-[0-9a-f]{8}")
_PART = 16


def begun() -> str:
    """Return a name for a file that is being written."""
    return f".memory-new-{secrets.token_hex(8)}"


def taken(sha256: str, other: str | None = None) -> str:
    """Return a temporary name for a file with the hash *sha256* or *other*.

    After a crash the name shows that a file with either content may be removed.
    """
    return f".memory-out-{sha256[:_PART]}-{(other or sha256)[:_PART]}-{secrets.token_hex(4)}"


def is_own(path: str) -> bool:
    """Check whether *path*, within its store, is reserved."""
    name = path[path.rfind("/") + 1 :]
    if not name.startswith(".memory-"):
        return False
    return path == ERRORS or is_passing(name)


def is_passing(name: str) -> bool:
    """Check whether *name* is of a temporary file of the sync."""
    return bool(_BEGUN.fullmatch(name) or _WHOLE.fullmatch(name))


def may_go(name: str, sha256: str | None) -> bool:
    """Check by its hash whether a temporary file left as *name* may be removed."""
    if _BEGUN.fullmatch(name):
        return True
    parts = _WHOLE.fullmatch(name)
    return parts is not None and sha256 is not None and sha256[:_PART] in parts.groups()
