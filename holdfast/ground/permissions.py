"""Files and folders that only their owner can read, and that survive a power loss."""

import os
from pathlib import Path
from typing import BinaryIO, Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create_file(path: str | Path, *, within: int | None = None) -> BinaryIO:
    """Create the file *path*, mode 0600, and return it open for writing bytes.

    *within* is the descriptor of the folder that a relative *path* is in. Raises FileExistsError.
    """
    handle = os.open(path, _NEW, FILE_MODE, dir_fd=within)
    try:
        os.fchmod(handle, FILE_MODE)
        return os.fdopen(handle, "wb")
    except BaseException:
        os.close(handle)
        raise


def create_folder(path: str | Path, *, within: int | None = None) -> None:
    """Create the folder *path*, mode 0700; one that exists keeps its mode.

    *within* is the descriptor of the folder that a relative *path* is in.
    """
    try:
        os.mkdir(path, FOLDER_MODE, dir_fd=within)
    except FileExistsError:
        return
    os.chmod(path, FOLDER_MODE, dir_fd=within)


def create_folders(path: Path) -> None:
    """Create the folder *path* and the missing ones above it, mode 0700 each.

    Those that exist keep their mode, those created survive a power loss. Raises
    NotADirectoryError or FileExistsError where something else is in a place.
    """
    for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
        create_folder(missing)
        sync_folder(missing.parent)
    # Raises if something other than a folder is there.
    path.mkdir(exist_ok=True)


def sync_folder(path: Path) -> None:
    """Make names added to the folder *path*, or removed, survive a power loss."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
