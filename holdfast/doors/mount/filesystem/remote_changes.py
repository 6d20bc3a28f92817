"""Apply changes by other clients to the tree."""

from errno import EROFS, ESTALE

from holdfast.doors.mount.errors import errno_of
from holdfast.doors.mount.filesystem.file_ops import HandleTable
from holdfast.doors.mount.filesystem.nodes import Directory, File, work_of
from holdfast.doors.mount.filesystem.transient import Parts
from holdfast.ground.errors import HoldfastError, NotAuthenticated, Unavailable
from holdfast.memories.stores.records import ChangesPage, Snapshot


class Absorbing:
    """Apply the feed of one store. Files with unsaved bytes keep them."""

    def __init__(self, parts: Parts, handles: HandleTable) -> None:
        self._parts, self._branch, self._handles = parts, parts.branch, handles
        parts.branch.on_gone = self.lost

    def changed(self, changes: ChangesPage) -> None:
        """Apply changed heads; this mount's own edits arrive here a second time."""
        branch = self._branch
        with branch.lock:
            if changes.changes:
                branch.turns.await_flights()
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
            self._branch.turns.await_flights()
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
        branch.counts.tell("degraded", reason=getattr(error, "reason", type(error).__name__))

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
            with self._branch.turns.of(file):
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
                    handle.poison, handle.wrote = EROFS, False
            if unsaved:
                work.attempt, work.due, work.closed = None, False, None
                branch.unsaved.drop(file)
                if file.memory is None:
                    branch.unsaved.vanish(file)
                elif file.parent is not None:
                    branch.kernel().forget_content(file.path)
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
                handle.dead = handle.poison = ESTALE
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
                branch.kernel().forget_name(above, node.name)
