"""What the mount's core and a binding say to each other: attributes up, notices down."""

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
