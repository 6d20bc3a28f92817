"""Look up names, and read attributes."""

import os
from collections.abc import Callable
from datetime import datetime
from errno import EACCES, ENAMETOOLONG, ENODATA, ENOENT, ENOTDIR, ENOTSUP, EROFS

from holdfast.doors.mount.errors import failure
from holdfast.doors.mount.filesystem.file_ops import HandleTable, StoreDirectories
from holdfast.doors.mount.filesystem.nodes import (
    Attributes,
    Directory,
    DirectoryEntry,
    File,
    Node,
    Space,
)
from holdfast.doors.mount.filesystem.transient import StorePersistence
from holdfast.doors.mount.names import NAME_BYTES_MAX
from holdfast.ground.clock import to_microseconds

BLOCKS_PER_MEMORY = 25
"""Blocks of 4,096 bytes that the largest memory takes."""

ROOT_INODE = 1
_ROOT_MODE = 0o040555
_PREFIX = "user.holdfast."
_OF_FILES = ("id", "version", "sha256")
_OF_DIRECTORIES = ("store", "status")


class Lookups:
    """Look up names and attributes in memory.

    Take a lock only to build an entry that is not cached. *status* returns the status of the
    mount, and *store_status* that of one of its stores, as JSON.
    """

    def __init__(
        self,
        places: StoreDirectories,
        handles: HandleTable,
        *,
        at: datetime,
        status: Callable[[], bytes],
        store_status: Callable[[StorePersistence], bytes],
    ) -> None:
        self._places, self._nodes = places, places.nodes
        self._handles = handles
        self._status, self._store_status = status, store_status
        self._root = Attributes(
            inode=ROOT_INODE,
            mode=_ROOT_MODE,
            size=0,
            nlink=2,
            mtime_ns=to_microseconds(at) * 1000,
        )

    def getattr(self, path: str, fh: int | None = None) -> Attributes:
        """Return the attributes of *path*, or of the open file *fh*, for `stat`."""
        node = self._nodes.get(path) if fh is None else self._handles.demand(fh).file
        if node is None:
            return self._else(path)
        return (node.entry or self._entry(node)).attributes

    def readdir(self, path: str) -> list[DirectoryEntry]:
        """Return the current entries of the directory *path*."""
        if path == "/":
            nodes: list[Node] = [store.branch.tree.root for store in self._places.stores.values()]
        else:
            nodes = list(self._directory(path).children.values())
        return [node.entry or self._entry(node) for node in nodes]

    def access(self, path: str, mode: int) -> None:
        """Raise OSError unless the access *mode* is allowed; EROFS if read-only."""
        attributes = self.getattr(path)
        if mode & os.W_OK:
            if path == "/":
                raise failure(EROFS)
            self._places.of(path).branch.demand_writable()
        if mode & os.X_OK and not attributes.mode & 0o111:
            raise failure(EACCES)

    def change_attributes(self, path: str) -> None:
        """Accept a new mode, owner or time, and ignore it."""
        self.getattr(path)
        self._places.of(path, change=path == "/").branch.demand_writable()

    def statfs(self, path: str) -> Space:
        """Return how many memories fit: in the store of *path*, or in all."""
        stores = list(self._places.stores.values()) if path == "/" else [self._places.of(path)]
        cap = sum(each.branch.status.cap for each in stores)
        free = sum(max(0, each.branch.status.cap - len(each.branch.heads)) for each in stores)
        return Space(
            blocks=cap * BLOCKS_PER_MEMORY,
            free_blocks=free * BLOCKS_PER_MEMORY,
            files=cap,
            free_files=free,
        )

    def getxattr(self, path: str, name: str) -> bytes:
        """Return the extended attribute *name* of *path*; ENODATA if unknown.

        The kernel requests `security.capability` before every write.
        """
        if not name.startswith(_PREFIX):
            raise failure(ENODATA)
        value = self._value(path, name[len(_PREFIX) :])
        if value is None:
            raise failure(ENODATA)
        return value

    def listxattr(self, path: str) -> list[str]:
        """Return the names of the extended attributes of *path*."""
        if path == "/":
            return [_PREFIX + "status"]
        node = self._demand(path)
        if isinstance(node, Directory):
            return [_PREFIX + name for name in _OF_DIRECTORIES]
        return [] if node.memory is None else [_PREFIX + name for name in _OF_FILES]

    def setxattr(self, path: str, name: str) -> None:
        """Raise ENOTSUP: extended attributes are read-only."""
        del path, name
        raise failure(ENOTSUP)

    def _value(self, path: str, name: str) -> bytes | None:
        if path == "/":
            return self._status() if name == "status" else None
        node = self._demand(path)
        if isinstance(node, Directory):
            store = self._places.of(path)
            if name == "store":
                return store.branch.source.id.encode()
            return self._store_status(store) if name == "status" else None
        memory = node.memory
        if memory is None:
            return None
        value = {
            "id": memory.id,
            "version": memory.memory_version_id,
            "sha256": memory.content_sha256,
        }.get(name)
        return None if value is None else value.encode()

    def _entry(self, node: Node) -> DirectoryEntry:
        """Build and cache the directory entry of *node*, under the store's lock."""
        branch = self._places.of(node.path).branch
        with branch.lock:
            if isinstance(node, Directory):
                mode, size, nlink, at = 0o040755, 0, 2, node.changed_at
            else:
                buffer, memory = node.buffer, node.memory or node.former
                mode, size, nlink, at = 0o100644, 0, 1, None
                if buffer is not None:
                    size, at = len(buffer.data), buffer.changed_at
                elif memory is not None:
                    size, at = memory.content_size_bytes, memory.updated_at
            attributes = Attributes(
                inode=node.inode,
                mode=mode if branch.tree.writable else mode & ~0o222,
                size=size,
                nlink=nlink,
                mtime_ns=0 if at is None else to_microseconds(at) * 1000,
            )
            node.entry = entry = DirectoryEntry(node.name, attributes)
            return entry

    def _else(self, path: str) -> Attributes:
        """Return the attributes of the root, else raise ENOENT or a closer errno."""
        if path == "/":
            return self._root
        name = path[path.rindex("/") + 1 :]
        if len(name.encode(errors="surrogateescape")) > NAME_BYTES_MAX:
            raise failure(ENAMETOOLONG)
        if isinstance(self._nodes.get(path[: path.rindex("/")]), File):
            raise failure(ENOTDIR)
        raise failure(ENOENT)

    def _demand(self, path: str) -> Node:
        node = self._nodes.get(path)
        if node is None:
            self._else(path)
            raise failure(ENOENT)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._demand(path)
        if isinstance(node, File):
            raise failure(ENOTDIR)
        return node
