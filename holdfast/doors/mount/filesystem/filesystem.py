"""The file operations of a mount, for any FUSE binding; names and attributes.

A binding may call the operations from any number of threads. None of them waits for the storage
of another store, or for a save of another file.
"""

import logging
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from errno import EACCES, ENAMETOOLONG, ENODATA, ENOENT, ENOTDIR, ENOTSUP, EPERM, EROFS, ESTALE
from itertools import count
from time import monotonic

import msgspec

from holdfast.doors.mount.errors import errno_of, failure, guarded
from holdfast.doors.mount.filesystem.file_ops import (
    FileOperations,
    HandleTable,
    StoreDirectories,
)
from holdfast.doors.mount.filesystem.nodes import (
    Attributes,
    Directory,
    DirectoryEntry,
    File,
    Kernel,
    Node,
    Nodes,
    Space,
    work_of,
)
from holdfast.doors.mount.filesystem.recovery import LeftEntry, Recovery, Shutdown
from holdfast.doors.mount.filesystem.rename import NameOperations
from holdfast.doors.mount.filesystem.store_dir import MountStatus, StoreDirectory, StoreStatus
from holdfast.doors.mount.filesystem.transient import StorePersistence
from holdfast.doors.mount.filesystem.tree import MountContext
from holdfast.doors.mount.names import NAME_BYTES_MAX
from holdfast.doors.mount.storage.feed import StoreFeed
from holdfast.doors.mount.storage.source import StoreSource
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import HoldfastError, NotAuthenticated, Unavailable
from holdfast.memories.stores.records import Access, ChangesPage, Snapshot

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


_log = logging.getLogger(__name__)


class RemoteChanges:
    """Apply the feed of one store. Files with unsaved bytes keep them."""

    def __init__(self, store: StorePersistence, handles: HandleTable) -> None:
        self._store, self._branch, self._handles = store, store.branch, handles
        store.branch.on_deleted = self.disconnected

    def changed(self, changes: ChangesPage) -> None:
        """Apply changed heads; this mount's own edits arrive here a second time."""
        branch = self._branch
        with branch.lock:
            if changes.changes:
                branch.locks.await_in_flight()
            for change in changes.changes:
                if change.memory is None:
                    branch.heads.lose(change.memory_id, change.seq)
                else:
                    branch.heads.learn(change.memory, change.seq)
            branch.heads.passed(changes.seq)
        self._update_limits(changes)

    def resynced(self, snapshot: Snapshot) -> None:
        """Apply all heads after a gap in the feed."""
        with self._branch.lock:
            self._branch.locks.await_in_flight()
            self._branch.heads.resync(snapshot)
        self._update_limits(snapshot)

    def disconnected(self, error: HoldfastError) -> None:
        """Record why the feed failed: storage down, store deleted or session over."""
        branch = self._branch
        if errno_of(error) == ESTALE:
            self._delete()
            return
        session = branch.context.options.session_id
        if isinstance(error, NotAuthenticated) and session is not None:
            branch.status.ended = True
            self._update_access()
        branch.status.disconnected = error
        branch.status.emit("degraded", reason=getattr(error, "reason", type(error).__name__))

    def reconnected(self) -> None:
        """Record that the feed works again."""
        status = self._branch.status
        status.disconnected = None
        if status.ended:
            status.ended = False
            self._update_access()

    def _update_limits(self, store: ChangesPage | Snapshot) -> None:
        status = self._branch.status
        if (store.cap, store.archived_at) != (status.cap, status.archived_at):
            status.cap, status.archived_at = store.cap, store.archived_at
            self._update_access()

    def _update_access(self) -> None:
        """Check whether the store is still writable; if not, spool unsaved files."""
        branch = self._branch
        with branch.lock:
            before = branch.refusal
            branch.update_access()
            closed = not before and branch.refusal
            files = [file for file in branch.tree.root.files() if file.work] if closed else []
        for file in files:
            self._close(file)

    def _close(self, file: File) -> None:
        """Leave unsaved bytes of *file* in the spool, and show its head."""
        try:
            with self._branch.locks.of(file):
                unsaved = file.unsaved
                if unsaved:
                    self._store.spool.leave_unsaved(file, EROFS)
                self._show_head(file, unsaved=unsaved)
        except Unavailable:
            # Its save is in flight: the store refuses it, and that leaves it in the spool.
            return

    def _show_head(self, file: File, *, unsaved: bool) -> None:
        branch = self._branch
        with branch.lock:
            work = work_of(file)
            work.stop_retrying()
            work.stop_grace()
            for handle in work.handles:
                if handle.wrote or unsaved:
                    handle.sticky_error, handle.wrote = EROFS, False
            if unsaved:
                work.attempt, work.due, work.closed = None, False, None
                branch.unsaved.drop(file)
                if file.memory is None:
                    branch.unsaved.vanish(file)
                elif file.parent is not None:
                    branch.context.kernel.forget_content(file.path)
            if work.stored_path is not None:
                branch.heads.put_back(file)

    def _delete(self) -> None:
        """Empty the directory of a deleted store; unsaved bytes are discarded."""
        branch = self._branch
        with branch.lock:
            if branch.status.deleted:
                return
            branch.status.deleted, branch.status.disconnected = True, None
            for handle in self._handles.of(branch.slug):
                handle.dead = handle.sticky_error = ESTALE
            files = branch.tree.root.files()
            for file in files:
                if file.unsaved:
                    branch.status.fail(ESTALE)
            self._empty(files)
            branch.context.spool.forget(branch.source.id)
            branch.update_access()

    def _empty(self, files: list[File]) -> None:
        branch = self._branch
        for file in files:
            work = file.work
            if work is not None:
                work.stop_retrying()
                work.stop_grace()
                for entry in (work.spooled, work.attempt.spooled if work.attempt else None):
                    if entry is not None:
                        entry.release()
                work.attempt = work.unsure = work.spooled = work.closed = None
                work.due = False
            branch.heads.set_stored_path(file, None)
            branch.heads.release(file)
            branch.unsaved.drop(file)
            branch.tree.detach(file, here=False)
        branch.heads.hidden.clear()
        branch.unsafe.clear()
        for node in reversed(list(branch.tree.root.below())):
            if isinstance(node, Directory) and node.parent is not None:
                above = node.parent.path
                branch.tree.remove(node)
                branch.context.kernel.forget_name(above, node.name)


class StoreFilesystem:
    """The directories of several stores, `/<slug>/<path of the memory>`.

    `described` returns `user.holdfast.status` of the whole mount; the process may replace it.
    """

    def __init__(
        self, sources: Sequence[tuple[str, StoreSource, Access]], context: MountContext
    ) -> None:
        self._context = context
        nodes: Nodes = {}
        inodes = count(ROOT_INODE + 1)
        self._stores = {
            slug: StorePersistence(
                StoreDirectory(slug, source, access, context=context, nodes=nodes, inodes=inodes)
            )
            for slug, source, access in sources
        }
        self.described: Callable[[], bytes] = lambda: msgspec.json.encode(self.status())
        self._feeds: dict[str, StoreFeed] = {}
        self._recoveries: list[Recovery] = []
        self._lay_out(StoreDirectories(self._stores, nodes), HandleTable())
        self.left: tuple[LeftEntry, ...] = ()
        """Spool entries of an earlier mount that a person must resolve; set by `start`."""

    def _lay_out(self, places: StoreDirectories, handles: HandleTable) -> None:
        """Bind each operation as an attribute, so that a binding calls it directly."""
        lookups = Lookups(
            places,
            handles,
            at=self._context.clock.now(),
            status=lambda: self.described(),  # noqa: PLW0108 - the process replaces it
            store_status=lambda store: msgspec.json.encode(self._of_store(store)),
        )
        files = FileOperations(places, handles)
        names = NameOperations(places)
        self._remote = {slug: RemoteChanges(store, handles) for slug, store in self._stores.items()}
        self.getattr, self.readdir = guarded(lookups.getattr), guarded(lookups.readdir)
        self.access, self.statfs = guarded(lookups.access), guarded(lookups.statfs)
        self.change_attributes = guarded(lookups.change_attributes)
        self.getxattr, self.listxattr = guarded(lookups.getxattr), guarded(lookups.listxattr)
        self.setxattr = self.removexattr = lookups.setxattr
        self.open = guarded(files.open, timed=True)
        self.create = guarded(files.create, timed=True)
        self.read = guarded(files.read)
        self.flush = guarded(files.flush, timed=True)
        self.fsync = guarded(files.fsync, timed=True)
        self.release = guarded(files.release, timed=True)
        self.write = guarded(files.write)
        self.truncate = guarded(files.truncate, timed=True)
        self.unlink = guarded(names.unlink, timed=True)
        self.rename = guarded(names.rename, timed=True)
        self.mkdir = guarded(names.mkdir, timed=True)
        self.rmdir = guarded(names.rmdir)
        self.fsyncdir = guarded(names.fsyncdir, timed=True)

    @property
    def kernel(self) -> Kernel:
        """The kernel to invalidate; a binding sets itself before the start."""
        return self._context.kernel

    @kernel.setter
    def kernel(self, kernel: Kernel) -> None:
        self._context.kernel = kernel

    def start(self) -> None:
        """Load the stores, save what an earlier mount could not, and follow changes."""
        left: list[LeftEntry] = []
        for slug, store in self._stores.items():
            branch = store.branch
            snapshot = branch.source.snapshot()
            branch.fill(snapshot)
            self._recoveries.append(Recovery(store))
            left += self._recoveries[-1].run()
            remote = self._remote[slug]
            self._feeds[slug] = StoreFeed(
                branch.source,
                seq=snapshot.seq,
                changed=remote.changed,
                resynced=remote.resynced,
                disconnected=remote.disconnected,
                reconnected=remote.reconnected,
            )
        self.left = tuple(left)
        for feed in self._feeds.values():
            feed.start()
        self._emit("started")

    def stop(self, seconds: float) -> int:
        """Save unsaved files within *seconds*; spool the rest and return their number."""
        context = self._context
        context.hurried = context.hurried or seconds <= 0
        context.stopping = True
        for feed in self._feeds.values():
            feed.close()
        for recovery in self._recoveries:
            recovery.end()
        end = monotonic() + seconds

        def over() -> bool:
            return context.hurried or monotonic() >= end

        spooled = sum(Shutdown(store).run(over) for store in self._stores.values())
        self._emit("stopped", spooled=spooled)
        return spooled

    def status(self) -> MountStatus:
        """Return the status of the mount and its stores."""
        branches = [store.branch for store in self._stores.values()]
        stores = tuple(self._of_store(store) for store in self._stores.values())
        if self._context.stopping:
            state = "stopping"
        elif any(branch.unsafe for branch in branches):
            state = "unsafe"
        elif any(each.status.disconnected for each in branches) or any(s.retrying for s in stores):
            state = "degraded"
        else:
            state = "ok"
        lags = [feed.lag_seconds for feed in self._feeds.values()]
        return MountStatus(
            state=state,
            feed_lag_seconds=round(max(lags, default=0.0), 3),
            stores=stores,
        )

    def symlink(self, path: str) -> None:
        """Raise EPERM: a store holds only text files."""
        del path
        raise failure(EPERM)

    link = mknod = symlink

    def _of_store(self, store: StorePersistence) -> StoreStatus:
        branch = store.branch
        with branch.lock:
            working = [file for file in branch.tree.root.files() if file.work is not None]
            unsaved = [file for file in working if file.unsaved]
            retrying = [file for file in unsaved if file.work and file.work.tries]
        return branch.status.report(
            memories=len(branch.heads),
            unsaved=len(unsaved),
            retrying=len(retrying),
            hidden=len(branch.heads.hidden),
        )

    def _emit(self, what: str, **data: int) -> None:
        first = next(iter(self._stores.values())).branch
        self._context.emit(what, first.source.workspace, stores=len(self._stores), **data)
