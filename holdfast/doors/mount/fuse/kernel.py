"""Operations that the kernel requests, and replies."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Attributes(Struct, frozen=True, kw_only=True):
    """What `stat` shows of one name; `mode` is type and permission bits together."""

    inode: int
    mode: int
    size: int
    nlink: int
    mtime_ns: int


class DirectoryEntry(Struct, frozen=True):
    """One name in a directory."""

    name: str
    attributes: Attributes


class Space(Struct, frozen=True, kw_only=True):
    """What `df` shows: blocks of 4,096 bytes, and files."""

    blocks: int
    free_blocks: int
    files: int
    free_files: int
    name_max: int = 255


class Kernel(Protocol):
    """What the core asks of the binding that drives it."""

    def step_aside(self) -> None:
        """Let another thread receive requests: the present one is about to wait for storage.

        Once in a request is enough, again does nothing; outside a request it does nothing.
        """
        ...

    def forget_content(self, path: str) -> None:
        """Drop what the kernel knows of the data and attributes of *path*, soon, from elsewhere."""
        ...

    def forget_name(self, directory: str, name: str) -> None:
        """Drop what the kernel knows of *name* in *directory*, soon, from elsewhere."""
        ...


class NoKernel:
    """A kernel that keeps nothing: for a core that is driven directly."""

    def step_aside(self) -> None:
        """Do nothing."""

    def forget_content(self, path: str) -> None:
        """Do nothing."""

    def forget_name(self, directory: str, name: str) -> None:
        """Do nothing."""


class Operations(Protocol):
    """A core, as a binding drives it.

    Paths are `/`, `/slug`, `/slug/a/b.md`, with what is not UTF-8 as surrogates. Where a handle is
    given the path is empty, and of no meaning. Any thread may call.
    """

    @property
    def kernel(self) -> Kernel:
        """Whom the core tells what changed; the binding puts itself in."""
        ...

    @kernel.setter
    def kernel(self, kernel: Kernel) -> None: ...

    def getattr(self, path: str, fh: int | None = None) -> Attributes:
        """Return what `stat` shows."""
        ...

    def access(self, path: str, mode: int) -> None:
        """Raise unless *path* may be used so."""
        ...

    def readdir(self, path: str) -> Sequence[DirectoryEntry]:
        """Return the names in *path*, without `.` and `..`."""
        ...

    def open(self, path: str, flags: int) -> int:
        """Return a new handle."""
        ...

    def create(self, path: str, flags: int) -> int:
        """Return a new handle of a new file."""
        ...

    def read(self, fh: int, size: int, offset: int) -> bytes:
        """Return at most *size* bytes; fewer only at the end."""
        ...

    def write(self, fh: int, data: bytes, offset: int) -> int:
        """Return how many bytes were written."""
        ...

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        """Cut or grow."""
        ...

    def flush(self, fh: int) -> None:
        """Save: a descriptor was closed."""
        ...

    def fsync(self, fh: int) -> None:
        """Save, and return once it is durable."""
        ...

    def release(self, fh: int) -> None:
        """Give the handle back: its last descriptor was closed."""
        ...

    def fsyncdir(self, path: str) -> None:
        """Make what is in *path* durable."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        """Rename; *flags* are those of renameat2."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def symlink(self, path: str) -> None:
        """Refuse to make a symbolic link."""
        ...

    def link(self, path: str) -> None:
        """Refuse to make a hard link."""
        ...

    def mknod(self, path: str) -> None:
        """Refuse to make a special file, also where `mknod` asks for a plain one."""
        ...

    def change_attributes(self, path: str) -> None:
        """Accept a mode, an owner or times, without keeping them."""
        ...

    def statfs(self, path: str) -> Space:
        """Return what `df` shows."""
        ...

    def getxattr(self, path: str, name: str) -> bytes:
        """Return an extended attribute."""
        ...

    def listxattr(self, path: str) -> Sequence[str]:
        """Return the names of the extended attributes."""
        ...

    def setxattr(self, path: str, name: str) -> None:
        """Refuse."""
        ...

    def removexattr(self, path: str, name: str) -> None:
        """Refuse."""
        ...
