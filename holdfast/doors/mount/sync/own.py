"""The names that a synced directory keeps for itself: never a memory, never told of as a change."""

import re
import secrets

ERRORS = "/.memory-errors"
"""Where a person reads what is wrong, in the directory of its store."""

_BEGUN = re.compile(r"\.memory-new-[0-9a-f]{16}")
_WHOLE = re.compile(r"\.memory-out-([0-9a-f]{16})-([0-9a-f]{16})-[0-9a-f]{8}")
_PART = 16


def begun() -> str:
    """Return a name for a file that is being written."""
    return f".memory-new-{secrets.token_hex(8)}"


def taken(sha256: str, other: str | None = None) -> str:
    """Return a name for a file of the hash *sha256* or *other*, both known, for a moment.

    Whichever of them is found under the name after a crash, the name tells that it may go.
    """
    return f".memory-out-{sha256[:_PART]}-{(other or sha256)[:_PART]}-{secrets.token_hex(4)}"


def is_own(path: str) -> bool:
    """Tell whether *path*, within its store, is one of ours."""
    name = path[path.rfind("/") + 1 :]
    if not name.startswith(".memory-"):
        return False
    return path == ERRORS or is_passing(name)


def is_passing(name: str) -> bool:
    """Tell whether *name* is of a file that should be there for a moment only."""
    return bool(_BEGUN.fullmatch(name) or _WHOLE.fullmatch(name))


def may_go(name: str, sha256: str | None) -> bool:
    """Tell whether what was left behind under *name* is nobody's loss, by its hash."""
    if _BEGUN.fullmatch(name):
        return True
    parts = _WHOLE.fullmatch(name)
    return parts is not None and sha256 is not None and sha256[:_PART] in parts.groups()
