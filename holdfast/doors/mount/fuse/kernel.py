"""Interface between the filesystem core and a FUSE binding."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Attributes(Struct, frozen=True, kw_only=True):
    """Attributes of one name for `stat`; `mode` has type and permission bits."""

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
    """Free space for `df`: blocks of 4,096 bytes, and files."""

    blocks: int
    free_blocks: int
    files: int
    free_files: int
    name_max: int = 255


class Kernel(Protocol):
    """Calls from the core to its binding."""

    def step_aside(self) -> None:
        """Let another thread receive requests: this one is about to wait for storage.

        Only the first call in a request has an effect; outside a request it does nothing.
        """
        ...

    def forget_content(self, path: str) -> None:
        """Invalidate data and attributes of *path*, soon, from another thread."""
        ...

    def forget_name(self, directory: str, name: str) -> None:
        """Invalidate *name* in *directory*, soon, from another thread."""
        ...


class NoKernel:
    """A kernel without caches, for a core that is called directly."""

    def step_aside(self) -> None:
        """Do nothing."""

    def forget_content(self, path: str) -> None:
        """Do nothing."""

    def forget_name(self, directory: str, name: str) -> None:
        """Do nothing."""


class Operations(Protocol):
    """Operations of a core, as called by a binding.

    Paths are `/`, `/slug`, `/slug/a/b.md`, with bytes that are not UTF-8 as surrogates. With a
    handle the path is empty and ignored. Any thread may call.
    """

    @property
    def kernel(self) -> Kernel:
        """The kernel to invalidate; the binding sets itself."""
        ...

    @kernel.setter
    def kernel(self, kernel: Kernel) -> None: ...

    def getattr(self, path: str, fh: int | None = None) -> Attributes:
        """Return the attributes for `stat`."""
        ...

    def access(self, path: str, mode: int) -> None:
        """Raise OSError unless access *mode* to *path* is allowed."""
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
        """Set the file's size to *length* bytes."""
        ...

    def flush(self, fh: int) -> None:
        """Save the file: a descriptor was closed."""
        ...

    def fsync(self, fh: int) -> None:
        """Save the file; return once it is durable."""
        ...

    def release(self, fh: int) -> None:
        """Release the handle: its last descriptor was closed."""
        ...

    def fsyncdir(self, path: str) -> None:
        """Make the files in *path* durable."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        """Rename; *flags* are those of renameat2."""
        ...

    def mkdir(self, path: str) -> None:
        """Create a directory."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def symlink(self, path: str) -> None:
        """Refuse to create a symbolic link."""
        ...

    def link(self, path: str) -> None:
        """Refuse to create a hard link."""
        ...

    def mknod(self, path: str) -> None:
        """Refuse to create a file by `mknod`, special or regular."""
        ...

    def change_attributes(self, path: str) -> None:
        """Accept a new mode, owner or times, and ignore them."""
        ...

    def statfs(self, path: str) -> Space:
        """Return the free space for `df`."""
        ...

    def getxattr(self, path: str, name: str) -> bytes:
        """Return an extended attribute."""
        ...

    def listxattr(self, path: str) -> Sequence[str]:
        """Return the names of the extended attributes."""
        ...

    def setxattr(self, path: str, name: str) -> None:
        """Raise OSError: extended attributes are read-only."""
        ...

    def removexattr(self, path: str, name: str) -> None:
        """Raise OSError: extended attributes are read-only."""
        ...
