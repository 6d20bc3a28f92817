"""Rename and remove files and directories."""

from collections.abc import Callable
from contextlib import suppress
from errno import EEXIST, EFBIG, EINVAL, EISDIR, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY, EXDEV

from holdfast.doors.mount.errors import failure, oserror
from holdfast.doors.mount.filesystem.file_ops import StoreDirectories
from holdfast.doors.mount.filesystem.nodes import (
    SCRATCH_BYTES_MAX,
    Buffer,
    BufferSnapshot,
    Directory,
    File,
    content_fault,
    work_of,
)
from holdfast.doors.mount.filesystem.transient import StorePersistence
from holdfast.doors.mount.names import Kind, checked, is_backup
from holdfast.ground.errors import Unavailable
from holdfast.memories.stores.edits import Edit, Move, Moved, Remove, Replace, Save
from holdfast.memories.stores.records import Applied, Memory

Commit = Callable[[list[Applied]], None]


class _Changed(OSError):
    """The feed or another program changed one of the two names; nothing is done yet."""


class OneFile:
    """Rename of *file* to *new*, replacing *target* if there is one.

    *backup* is the memory that was at *new* until it was renamed to a backup name. All file locks
    are held and no edit of the files is in doubt.
    """

    def __init__(
        self,
        store: StorePersistence,
        file: File,
        new: str,
        *,
        kind: Kind,
        target: File | None,
        backup: File | None,
    ) -> None:
        self._store, self._branch = store, store.branch
        self._file, self._new, self._kind, self._target = file, new, kind, target
        self._path = new.removeprefix(self._branch.prefix)
        self._backup = None if backup is file else backup

    def rename(self, *, noreplace: bool) -> None:
        """Rename the file, or raise OSError and change nothing.

        The OSError is `_Changed` if the rename must be tried again.
        """
        file, target = self._file, self._target
        over = None if target is None else target.memory
        if self._kind is Kind.SCRATCH:
            self._to_scratch(over)
        elif over is not None:
            self._replace(over)
        elif file.memory is not None:
            self._move(file.memory)
        elif self._kind is Kind.TRANSIENT or self._only_made():
            self._move_here()
        elif self._backup is not None and self._backup.memory is not None:
            self._replace(self._backup.memory)
        else:
            self._save(noreplace=noreplace)
        if target is not None:
            self._store.spool.forget(target)

    def _only_made(self) -> bool:
        """Whether the file is empty and still open for writing."""
        work, buffer = work_of(self._file), self._file.buffer
        return work.written and work.spooled is None and buffer is not None and not buffer.data

    def _move_here(self) -> None:
        """Rename a file that is not in the store and not yet to be saved."""
        file, branch = self._file, self._branch
        if file.kind is Kind.SCRATCH:
            self._check(file.buffer)
        with branch.lock:
            self._demand_unchanged(None)
            self._arrive(self._kind)
        self._store.spool.renew(file)
        if file.kind is Kind.TRANSIENT and not work_of(file).written:
            self._store.grace.spool(file)
            self._store.grace.arm(file)

    def _move(self, memory: Memory) -> None:
        """Rename a memory to a free name; a backup name only takes effect after the grace."""
        file, branch, backup = self._file, self._branch, self._backup
        name = self._new[self._new.rindex("/") + 1 :]
        if self._target is None and backup is None and is_backup(name):
            with branch.lock:
                self._demand_unchanged(memory)
                self._store.grace.back_up(file, self._new)
            return
        moves = [Moved(memory_id=memory.id, path=self._path)]
        if backup is not None and backup.memory is not None:
            path = backup.path.removeprefix(branch.prefix)
            moves.append(Moved(memory_id=backup.memory.id, path=path))

        def commit(applied: list[Applied]) -> None:
            if backup is not None:
                branch.heads.set_stored_path(backup, None)
            self._arrive(file.kind)
            branch.absorb(applied)

        files = (file,) if backup is None else (file, backup)
        self._store.writer.send(files, (Move(moves=tuple(moves)),), commit)
        self._settled()
        self._store.spool.renew(file)

    def _replace(self, over: Memory) -> None:
        """Replace the content of *over* by that of the file, and remove the source.

        The memory *over* keeps its id.
        """
        file, branch, backup = self._file, self._branch, self._backup
        content = branch.loaded(backup)[1] if backup and backup.memory is over else None
        snapshot, undo = self._snapshot()
        source = file.memory
        edit = Replace(
            memory_id=over.id,
            path=self._path,
            content=snapshot.content.decode(),
            source_id=None if source is None else source.id,
        )

        def commit(applied: list[Applied]) -> None:
            (result,) = applied
            if source is not None:
                branch.heads.end(source.id, result.seq)
            if backup is not None and content is not None:
                branch.unsaved.fork(backup, content)
            self._arrive(Kind.PLAIN)
            self._store.saver.saved(file, snapshot, result)

        self._send(edit, commit, undo, also=self._target or backup)
        if backup is not None and content is not None:
            self._store.saver.forked(backup, content)

    def _save(self, *, noreplace: bool) -> None:
        """Save the file as a memory at its new name."""
        file = self._file
        snapshot, undo = self._snapshot()
        edit = Save(
            path=self._path,
            content=snapshot.content.decode(),
            new=noreplace,
        )

        def commit(applied: list[Applied]) -> None:
            self._arrive(Kind.PLAIN)
            self._store.saver.saved(file, snapshot, applied[0])

        self._send(edit, commit, undo)

    def _to_scratch(self, over: Memory | None) -> None:
        """Turn the file into a scratch file and remove its memory from the store."""
        file, branch, source = self._file, self._branch, self._file.memory
        content = branch.loaded(file)[1]
        removed = [memory for memory in (source, over) if memory is not None]
        if len(content) > SCRATCH_BYTES_MAX:
            raise failure(EFBIG)

        def commit(applied: list[Applied]) -> None:
            self._arrive(file.kind)
            for memory, result in zip(removed, applied, strict=True):
                branch.heads.end(memory.id, result.seq)
            branch.unsaved.drop(file)
            if file.memory is not None:
                # The feed gave it to the file meanwhile; it is still where it was.
                memory, seq = file.memory, file.seq
                branch.heads.release(file)
                branch.heads.learn(memory, seq)
            file.kind = Kind.SCRATCH
            file.buffer = Buffer(content, branch.context.clock.now())
            file.buffer.unsaved = True

        if not branch.context.budget.take(Kind.SCRATCH, len(content)):
            raise failure(ENOSPC)
        edits: tuple[Edit, ...] = tuple(Remove(memory_id=memory.id) for memory in removed)
        try:
            if edits:
                self._store.writer.send((file,), edits, commit)
            else:
                with branch.lock:
                    self._demand_unchanged(None)
                    commit([])
        except OSError:
            branch.context.budget.take(Kind.SCRATCH, -len(content))
            raise
        self._store.spool.forget(file)

    def _send(
        self, edit: Edit, commit: Commit, undo: Callable[[], None], *, also: File | None = None
    ) -> None:
        """Send *edit*, under the id of its spool entry if there is a current one."""
        file = self._file
        work, buffer = work_of(file), file.buffer
        known = work.spooled is not None and buffer and work.spooled_version == buffer.version
        files = (file,) if also is None else (file, also)
        scratch = file.kind is Kind.SCRATCH
        try:
            edit_id = work.spooled_id if known else ""
            self._store.writer.send(files, (edit,), commit, edit_id)
        except OSError:
            undo()
            if known and work.unsure is not None:
                # The edit in doubt uses this id: the spool entry needs one of its own.
                work.spooled_id, work.spooled_version = "", -1
                with suppress(OSError):
                    self._store.grace.spool(file)
            raise
        # A close of a scratch file saves nothing: bytes written meanwhile have no other save.
        work.due, work.closed = scratch and file.unsaved, None
        self._settled()

    def _settled(self) -> None:
        """Cancel timers and remove the spool entry if nothing is unsaved."""
        file, work = self._file, work_of(self._file)
        if not file.unsaved:
            work.stop_retrying()
            work.stop_grace()
            entry, work.spooled = work.spooled, None
            if entry is not None:
                self._store.spool.remove(entry)

    def _snapshot(self) -> tuple[BufferSnapshot, Callable[[], None]]:
        """Return a snapshot of the file to send, and a function that undoes it.

        Raise OSError if no memory can have this content.
        """
        file, branch = self._file, self._branch
        self._check(file.buffer)
        if file.buffer is None:
            memory, content = branch.loaded(file)
            snapshot = BufferSnapshot(
                content=content,
                memory_id=None if memory is None else memory.id,
                base_sha256=None,
                base_size=0,
                low=0,
                replaced=True,
                zeros=True,
            )
            return snapshot, lambda: None
        with branch.lock:
            buffer = file.buffer
            snapshot = buffer.snapshot(work_of(file).handles)

        def undo() -> None:
            with branch.lock:
                buffer.undo_snapshot(snapshot)
                work_of(file).due = file.kind is Kind.PLAIN and not work_of(file).written

        return snapshot, undo

    def _check(self, buffer: Buffer | None) -> None:
        if buffer is not None:
            fault = content_fault(bytes(buffer.data), zeros=bool(buffer.zeros))
            if fault:
                self._branch.status.refuse(fault, size=len(buffer.data))
                raise failure(fault)

    def _demand_unchanged(self, memory: Memory | None) -> None:
        """Raise _Changed if the new path or the file's *memory* changed; under the lock.

        The store refuses an edit on such a change; what is renamed here alone has only this.
        """
        now = self._file.memory
        same = now is None if memory is None else now is not None and now.id == memory.id
        if not same or self._branch.tree.at(self._new) is not self._target:
            raise _Changed

    def _arrive(self, kind: Kind) -> None:
        """Move the file to its new path in the tree, replacing the target; under the lock."""
        file, branch, target = self._file, self._branch, self._target
        branch.heads.set_stored_path(file, None)
        if target is not None:
            parent = target.parent
            local = parent is not None and parent.local
            branch.heads.set_stored_path(target, None)
            branch.heads.release(target)
            branch.tree.detach(target, here=True)
            if parent is not None:
                parent.local = local
            target.orphan = True
            if not work_of(target).handles:
                branch.unsaved.drop(target)
        if file.kind is not kind and file.buffer is not None:
            size, budget = len(file.buffer.data), branch.context.budget
            budget.take(file.kind, -size)
            budget.take(kind, size, force=True)
        file.kind = kind
        branch.tree.move(file, self._new, here=True)
        branch.heads.reconsider()


NOREPLACE = 1


class NameOperations:
    """Rename, create and remove files and directories, each in at most one edit.

    Directories exist only in the mount.
    """

    def __init__(self, places: StoreDirectories) -> None:
        self._places = places

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        """Rename *old* to *new*, replacing what is at *new*."""
        if flags & ~NOREPLACE:
            raise failure(EINVAL)
        store = self._places.of(old, change=True)
        if self._places.of(new, change=True) is not store:
            raise failure(EXDEV)
        store.branch.demand_writable()
        try:
            while not self._renamed(store, old, new, noreplace=bool(flags)):
                pass
        except Unavailable as error:
            raise oserror(error) from error

    def _renamed(self, store: StorePersistence, old: str, new: str, *, noreplace: bool) -> bool:
        """Rename; return False if the target at *new* changed meanwhile."""
        node, target = store.branch.tree.at(old), store.branch.tree.at(new)
        if node is None:
            raise failure(ENOENT)
        if target is not None and noreplace:
            raise failure(EEXIST)
        if node is target:
            return True
        if isinstance(node, Directory):
            self._directory(store, node, new, target)
            return True
        if isinstance(target, Directory):
            raise failure(EISDIR)
        return self._file(store, node, new, target, noreplace=noreplace)

    def _file(
        self, store: StorePersistence, file: File, new: str, target: File | None, *, noreplace: bool
    ) -> bool:
        branch = store.branch
        kind = self._places.checked(store, new, new=False)
        backup = branch.heads.backups.get(new)
        others = [each for each in (target, backup) if each is not None and each is not file]
        try:
            with branch.locks.of(file, *dict.fromkeys(others)):
                old = file.path
                for each in (file, *others):
                    store.saver.settle(each)
                if branch.tree.at(old) is not file:
                    raise failure(ENOENT)
                if branch.tree.at(new) is not target:
                    return False
                one = OneFile(store, file, new, kind=kind, target=target, backup=backup)
                one.rename(noreplace=noreplace)
        except _Changed:
            return False
        finally:
            for each in (file, *others):
                store.saver.resume(each)
        return True

    def _directory(
        self, store: StorePersistence, directory: Directory, new: str, target: object
    ) -> None:
        branch = store.branch
        if (new + "/").startswith(directory.path + "/"):
            raise failure(EINVAL)
        if isinstance(target, File):
            raise failure(ENOTDIR)
        if isinstance(target, Directory) and (
            target.children or branch.heads.hidden_below(target.path)
        ):
            raise failure(ENOTEMPTY)
        self._places.checked(store, new, new=False)
        with branch.locks.of_all():
            working = [file for file in directory.files() if file.work is not None]
            try:
                for file in working:
                    store.saver.settle(file)
                self._carry(store, directory, new, working)
            finally:
                for file in working:
                    store.saver.resume(file)
        for file in working:
            self._carried(store, file)

    def _carry(
        self, store: StorePersistence, directory: Directory, new: str, working: list[File]
    ) -> None:
        """Move *directory* to *new* in the store and in the tree."""
        branch = store.branch

        def commit(applied: list[Applied]) -> None:
            for file in working:
                branch.heads.set_stored_path(file, None)
            branch.tree.carry(directory, new)
            branch.absorb(applied)
            # A file that appeared after the moves were listed goes back to its old path.
            for file in directory.files():
                branch.heads.put_back(file)

        with branch.lock:
            if branch.tree.at(directory.path) is not directory:
                raise failure(ENOENT)
            moves = self._moves(store, directory, new)
            if not moves:
                commit([])
        if moves:
            store.writer.send(working, (Move(moves=moves),), commit)

    def _moves(self, store: StorePersistence, directory: Directory, new: str) -> tuple[Moved, ...]:
        """Return the moves of all memories below *directory*; OSError if one is refused."""
        branch, old = store.branch, directory.path
        moves: list[Moved] = []
        for node in directory.below():
            path = (new + node.path[len(old) :]).removeprefix(branch.prefix)
            checked(path)
            if isinstance(node, File) and node.memory is not None:
                moves.append(Moved(memory_id=node.memory.id, path=path))
        for memory in branch.heads.hidden_below(old):
            path = new.removeprefix(branch.prefix) + memory.path[len(old) - len(branch.prefix) :]
            moves.append(Moved(memory_id=memory.id, path=path))
        for former, file in branch.heads.backups.items():
            outside = not file.path.startswith(old + "/")
            if outside and former.startswith(old + "/") and file.memory is not None:
                path = file.path.removeprefix(branch.prefix)
                moves.append(Moved(memory_id=file.memory.id, path=path))
        return tuple(moves)

    def _carried(self, store: StorePersistence, file: File) -> None:
        """Renew the spool entry and the grace timer of *file* under its new path."""
        store.spool.renew(file)
        if file.work is None or not file.unsaved or file.work.written:
            return
        if file.kind is Kind.TRANSIENT:
            store.grace.arm(file)

    def mkdir(self, path: str) -> None:
        """Create a directory at *path*."""
        store = self._places.of(path, change=self._places.nodes.get(path) is None)
        branch = store.branch
        if self._places.nodes.get(path) is not None:
            raise failure(EEXIST)
        branch.demand_writable()
        backup = branch.heads.backups.get(path)
        if backup is not None:
            store.grace.commit(backup)
        with branch.lock:
            self._places.checked(store, path, new=False)
            if branch.tree.at(path) is not None:
                raise failure(EEXIST)
            branch.tree.make(path, local=True)

    def rmdir(self, path: str) -> None:
        """Remove the directory at *path*, which must be empty."""
        store = self._places.of(path, change=True)
        branch = store.branch
        node = branch.tree.at(path)
        if node is None:
            raise failure(ENOENT)
        if isinstance(node, File):
            raise failure(ENOTDIR)
        branch.demand_writable()
        with branch.lock:
            if node.children or branch.heads.hidden_below(path):
                raise failure(ENOTEMPTY)
            above = node.parent
            branch.tree.remove(node)
            if above is not None and not above.children:
                above.local = True
            branch.heads.reconsider()

    def unlink(self, path: str) -> None:
        """Remove the file at *path*; it stays if the storage fails."""
        store = self._places.of(path, change=True)
        branch = store.branch
        file = branch.demand_file(path)
        branch.demand_writable()
        try:
            with branch.locks.of(file):
                self._unlink(store, file)
        except Unavailable as error:
            raise oserror(error) from error

    def fsyncdir(self, path: str) -> None:
        """End the grace period of the files in the directory *path*."""
        if path == "/":
            return
        store = self._places.of(path)
        node = store.branch.tree.at(path)
        if not isinstance(node, Directory):
            raise failure(ENOENT if node is None else ENOTDIR)
        if not store.branch.refusal:
            store.grace.end(node)

    def _unlink(self, store: StorePersistence, file: File) -> None:
        branch = store.branch
        if file.kind is not Kind.SCRATCH:
            self._answer(store, file)
        if file.parent is None:
            raise failure(ENOENT)
        memory = file.memory
        if memory is None or self._leave_behind(store, file):
            with branch.lock:
                self._orphan(store, file)
        else:

            def commit(applied: list[Applied]) -> None:
                branch.heads.end(memory.id, applied[0].seq)
                self._orphan(store, file)

            store.writer.send((file,), (Remove(memory_id=memory.id),), commit)
        store.spool.forget(file)

    def _answer(self, store: StorePersistence, file: File) -> None:
        """Resolve edits of *file* in doubt: otherwise it could reappear."""
        work = work_of(file)
        if work.unsure is not None or (work.attempt is not None and work.attempt.doubt):
            store.saver.settle(file)

    def _leave_behind(self, store: StorePersistence, file: File) -> bool:
        """Hand the memory of the backup *file* to the file written at its old path.

        Return False if there is no such file.
        """
        branch, path = store.branch, work_of(file).stored_path
        other = None if path is None else branch.tree.at(path)
        if not isinstance(other, File) or other.memory is not None or other.kind is not Kind.PLAIN:
            return False
        with branch.lock:
            memory, seq = file.memory, file.seq
            branch.heads.set_stored_path(file, None)
            branch.heads.release(file)
            if memory is not None:
                branch.heads.own(other, memory, seq)
        return True

    def _orphan(self, store: StorePersistence, file: File) -> None:
        """Make *file* an orphan: it exists until its last handle is closed."""
        branch = store.branch
        branch.heads.set_stored_path(file, None)
        file.orphan = True
        branch.tree.detach(file, here=True)
        if file.buffer is not None and not work_of(file).handles:
            branch.unsaved.drop(file)
        branch.heads.reconsider()
