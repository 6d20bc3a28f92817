"""Temporary files, and their grace period.

A closed temporary file is in the spool, synced to disk on fsync, and becomes a memory if it still
exists after the grace period. A memory renamed to a backup name keeps its path in the store until
then: if that path is written again, the write is a version of the same memory, and the backup
becomes a separate file.
"""

import logging
from errno import EIO, ENOSPC
from functools import partial

from holdfast.doors.mount.errors import failure, oserror, passing
from holdfast.doors.mount.filesystem.nodes import Directory, File, content_fault, tidy, work_of
from holdfast.doors.mount.filesystem.save import FileSaver, UnsavedSpool
from holdfast.doors.mount.filesystem.store_dir import StoreDirectory, StoreWriter
from holdfast.doors.mount.names import Kind
from holdfast.ground.errors import Unavailable
from holdfast.memories.stores.edits import Move, Moved
from holdfast.memories.stores.records import Applied

_log = logging.getLogger(__name__)


class Grace:
    """The temporary files and the backups of one store."""

    def __init__(
        self, branch: StoreDirectory, saver: FileSaver, spool: UnsavedSpool, writer: StoreWriter
    ) -> None:
        self._branch, self._saver = branch, saver
        self._spool, self._writer = spool, writer
        self._context = branch.context
        saver.forked = self._forked

    def close(self, file: File) -> None:
        """Spool the temporary *file* as it is now; OSError if it cannot be a memory."""
        try:
            with self._branch.locks.of(file):
                self.spool(file)
        except Unavailable as error:
            raise oserror(error) from error

    def sync(self, file: File) -> None:
        """Spool the temporary *file* and sync it to disk; OSError as for `close`."""
        try:
            with self._branch.locks.of(file):
                self.spool(file)
                if not self._spool.secure(file, work_of(file).spooled):
                    raise failure(EIO)
        except Unavailable as error:
            raise oserror(error) from error

    def arm(self, file: File) -> None:
        """Start the grace period of *file*, which has no writer any more."""
        self._after(file, self._context.options.grace)

    def materialise(self, file: File) -> None:
        """Save the temporary *file* as a memory, if it still waits and has no writer."""
        try:
            with self._saver.locked(file) as backup:
                work = work_of(file)
                if not self._waits(file) or work.written:
                    return
                work.stop_grace()
                self._saver.send_all(file, backup)
        except Unavailable as error:
            self.arm(file)
            raise oserror(error) from error
        if file.memory is not None:
            self._branch.status.materialise(file.memory.id)

    def back_up(self, file: File, path: str) -> None:
        """Show the memory *file* at the backup *path* and start its grace period.

        The file's lock is held. The store is not changed yet.
        """
        branch, work = self._branch, work_of(file)
        with branch.lock:
            former = work.stored_path or file.path
            branch.heads.set_stored_path(file, None)
            branch.tree.move(file, path, here=True)
            branch.heads.set_stored_path(file, former)
            branch.heads.reconsider()
        self.arm(file)

    def commit(self, file: File) -> None:
        """Rename the backup's memory in the store too.

        Raise OSError if that fails; if the path is taken, the memory returns to its old path.
        """
        try:
            with self._branch.locks.of(file):
                work = work_of(file)
                memory = file.memory
                if work.stored_path is None or memory is None:
                    return
                work.stop_grace()
                self._saver.settle(file)
                moved = Moved(memory_id=memory.id, path=file.path.removeprefix(self._branch.prefix))
                self._writer.send((file,), (Move(moves=(moved,)),), partial(self._moved, file))
        except (OSError, Unavailable) as error:
            self._not_moved(file, passes=passing(error))
            raise oserror(error) from error
        finally:
            self._saver.resume(file)

    def end(self, directory: Directory) -> None:
        """End the grace of temporary files directly in *directory*, for an fsync."""
        for child in list(directory.children.values()):
            if isinstance(child, File) and child.kind is Kind.TRANSIENT:
                self.end_of(child)

    def end_of(self, file: File) -> None:
        """End the grace period of *file*."""
        if file.work is not None and file.work.stored_path is not None:
            self.commit(file)
        elif self._waits(file) and not work_of(file).written:
            self.materialise(file)

    def spool(self, file: File) -> None:
        """Spool the temporary *file*, under its lock; OSError as for `close`."""
        work = work_of(file)
        if file.kind is not Kind.TRANSIENT:
            self._saver.send_all(file)
            return
        with self._branch.lock:
            buffer = file.buffer
            if file.orphan or buffer is None or not buffer.unsaved:
                return
            version, snapshot = buffer.version, buffer.snapshot()
            buffer.undo_snapshot(snapshot)
        fault = content_fault(snapshot.content, zeros=snapshot.zeros)
        if fault:
            raise self._saver.refuse(file, fault)
        known = work.spooled is not None and work.spooled_version == version
        if not known and not self._spool.spool_unsaved(file, snapshot, version, 0):
            raise failure(ENOSPC)
        self._mark_spooled(file, version)

    def _mark_spooled(self, file: File, version: int) -> None:
        """Record that all writes to *file* up to *version* are spooled."""
        with self._branch.lock:
            buffer = file.buffer
            if buffer is not None and buffer.version == version:
                for handle in work_of(file).handles:
                    handle.wrote = handle.sent = False

    def _waits(self, file: File) -> bool:
        return file.kind is Kind.TRANSIENT and file.parent is not None and file.unsaved

    def _moved(self, file: File, applied: list[Applied]) -> None:
        self._branch.heads.set_stored_path(file, None)
        self._branch.absorb(applied)

    def _not_moved(self, file: File, *, passes: bool) -> None:
        """Retry later, or move the file back to its path in the store."""
        with self._branch.lock:
            if work_of(file).stored_path is None:
                return
            if not passes:
                self._branch.heads.put_back(file)
                return
        self.arm(file)

    def _forked(self, file: File, content: bytes) -> None:
        """Spool the backup *file*, now separate from its memory, and start its grace."""
        del content
        if file.orphan or file.parent is None or file.buffer is None:
            return
        self.spool(file)
        self.arm(file)

    def _after(self, file: File, seconds: float) -> None:
        work = work_of(file)
        work.stop_grace()
        if not self._context.stopping:
            call = partial(self._due, file)
            work.grace = self._context.later.after(seconds, call, key=file.inode)

    def _due(self, file: File) -> None:
        work_of(file).grace = None
        try:
            if not self._branch.refusal:
                self.end_of(file)
        except OSError as error:
            _log.info("what waited is not saved yet: %s", error.strerror)
        finally:
            with self._branch.lock:
                tidy(file)


class StorePersistence:
    """The directory of one store, with the objects that save and spool its files."""

    def __init__(self, branch: StoreDirectory) -> None:
        self.branch = branch
        self.spool = UnsavedSpool(branch)
        self.writer = StoreWriter(branch)
        self.saver = FileSaver(branch, self.spool, self.writer)
        self.grace = Grace(branch, self.saver, self.spool, self.writer)
        self.left: set[File] = set()
        """Files that were unsaved at the stop and are left in the spool."""

    def close(self, file: File) -> None:
        """Save or spool *file* after a close with writes; OSError if that fails."""
        if file.orphan or file.kind is Kind.SCRATCH:
            return
        if file.kind is Kind.TRANSIENT:
            self.grace.close(file)
        else:
            self.saver.save(file)

    def sync(self, file: File) -> None:
        """Save *file*, or sync its spool entry, for an fsync; OSError if that fails."""
        if file.kind is Kind.TRANSIENT and not file.orphan:
            self.grace.sync(file)
        else:
            self.close(file)
