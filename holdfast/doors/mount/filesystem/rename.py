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
from holdfast.doors.mount.filesystem.transient import StoreParts
from holdfast.doors.mount.names import Kind, checked, is_backup
from holdfast.ground.errors import Unavailable
from holdfast.memories.stores.edits import Edit, Move, Moved, Remove, Replace, Save
from holdfast.memories.stores.records import Applied, Memory

Commit = Callable[[list[Applied]], None]


class OneFile:
    """Rename of *file* to *new*, replacing *target* if there is one.

    *aside* is the memory that was at *new* until it was renamed to a backup name. All file locks
    are held and no edit of the files is in doubt.
    """

    def __init__(
        self,
        parts: StoreParts,
        file: File,
        new: str,
        *,
        kind: Kind,
        target: File | None,
        aside: File | None,
    ) -> None:
        self._parts, self._branch = parts, parts.branch
        self._file, self._new, self._kind, self._target = file, new, kind, target
        self._path = new.removeprefix(self._branch.prefix)
        self._aside = None if aside is file else aside

    def rename(self, *, noreplace: bool) -> None:
        """Rename the file, or raise OSError and change nothing."""
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
        elif self._aside is not None and self._aside.memory is not None:
            self._replace(self._aside.memory)
        else:
            self._save(noreplace=noreplace)
        if target is not None:
            self._parts.keeping.forget(target)

    def _only_made(self) -> bool:
        """Whether the file is empty and still open for writing."""
        work, buffer = work_of(self._file), self._file.buffer
        return work.written and work.kept is None and buffer is not None and not buffer.data

    def _move_here(self) -> None:
        """Rename a file that is not in the store and not yet to be saved."""
        file, branch = self._file, self._branch
        if file.kind is Kind.SCRATCH:
            self._check(file.buffer)
        with branch.lock:
            self._arrive(self._kind)
        self._parts.keeping.renew(file)
        if file.kind is Kind.TRANSIENT and not work_of(file).written:
            self._parts.grace.keep(file)
            self._parts.grace.arm(file)

    def _move(self, memory: Memory) -> None:
        """Rename a memory to a free name; a backup name only takes effect after the grace."""
        file, branch, aside = self._file, self._branch, self._aside
        name = self._new[self._new.rindex("/") + 1 :]
        if self._target is None and aside is None and is_backup(name):
            self._parts.grace.put_aside(file, self._new)
            return
        moves = [Moved(memory_id=memory.id, path=self._path)]
        if aside is not None and aside.memory is not None:
            moves.append(
                Moved(memory_id=aside.memory.id, path=aside.path.removeprefix(branch.prefix))
            )

        def commit(applied: list[Applied]) -> None:
            if aside is not None:
                branch.heads.set_aside(aside, None)
            self._arrive(file.kind)
            branch.absorb(applied)

        files = (file,) if aside is None else (file, aside)
        self._parts.sending.send(files, (Move(moves=tuple(moves)),), commit)
        self._settled()
        self._parts.keeping.renew(file)

    def _replace(self, over: Memory) -> None:
        """Replace the content of *over* by that of the file, and remove the source.

        The memory *over* keeps its id.
        """
        file, branch, aside = self._file, self._branch, self._aside
        detached = branch.loaded(aside)[1] if aside is not None and aside.memory is over else None
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
            if aside is not None and detached is not None:
                branch.unsaved.part(aside, detached)
            self._arrive(Kind.PLAIN)
            self._parts.saves.saved(file, snapshot, result)

        self._send(edit, commit, undo, also=self._target or aside)
        if aside is not None and detached is not None:
            self._parts.saves.detached(aside, detached)

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
            self._parts.saves.saved(file, snapshot, applied[0])

        self._send(edit, commit, undo)

    def _to_scratch(self, over: Memory | None) -> None:
        """Turn the file into a scratch file and remove its memory from the store."""
        file, branch, source = self._file, self._branch, self._file.memory
        content = branch.loaded(file)[1]
        gone = [memory for memory in (source, over) if memory is not None]
        if len(content) > SCRATCH_BYTES_MAX:
            raise failure(EFBIG)

        def commit(applied: list[Applied]) -> None:
            self._arrive(file.kind)
            for memory, result in zip(gone, applied, strict=True):
                branch.heads.end(memory.id, result.seq)
            branch.unsaved.drop(file)
            file.kind = Kind.SCRATCH
            file.buffer = Buffer(content, branch.context.clock.now())
            file.buffer.unsaved = True

        if not branch.context.budget.take(Kind.SCRATCH, len(content)):
            raise failure(ENOSPC)
        edits: tuple[Edit, ...] = tuple(Remove(memory_id=memory.id) for memory in gone)
        try:
            if edits:
                self._parts.sending.send((file,), edits, commit)
            else:
                with branch.lock:
                    commit([])
        except OSError:
            branch.context.budget.take(Kind.SCRATCH, -len(content))
            raise
        self._parts.keeping.forget(file)

    def _send(
        self, edit: Edit, commit: Commit, undo: Callable[[], None], *, also: File | None = None
    ) -> None:
        """Send *edit*, under the id of its spool entry if there is a current one."""
        file = self._file
        work, buffer = work_of(file), file.buffer
        known = work.kept is not None and buffer and work.kept_version == buffer.version
        files = (file,) if also is None else (file, also)
        try:
            edit_id = work.kept_id if known else ""
            self._parts.sending.send(files, (edit,), commit, edit_id)
        except OSError:
            undo()
            if known and work.unsure is not None:
                # The edit in doubt uses this id: the spool entry needs one of its own.
                work.kept_id, work.kept_version = "", -1
                with suppress(OSError):
                    self._parts.grace.keep(file)
            raise
        work.due, work.closed = False, None
        self._settled()

    def _settled(self) -> None:
        """Cancel timers and remove the spool entry if nothing is unsaved."""
        file, work = self._file, work_of(self._file)
        if not file.unsaved:
            work.stop_retrying()
            work.stop_grace()
            kept, work.kept = work.kept, None
            if kept is not None:
                self._parts.keeping.remove(kept)

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

    def _arrive(self, kind: Kind) -> None:
        """Move the file to its new path in the tree, replacing the target; under the lock."""
        file, branch, target = self._file, self._branch, self._target
        branch.heads.set_aside(file, None)
        if target is not None:
            parent = target.parent
            local = parent is not None and parent.local
            branch.heads.set_aside(target, None)
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
        parts = self._places.of(old, change=True)
        if self._places.of(new, change=True) is not parts:
            raise failure(EXDEV)
        parts.branch.demand_writable()
        try:
            while not self._renamed(parts, old, new, noreplace=bool(flags)):
                pass
        except Unavailable as error:
            raise oserror(error) from error

    def _renamed(self, parts: StoreParts, old: str, new: str, *, noreplace: bool) -> bool:
        """Rename; return False if the target at *new* changed meanwhile."""
        node, target = parts.branch.tree.at(old), parts.branch.tree.at(new)
        if node is None:
            raise failure(ENOENT)
        if target is not None and noreplace:
            raise failure(EEXIST)
        if node is target:
            return True
        if isinstance(node, Directory):
            self._directory(parts, node, new, target)
            return True
        if isinstance(target, Directory):
            raise failure(EISDIR)
        return self._file(parts, node, new, target, noreplace=noreplace)

    def _file(
        self, parts: StoreParts, file: File, new: str, target: File | None, *, noreplace: bool
    ) -> bool:
        branch = parts.branch
        kind = self._places.checked(parts, new, new=False)
        aside = branch.heads.aside.get(new)
        others = [each for each in (target, aside) if each is not None and each is not file]
        try:
            with branch.locks.of(file, *dict.fromkeys(others)):
                old = file.path
                for each in (file, *others):
                    parts.saves.settle(each)
                if branch.tree.at(old) is not file:
                    raise failure(ENOENT)
                if branch.tree.at(new) is not target:
                    return False
                one = OneFile(parts, file, new, kind=kind, target=target, aside=aside)
                one.rename(noreplace=noreplace)
        finally:
            for each in (file, *others):
                parts.saves.resume(each)
        return True

    def _directory(self, parts: StoreParts, directory: Directory, new: str, target: object) -> None:
        branch = parts.branch
        if (new + "/").startswith(directory.path + "/"):
            raise failure(EINVAL)
        if isinstance(target, File):
            raise failure(ENOTDIR)
        if isinstance(target, Directory) and (
            target.children or branch.heads.hidden_below(target.path)
        ):
            raise failure(ENOTEMPTY)
        self._places.checked(parts, new, new=False)
        with branch.locks.of_all():
            working = [file for file in directory.files() if file.work is not None]
            try:
                for file in working:
                    parts.saves.settle(file)
                self._carry(parts, directory, new, working)
            finally:
                for file in working:
                    parts.saves.resume(file)
        for file in working:
            self._carried(parts, file)

    def _carry(
        self, parts: StoreParts, directory: Directory, new: str, working: list[File]
    ) -> None:
        """Move *directory* to *new* in the store and in the tree."""
        branch = parts.branch

        def commit(applied: list[Applied]) -> None:
            for file in working:
                branch.heads.set_aside(file, None)
            branch.tree.carry(directory, new)
            branch.absorb(applied)
            # A file that appeared after the moves were listed goes back to its old path.
            for file in directory.files():
                branch.heads.put_back(file)

        with branch.lock:
            if branch.tree.at(directory.path) is not directory:
                raise failure(ENOENT)
            moves = self._moves(parts, directory, new)
            if not moves:
                commit([])
        if moves:
            parts.sending.send(working, (Move(moves=moves),), commit)

    def _moves(self, parts: StoreParts, directory: Directory, new: str) -> tuple[Moved, ...]:
        """Return the moves of all memories below *directory*; OSError if one is refused."""
        branch, old = parts.branch, directory.path
        moves: list[Moved] = []
        for node in directory.below():
            path = (new + node.path[len(old) :]).removeprefix(branch.prefix)
            checked(path)
            if isinstance(node, File) and node.memory is not None:
                moves.append(Moved(memory_id=node.memory.id, path=path))
        for memory in branch.heads.hidden_below(old):
            path = new.removeprefix(branch.prefix) + memory.path[len(old) - len(branch.prefix) :]
            moves.append(Moved(memory_id=memory.id, path=path))
        for former, file in branch.heads.aside.items():
            outside = not file.path.startswith(old + "/")
            if outside and former.startswith(old + "/") and file.memory is not None:
                path = file.path.removeprefix(branch.prefix)
                moves.append(Moved(memory_id=file.memory.id, path=path))
        return tuple(moves)

    def _carried(self, parts: StoreParts, file: File) -> None:
        """Renew the spool entry and the grace timer of *file* under its new path."""
        parts.keeping.renew(file)
        if file.work is None or not file.unsaved or file.work.written:
            return
        if file.kind is Kind.TRANSIENT:
            parts.grace.arm(file)

    def mkdir(self, path: str) -> None:
        """Create a directory at *path*."""
        parts = self._places.of(path, change=self._places.nodes.get(path) is None)
        branch = parts.branch
        if self._places.nodes.get(path) is not None:
            raise failure(EEXIST)
        branch.demand_writable()
        aside = branch.heads.aside.get(path)
        if aside is not None:
            parts.grace.commit(aside)
        with branch.lock:
            self._places.checked(parts, path, new=False)
            if branch.tree.at(path) is not None:
                raise failure(EEXIST)
            branch.tree.make(path, local=True)

    def rmdir(self, path: str) -> None:
        """Remove the directory at *path*, which must be empty."""
        parts = self._places.of(path, change=True)
        branch = parts.branch
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
        parts = self._places.of(path, change=True)
        branch = parts.branch
        file = branch.demand_file(path)
        branch.demand_writable()
        try:
            with branch.locks.of(file):
                self._unlink(parts, file)
        except Unavailable as error:
            raise oserror(error) from error

    def fsyncdir(self, path: str) -> None:
        """End the grace period of the files in the directory *path*."""
        if path == "/":
            return
        parts = self._places.of(path)
        node = parts.branch.tree.at(path)
        if not isinstance(node, Directory):
            raise failure(ENOENT if node is None else ENOTDIR)
        if not parts.branch.refusal:
            parts.grace.end(node)

    def _unlink(self, parts: StoreParts, file: File) -> None:
        branch = parts.branch
        if file.kind is not Kind.SCRATCH:
            self._answer(parts, file)
        if file.parent is None:
            raise failure(ENOENT)
        memory = file.memory
        if memory is None or self._leave_behind(parts, file):
            with branch.lock:
                self._gone(parts, file)
        else:

            def commit(applied: list[Applied]) -> None:
                branch.heads.end(memory.id, applied[0].seq)
                self._gone(parts, file)

            parts.sending.send((file,), (Remove(memory_id=memory.id),), commit)
        parts.keeping.forget(file)

    def _answer(self, parts: StoreParts, file: File) -> None:
        """Resolve edits of *file* in doubt: otherwise it could reappear."""
        work = work_of(file)
        if work.unsure is not None or (work.attempt is not None and work.attempt.doubt):
            parts.saves.settle(file)

    def _leave_behind(self, parts: StoreParts, file: File) -> bool:
        """Hand the memory of the backup *file* to the file written at its old path.

        Return False if there is no such file.
        """
        branch, aside = parts.branch, work_of(file).aside
        other = None if aside is None else branch.tree.at(aside)
        if not isinstance(other, File) or other.memory is not None or other.kind is not Kind.PLAIN:
            return False
        with branch.lock:
            memory, seq = file.memory, file.seq
            branch.heads.set_aside(file, None)
            branch.heads.release(file)
            if memory is not None:
                branch.heads.own(other, memory, seq)
        return True

    def _gone(self, parts: StoreParts, file: File) -> None:
        """Make *file* an orphan: it exists until its last handle is closed."""
        branch = parts.branch
        branch.heads.set_aside(file, None)
        file.orphan = True
        branch.tree.detach(file, here=True)
        if file.buffer is not None and not work_of(file).handles:
            branch.unsaved.drop(file)
        branch.heads.reconsider()
