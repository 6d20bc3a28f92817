"""The open files of a mount, by the numbers that the kernel knows them by."""

from errno import EBADF
from itertools import count

from holdfast.doors.mount.errors import failure
from holdfast.doors.mount.filesystem.nodes import FileHandle


class HandleTable:
    """The open files of a mount, by number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.by_number: dict[int, FileHandle] = {}

    def add(self, handle: FileHandle) -> int:
        """Return the number of *handle* from now on."""
        fh = next(self._numbers)
        self.by_number[fh] = handle
        return fh

    def demand(self, fh: int) -> FileHandle:
        """Return the open file *fh*, or OSError if nothing can be done with it."""
        handle = self.by_number.get(fh)
        if handle is None:
            raise failure(EBADF)
        if handle.dead:
            raise failure(handle.dead)
        return handle

    def of(self, slug: str) -> list[FileHandle]:
        """Return the open files of one store."""
        return [handle for handle in list(self.by_number.values()) if handle.slug == slug]
