"""The file operations of a mount, for any FUSE binding.

A binding may call the operations from any number of threads. None of them waits for the storage
of another store, or for a save of another file.
"""

import logging
from collections.abc import Callable, Sequence
from errno import ENOTTY, EOPNOTSUPP, EPERM, EROFS, ESTALE
from itertools import count
from time import monotonic

import msgspec

from holdfast.doors.mount.errors import errno_of, failure, guarded
from holdfast.doors.mount.filesystem.attributes import ROOT_INODE, Lookups
from holdfast.doors.mount.filesystem.file_ops import (
    FileOperations,
    FileWriter,
    HandleTable,
    StoreDirectories,
)
from holdfast.doors.mount.filesystem.nodes import Directory, File, Nodes, work_of
from holdfast.doors.mount.filesystem.recovery import LeftEntry, Recovery, Shutdown
from holdfast.doors.mount.filesystem.rename import Removals, Renames
from holdfast.doors.mount.filesystem.store_dir import MountStatus, StoreDirectory, StoreStatus
from holdfast.doors.mount.filesystem.transient import StoreParts
from holdfast.doors.mount.filesystem.tree import MountContext
from holdfast.doors.mount.fuse.kernel import Kernel, NoKernel
from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.storage.deadline import Later
from holdfast.doors.mount.storage.feed import StoreFeed
from holdfast.doors.mount.storage.source import StoreSource
from holdfast.doors.mount.storage.spool import Spool
from holdfast.ground.clock import Clock, to_rfc3339
from holdfast.ground.errors import HoldfastError, NotAuthenticated, Unavailable
from holdfast.ground.events import Event
from holdfast.ground.ids import Ids
from holdfast.memories.stores.records import Access, ChangesPage, Snapshot

_log = logging.getLogger(__name__)
_NO_KERNEL = NoKernel()


class RemoteChanges:
    """Apply the feed of one store. Files with unsaved bytes keep them."""

    def __init__(self, parts: StoreParts, handles: HandleTable) -> None:
        self._parts, self._branch, self._handles = parts, parts.branch, handles
        parts.branch.on_gone = self.lost

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

    def lost(self, error: HoldfastError) -> None:
        """Record why the feed failed: storage down, store deleted or session over."""
        branch = self._branch
        if errno_of(error) == ESTALE:
            self._gone()
            return
        session = branch.surroundings.options.session_id
        if isinstance(error, NotAuthenticated) and session is not None:
            branch.ended = True
            self._judge()
        branch.lost = error
        branch.counts.emit("degraded", reason=getattr(error, "reason", type(error).__name__))

    def back(self) -> None:
        """Record that the feed works again."""
        self._branch.lost = None
        if self._branch.ended:
            self._branch.ended = False
            self._judge()

    def _update_limits(self, store: ChangesPage | Snapshot) -> None:
        branch = self._branch
        if (store.cap, store.archived_at) != (branch.cap, branch.archived_at):
            branch.cap, branch.archived_at = store.cap, store.archived_at
            self._judge()

    def _judge(self) -> None:
        """Check whether the store is still writable; if not, spool unsaved files."""
        branch = self._branch
        with branch.lock:
            before = branch.refusal
            branch.judge()
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
                    self._parts.keeping.leave_unsaved(file, EROFS)
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
                    branch.surroundings.kernel.forget_content(file.path)
            if work.aside is not None:
                branch.heads.put_back(file)

    def _gone(self) -> None:
        """Empty the directory of a deleted store; unsaved bytes are discarded."""
        branch = self._branch
        with branch.lock:
            if branch.gone:
                return
            branch.gone, branch.lost = True, None
            for handle in self._handles.of(branch.slug):
                handle.dead = handle.sticky_error = ESTALE
            files = branch.tree.root.files()
            for file in files:
                if file.unsaved:
                    branch.counts.fail(ESTALE)
            self._empty(files)
            branch.surroundings.spool.forget(branch.source.id)
            branch.judge()

    def _empty(self, files: list[File]) -> None:
        branch = self._branch
        for file in files:
            work = file.work
            if work is not None:
                work.stop_retrying()
                work.stop_grace()
                for kept in (work.kept, work.attempt.kept if work.attempt else None):
                    if kept is not None:
                        branch.surroundings.spool.release(kept)
                work.attempt = work.unsure = work.kept = work.closed = None
                work.due = False
            branch.heads.set_aside(file, None)
            branch.heads.release(file)
            branch.unsaved.drop(file)
            branch.tree.detach(file, here=False)
        branch.heads.hidden.clear()
        branch.unsafe.clear()
        for node in reversed(list(branch.tree.root.below())):
            if isinstance(node, Directory) and node.parent is not None:
                above = node.parent.path
                branch.tree.remove(node)
                branch.surroundings.kernel.forget_name(above, node.name)


class StoreFilesystem:
    """The directories of several stores, `/<slug>/<path of the memory>`.

    `described` returns `user.holdfast.status` of the whole mount; the process may replace it.
    """

    def __init__(
        self,
        sources: Sequence[tuple[str, StoreSource, Access]],
        *,
        options: MountOptions,
        spool: Spool,
        later: Later,
        clock: Clock,
        ids: Ids,
        publish: Callable[[Event], None],
        kernel: Kernel = _NO_KERNEL,
    ) -> None:
        around = self._around = MountContext(
            options=options,
            spool=spool,
            later=later,
            clock=clock,
            ids=ids,
            publish=publish,
            kernel=kernel,
        )
        nodes: Nodes = {}
        inodes = count(ROOT_INODE + 1)
        self._parts = {
            slug: StoreParts(
                StoreDirectory(
                    slug, source, access, surroundings=around, nodes=nodes, inodes=inodes
                )
            )
            for slug, source, access in sources
        }
        self.described: Callable[[], bytes] = lambda: msgspec.json.encode(self.status())
        self._feeds: dict[str, StoreFeed] = {}
        self._recoveries: list[Recovery] = []
        self._lay_out(StoreDirectories(self._parts, nodes), HandleTable())
        self.left: tuple[LeftEntry, ...] = ()
        """Spool entries of an earlier mount that a person must resolve; set by `start`."""

    def _lay_out(self, places: StoreDirectories, handles: HandleTable) -> None:
        """Bind each operation as an attribute, so that a binding calls it directly."""
        lookups = Lookups(
            places,
            handles,
            at=self._around.clock.now(),
            status=self._described,
            store_status=lambda parts: msgspec.json.encode(self._of_store(parts)),
        )
        writing = FileWriter(places, handles)
        files = FileOperations(places, handles, writing)
        removing, renaming = Removals(places), Renames(places)
        self._remote = {slug: RemoteChanges(parts, handles) for slug, parts in self._parts.items()}
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
        self.write = guarded(writing.write)
        self.truncate = guarded(writing.truncate, timed=True)
        self.unlink = guarded(removing.unlink, timed=True)
        self.rename = guarded(renaming.rename, timed=True)
        self.mkdir = guarded(removing.mkdir, timed=True)
        self.rmdir = guarded(removing.rmdir)
        self.fsyncdir = guarded(removing.fsyncdir, timed=True)

    @property
    def kernel(self) -> Kernel:
        """The kernel to invalidate; a binding sets itself before the start."""
        return self._around.kernel

    @kernel.setter
    def kernel(self, kernel: Kernel) -> None:
        self._around.kernel = kernel

    def start(self) -> None:
        """Load the stores, save what an earlier mount could not, and follow changes."""
        left: list[LeftEntry] = []
        for slug, parts in self._parts.items():
            branch = parts.branch
            snapshot = branch.source.snapshot()
            branch.fill(snapshot)
            self._recoveries.append(Recovery(parts))
            left += self._recoveries[-1].run()
            remote = self._remote[slug]
            self._feeds[slug] = StoreFeed(
                branch.source,
                seq=snapshot.seq,
                changed=remote.changed,
                resynced=remote.resynced,
                lost=remote.lost,
                back=remote.back,
            )
        self.left = tuple(left)
        for feed in self._feeds.values():
            feed.start()
        self._emit("started")

    def stop(self, seconds: float) -> int:
        """Save unsaved files within *seconds*; spool the rest and return their number."""
        around = self._around
        around.hurried = around.hurried or seconds <= 0
        around.stopping = True
        for feed in self._feeds.values():
            feed.close()
        for recovery in self._recoveries:
            recovery.end()
        end = monotonic() + seconds

        def over() -> bool:
            return around.hurried or monotonic() >= end

        spooled = sum(Shutdown(parts).run(over) for parts in self._parts.values())
        self._emit("stopped", spooled=spooled)
        return spooled

    def status(self) -> MountStatus:
        """Return the status of the mount and its stores."""
        branches = [parts.branch for parts in self._parts.values()]
        stores = tuple(self._of_store(parts) for parts in self._parts.values())
        if self._around.stopping:
            state = "stopping"
        elif any(branch.unsafe for branch in branches):
            state = "unsafe"
        elif any(branch.lost for branch in branches) or any(store.retrying for store in stores):
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

    def fallocate(self, path: str) -> None:
        """Raise EOPNOTSUPP; libc then writes zeros, which `write` refuses."""
        del path
        raise failure(EOPNOTSUPP)

    def ioctl(self, path: str) -> None:
        """Raise ENOTTY."""
        del path
        raise failure(ENOTTY)

    def _described(self) -> bytes:
        return self.described()

    def _of_store(self, parts: StoreParts) -> StoreStatus:
        branch = parts.branch
        with branch.lock:
            working = [file for file in branch.tree.root.files() if file.work is not None]
            unsaved = [file for file in working if file.unsaved]
            retrying = [file for file in unsaved if file.work and file.work.tries]
        counts, archived_at = branch.counts, branch.archived_at
        return StoreStatus(
            id=branch.source.id,
            name=branch.source.name,
            slug=branch.slug,
            access="read_only" if branch.read_only else "read_write",
            archived_at=None if archived_at is None else to_rfc3339(archived_at),
            memories=len(branch.heads),
            cap=branch.cap,
            unsaved=len(unsaved),
            retrying=len(retrying),
            spooled=self._around.spool.count(branch.source.id),
            hidden=len(branch.heads.hidden),
            saves=counts.saves,
            refused=dict(counts.refused),
            failed=dict(counts.failed),
            promoted=counts.promoted,
            conflicts=counts.conflicts,
            retried=counts.retried,
        )

    def _emit(self, what: str, **data: int) -> None:
        first = next(iter(self._parts.values())).branch
        self._around.emit(what, first.source.workspace, stores=len(self._parts), **data)
