"""A file that is open and locked for as long as somebody needs it to be nobody else's."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

_FILE_MODE = 0o600
_PAUSES = (0.0, 0.001, 0.004)


class Lock:
    """The bytes of an entry, open and locked until they are released or the process ends."""

    def __init__(self, fd: int) -> None:
        self._open = [fd]
        self.on_disk = False
        """Whether a loss of power leaves the entry there."""

    @classmethod
    def on_new(cls, path: Path) -> "Lock":
        """Make the file *path*, empty and locked; FileExistsError if it is there."""
        fd = made(path)
        # Whoever looks for entries in this moment lets go as soon as it sees that it is none yet.
        fcntl.flock(fd, fcntl.LOCK_EX)
        return cls(fd)

    @classmethod
    def on(cls, path: Path) -> "Lock | None":
        """Lock the file *path*; None if it is locked already or gone."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if _flocked(fd) and os.fstat(fd).st_nlink:
            return cls(fd)
        os.close(fd)
        return None

    def write(self, content: bytes) -> None:
        """Write *content*."""
        write(self._open[0], content)

    def sync(self) -> bool:
        """Have the bytes on disk; return False once they were let go."""
        for fd in self._open:
            os.fsync(fd)
        return bool(self._open)

    def read(self) -> bytes:
        """Return all the bytes."""
        with os.fdopen(os.dup(self._open[0]), "rb") as file:
            file.seek(0)
            return file.read()

    def seize(self) -> int | None:
        """Return the open file, to be closed by the caller; None once it was let go."""
        return self._open.pop() if self._open else None

    def release(self) -> None:
        """Unlock it; again does nothing."""
        if (fd := self.seize()) is not None:
            os.close(fd)


def made(path: Path) -> int:
    """Make the file *path*, for its owner alone, and open it; FileExistsError if it is there."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)


def write(fd: int, content: bytes) -> None:
    """Write all of *content* to *fd*."""
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def _flocked(fd: int) -> bool:
    """Lock *fd* if nobody has it locked for longer than it takes to look at it."""
    for pause in _PAUSES:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(pause)
    return False
