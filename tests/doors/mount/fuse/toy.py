"""A file system in memory with the core's methods, so that the binding meets nothing else."""

import errno
import os
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count

from holdfast.doors.mount.filesystem.nodes import (
    Attributes,
    DirectoryEntry,
    Kernel,
    NoKernel,
    Space,
)

BEGIN = 1_700_000_000_123_456_789


def fault(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Node:
    """A file, or a directory if *data* is None."""

    def __init__(self, inode: int, data: bytearray | None, mtime_ns: int) -> None:
        self.inode, self.data, self.mtime_ns = inode, data, mtime_ns

    def attributes(self) -> Attributes:
        if self.data is None:
            mode, size, nlink = stat.S_IFDIR | 0o755, 0, 2
        else:
            mode, size, nlink = stat.S_IFREG | 0o644, len(self.data), 1
        return Attributes(
            inode=self.inode, mode=mode, size=size, nlink=nlink, mtime_ns=self.mtime_ns
        )


class Toy:
    """Directories and files by path. What *calls* holds was asked; what *held* holds waits."""

    def __init__(self) -> None:
        self.kernel: Kernel = NoKernel()
        self.calls: list[tuple[str, str]] = []
        self.refusals: dict[str, BaseException] = {}
        """By operation: what it raises."""
        self.held: dict[str, list[threading.Event]] = {}
        """By operation: what its next calls wait for, after stepping aside."""
        self.waiting = threading.Semaphore(0)
        """Released by each operation that has begun to wait."""
        self.handles: dict[int, Node] = {}
        self.flags: dict[int, int] = {}
        self._inodes, self._numbers, self._times = count(100), count(1), count(BEGIN)
        self._lock = threading.Lock()
        self.nodes: dict[str, Node] = {"/": Node(1, None, BEGIN)}

    # What the tests do behind the kernel's back.

    def put(self, path: str, content: bytes | None) -> None:
        """Make a file, or a directory with None, as another mount would."""
        data = None if content is None else bytearray(content)
        self.nodes[path] = Node(next(self._inodes), data, next(self._times))

    def asked(self, operation: str) -> list[str]:
        """Return what *operation* was asked for, so far."""
        return [argument for each, argument in self.calls if each == operation]

    @contextmanager
    def hanging(self, operation: str, times: int = 1) -> Generator[None]:
        """Make the next calls of *operation*, so many *times*, wait; at the end they go on."""
        go_on = threading.Event()
        self.held[operation] = [go_on] * times
        try:
            yield
        finally:
            self.held.clear()
            go_on.set()

    def drop(self, path: str) -> None:
        """Remove a name as another mount would, and tell the kernel."""
        del self.nodes[path]
        directory, _, name = path.rpartition("/")
        self.kernel.forget_name(directory or "/", name)

    def replace(self, path: str, content: bytes) -> None:
        """Change a file as another mount would, and tell the kernel."""
        node = self.nodes[path]
        node.data, node.mtime_ns = bytearray(content), next(self._times)
        self.kernel.forget_content(path)

    # What the binding calls.

    def getattr(self, path: str, fh: int | None = None) -> Attributes:
        self._called("getattr", path)
        return (self._at(path) if fh is None else self.handles[fh]).attributes()

    def access(self, path: str, mode: int) -> None:
        self._called("access", f"{path} {mode}")
        self._at(path)

    def readdir(self, path: str) -> list[DirectoryEntry]:
        self._called("readdir", path)
        below = "/" if path == "/" else f"{path}/"
        return [
            DirectoryEntry(each[len(below) :], node.attributes())
            for each, node in list(self.nodes.items())
            if each != "/" and each.startswith(below) and "/" not in each[len(below) :]
        ]

    def open(self, path: str, flags: int) -> int:
        self._called("open", path)
        node = self._at(path)
        if flags & os.O_TRUNC:
            node.data = bytearray()
        return self._opened(node, flags)

    def create(self, path: str, flags: int) -> int:
        self._called("create", path)
        if path in self.nodes and flags & os.O_EXCL:
            raise fault(errno.EEXIST)
        node = Node(next(self._inodes), bytearray(), next(self._times))
        self.nodes[path] = node
        return self._opened(node, flags)

    def read(self, fh: int, size: int, offset: int) -> bytes:
        self._called("read", f"{fh} {size} {offset}")
        return bytes(self._data(fh)[offset : offset + size])

    def write(self, fh: int, data: bytes, offset: int) -> int:
        self._called("write", f"{fh} {len(data)} {offset}")
        content = self._data(fh)
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data
        self.handles[fh].mtime_ns = next(self._times)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        self._called("truncate", path)
        node = self._at(path) if fh is None else self.handles[fh]
        node.data = bytearray((node.data or b"")[:length].ljust(length, b"\0"))

    def flush(self, fh: int) -> None:
        self._called("flush", str(fh))

    def fsync(self, fh: int) -> None:
        self._called("fsync", str(fh))

    def release(self, fh: int) -> None:
        self._called("release", str(fh))
        del self.handles[fh]

    def fsyncdir(self, path: str) -> None:
        self._called("fsyncdir", path)

    def unlink(self, path: str) -> None:
        self._called("unlink", path)
        self._at(path)
        del self.nodes[path]

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        self._called("rename", f"{old} {new} {flags}")
        self._at(old)
        for path in [each for each in self.nodes if each == old or each.startswith(f"{old}/")]:
            self.nodes[new + path[len(old) :]] = self.nodes.pop(path)

    def mkdir(self, path: str) -> None:
        self._called("mkdir", path)
        if path in self.nodes:
            raise fault(errno.EEXIST)
        self.put(path, None)

    def rmdir(self, path: str) -> None:
        self._called("rmdir", path)
        if self.readdir(path):
            raise fault(errno.ENOTEMPTY)
        del self.nodes[path]

    def symlink(self, path: str) -> None:
        self._called("symlink", path)
        raise fault(errno.EPERM)

    def link(self, path: str) -> None:
        self._called("link", path)
        raise fault(errno.EPERM)

    def mknod(self, path: str) -> None:
        self._called("mknod", path)
        raise fault(errno.EPERM)

    def change_attributes(self, path: str) -> None:
        self._called("change_attributes", path)

    def statfs(self, path: str) -> Space:
        self._called("statfs", path)
        return Space(blocks=2500, free_blocks=2475, files=100, free_files=99)

    def getxattr(self, path: str, name: str) -> bytes:
        self._called("getxattr", f"{path} {name}")
        if name != "user.holdfast.id":
            raise fault(errno.ENODATA)
        return b"mem_1"

    def listxattr(self, path: str) -> list[str]:
        self._called("listxattr", path)
        return ["user.holdfast.id", "user.holdfast.version"]

    def setxattr(self, path: str, name: str) -> None:
        self._called("setxattr", f"{path} {name}")
        raise fault(errno.ENOTSUP)

    def removexattr(self, path: str, name: str) -> None:
        self._called("removexattr", f"{path} {name}")
        raise fault(errno.ENOTSUP)

    def _called(self, operation: str, argument: str) -> None:
        """Note the call; raise or wait if told to."""
        self.calls.append((operation, argument))
        if operation in self.refusals:
            raise self.refusals[operation]
        if self.held.get(operation):
            go_on = self.held[operation].pop()
            self.kernel.step_aside()
            self.waiting.release()
            go_on.wait(60)

    def _at(self, path: str) -> Node:
        try:
            return self.nodes[path]
        except KeyError:
            raise fault(errno.ENOENT) from None

    def _data(self, fh: int) -> bytearray:
        data = self.handles[fh].data
        if data is None:
            raise fault(errno.EISDIR)
        return data

    def _opened(self, node: Node, flags: int) -> int:
        number = next(self._numbers)
        self.handles[number], self.flags[number] = node, flags
        return number
