"""Files that come to be beside their place: they are there whole, or not at all."""

import errno
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast.ground.errors import Unavailable

BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite adds to a database's name for the files that belong to it."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def aside(place: Path) -> Generator[Path]:
    """Give a new, empty file beside *place*, mode 0600, to be filled and renamed.

    Left without having been renamed, it is removed, unless the process is killed: then it stays
    under its hidden name. Raises Unavailable: full, io.
    """
    part = place.with_name(f".{place.name}.{secrets.token_hex(6)}")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield part
    except OSError as error:
        raise Unavailable(
            f"{place} could not be written: {error.strerror}.",
            reason="full" if error.errno in _NO_ROOM else "io",
            next="Free some space, then try again."
            if error.errno in _NO_ROOM
            else "Check the folder and its permissions, then try again.",
        ) from error
    finally:
        for name in (part.name, *(part.name + ending for ending in BESIDE)):
            part.with_name(name).unlink(missing_ok=True)


def beside(place: Path) -> list[Path]:
    """Return what SQLite keeps beside the database *place* at the moment."""
    return [path for ending in BESIDE if (path := place.with_name(place.name + ending)).exists()]


def settle(part: Path) -> None:
    """Make the database *part*, which nobody has open, ready to be renamed: whole, and synced."""
    if beside(part):
        # Closing it could not move its log into it.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    sync(part)


def sync(place: Path) -> None:
    """Make what *place*, a file or a folder, holds survive a power loss."""
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
