"""The file operations of a mount, for any FUSE binding.

A binding may call the operations from any number of threads. None of them waits for the storage
of another store, or for a save of another file.
"""

import logging
from collections.abc import Callable, Sequence
from errno import ENOTTY, EOPNOTSUPP, EPERM
from itertools import count
from time import monotonic

import msgspec

from holdfast.doors.mount.errors import failure, guarded, paced
from holdfast.doors.mount.filesystem.attributes import ROOT_INODE, Lookups
from holdfast.doors.mount.filesystem.file_ops import FileOperations, HandleTable, Places, Writing
from holdfast.doors.mount.filesystem.nodes import Nodes
from holdfast.doors.mount.filesystem.recovery import Closing, Left, Recovery
from holdfast.doors.mount.filesystem.remote_changes import Absorbing
from holdfast.doors.mount.filesystem.rename import Removing, Renaming
from holdfast.doors.mount.filesystem.store_dir import Branch, MountStatus, StoreStatus
from holdfast.doors.mount.filesystem.transient import Parts
from holdfast.doors.mount.filesystem.tree import Surroundings
from holdfast.doors.mount.fuse.kernel import Kernel, NoKernel
from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.storage.deadline import Later
from holdfast.doors.mount.storage.feed import StoreFeed
from holdfast.doors.mount.storage.source import StoreSource
from holdfast.doors.mount.storage.spool import Spool
from holdfast.ground.clock import Clock, to_rfc3339
from holdfast.ground.events import Event
from holdfast.ground.ids import Ids
from holdfast.memories.stores.records import Access

_log = logging.getLogger(__name__)
_NO_KERNEL = NoKernel()


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
        around = self._around = Surroundings(
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
            slug: Parts(
                Branch(slug, source, access, surroundings=around, nodes=nodes, inodes=inodes)
            )
            for slug, source, access in sources
        }
        self.described: Callable[[], bytes] = lambda: msgspec.json.encode(self.status())
        self._feeds: dict[str, StoreFeed] = {}
        self._recoveries: list[Recovery] = []
        self._lay_out(Places(self._parts, nodes), HandleTable())
        self.left: tuple[Left, ...] = ()
        """Spool entries of an earlier mount that a person must resolve; set by `start`."""

    def _lay_out(self, places: Places, handles: HandleTable) -> None:
        """Bind each operation as an attribute, so that a binding calls it directly."""
        lookups = Lookups(
            places,
            handles,
            at=self._around.clock.now(),
            status=self._described,
            store_status=lambda parts: msgspec.json.encode(self._of_store(parts)),
        )
        writing = Writing(places, handles)
        files = FileOperations(places, handles, writing)
        removing, renaming = Removing(places), Renaming(places)
        self._absorbing = {slug: Absorbing(parts, handles) for slug, parts in self._parts.items()}
        self.getattr, self.readdir = guarded(lookups.getattr), guarded(lookups.readdir)
        self.access, self.statfs = guarded(lookups.access), guarded(lookups.statfs)
        self.change_attributes = guarded(lookups.change_attributes)
        self.getxattr, self.listxattr = guarded(lookups.getxattr), guarded(lookups.listxattr)
        self.setxattr = self.removexattr = lookups.setxattr
        self.open, self.create, self.read = (
            paced(files.open),
            paced(files.create),
            guarded(files.read),
        )
        self.flush, self.fsync, self.release = (
            paced(files.flush),
            paced(files.fsync),
            paced(files.release),
        )
        self.write, self.truncate = guarded(writing.write), paced(writing.truncate)
        self.unlink, self.rename = paced(removing.unlink), paced(renaming.rename)
        self.mkdir, self.rmdir = paced(removing.mkdir), guarded(removing.rmdir)
        self.fsyncdir = paced(removing.fsyncdir)

    @property
    def kernel(self) -> Kernel:
        """The kernel to invalidate; a binding sets itself before the start."""
        return self._around.kernel

    @kernel.setter
    def kernel(self, kernel: Kernel) -> None:
        self._around.kernel = kernel

    def start(self) -> None:
        """Load the stores, save what an earlier mount could not, and follow changes."""
        left: list[Left] = []
        for slug, parts in self._parts.items():
            branch = parts.branch
            snapshot = branch.source.snapshot()
            branch.fill(snapshot)
            self._recoveries.append(Recovery(parts))
            left += self._recoveries[-1].run()
            absorbing = self._absorbing[slug]
            self._feeds[slug] = StoreFeed(
                branch.source,
                seq=snapshot.seq,
                changed=absorbing.changed,
                resynced=absorbing.resynced,
                lost=absorbing.lost,
                back=absorbing.back,
            )
        self.left = tuple(left)
        for feed in self._feeds.values():
            feed.start()
        self._publish("started")

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

        spooled = sum(Closing(parts).run(over) for parts in self._parts.values())
        self._publish("stopped", spooled=spooled)
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

    def _of_store(self, parts: Parts) -> StoreStatus:
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

    def _publish(self, what: str, **data: int) -> None:
        first = next(iter(self._parts.values())).branch
        session_id = self._around.options.session_id
        self._around.publish(
            Event(
                type=f"mount.{what}",
                at=self._around.clock.now(),
                workspace=first.source.workspace,
                ids={} if session_id is None else {"session_id": session_id},
                data={"stores": len(self._parts), **data},
            )
        )
