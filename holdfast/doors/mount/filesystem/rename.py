"""One file renamed: what becomes of it depends on what it is, and on what its new name is."""

from collections.abc import Callable
from contextlib import suppress
from errno import EFBIG, ENOSPC

from holdfast.doors.mount.errors import failure
from holdfast.doors.mount.filesystem.nodes import (
    SCRATCH_BYTES_MAX,
    Buffer,
    File,
    Frozen,
    content_fault,
    work_of,
)
from holdfast.doors.mount.filesystem.parts import Parts
from holdfast.doors.mount.names import Kind, is_backup
from holdfast.memories.stores.edits import Edit, Move, Moved, Remove, Replace, Save
from holdfast.memories.stores.records import Applied, Memory

Commit = Callable[[list[Applied]], None]


class OneFile:
    """*file*, which goes to *new*, in place of *target*, if that is there.

    *aside* is the memory that was at *new* until it was put aside for a backup. All turns are held
    and nothing of the files is in doubt.
    """

    def __init__(
        self,
        parts: Parts,
        file: File,
        new: str,
        *,
        kind: Kind,
        target: File | None,
        aside: File | None,
    ) -> None:
        self._parts, self._branch = parts, parts.branch
        self._file, self._new, self._kind = file, new, kind
        self._target = target
        self._aside = None if aside is file else aside

    def rename(self, *, noreplace: bool) -> None:
        """Rename it, or raise OSError and change nothing."""
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
        """Whether nothing was written to it yet, by a program that still has it open."""
        work, buffer = work_of(self._file), self._file.buffer
        return work.written and work.kept is None and buffer is not None and not buffer.data

    def _move_here(self) -> None:
        """Rename what the store does not have and is not to have yet."""
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
        """Rename a memory to a name that no memory has, or put it aside for a backup."""
        file, branch, aside = self._file, self._branch, self._aside
        name = self._new[self._new.rindex("/") + 1 :]
        if self._target is None and aside is None and is_backup(name):
            self._parts.grace.put_aside(file, self._new)
            return
        moves = [Moved(memory_id=memory.id, path=branch.in_store(self._new))]
        if aside is not None and aside.memory is not None:
            moves.append(Moved(memory_id=aside.memory.id, path=branch.in_store(aside.path)))

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
        """Let what the file holds be the content of *over*, whose id goes on; the source goes."""
        file, branch, aside = self._file, self._branch, self._aside
        parted = branch.loaded(aside)[1] if aside is not None and aside.memory is over else None
        frozen, undo = self._frozen()
        source = file.memory
        edit = Replace(
            memory_id=over.id,
            path=branch.in_store(self._new),
            content=frozen.content.decode(),
            source_id=None if source is None else source.id,
        )

        def commit(applied: list[Applied]) -> None:
            (result,) = applied
            if source is not None:
                branch.heads.end(source.id, result.seq)
            if aside is not None and parted is not None:
                branch.unsaved.part(aside, parted)
            self._arrive(Kind.PLAIN)
            self._parts.saves.saved(file, frozen, result)

        self._send(edit, commit, undo, also=self._target or aside)
        if aside is not None and parted is not None:
            self._parts.saves.parted(aside, parted)

    def _save(self, *, noreplace: bool) -> None:
        """Make the file a memory at its new name."""
        file, branch = self._file, self._branch
        frozen, undo = self._frozen()
        edit = Save(path=branch.in_store(self._new), content=frozen.content.decode(), new=noreplace)

        def commit(applied: list[Applied]) -> None:
            self._arrive(Kind.PLAIN)
            self._parts.saves.saved(file, frozen, applied[0])

        self._send(edit, commit, undo)

    def _to_scratch(self, over: Memory | None) -> None:
        """Let the file be scratch from now on: the store has it no more."""
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
            file.buffer = Buffer(content, branch.surroundings.clock.now())
            file.buffer.unsaved = True

        if not branch.surroundings.scratch.take(len(content)):
            raise failure(ENOSPC)
        edits: tuple[Edit, ...] = tuple(Remove(memory_id=memory.id) for memory in gone)
        try:
            if edits:
                self._parts.sending.send((file,), edits, commit)
            else:
                with branch.lock:
                    commit([])
        except OSError:
            branch.surroundings.scratch.give(len(content))
            raise
        self._parts.keeping.forget(file)

    def _send(
        self, edit: Edit, commit: Commit, undo: Callable[[], None], *, also: File | None = None
    ) -> None:
        """Send *edit*, under the id that the spool knows of, if it does."""
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
                # The id is the edit's: what is kept needs one of its own.
                work.kept_id, work.kept_version = "", -1
                with suppress(OSError):
                    self._parts.grace.keep(file)
            raise
        work.due, work.closed = False, None
        self._settled()

    def _settled(self) -> None:
        """Let nothing wait any more that was waiting before."""
        file, work = self._file, work_of(self._file)
        if not file.unsaved:
            work.stop_retrying()
            work.stop_grace()
            kept, work.kept = work.kept, None
            self._parts.keeping.remove(kept)

    def _frozen(self) -> tuple[Frozen, Callable[[], None]]:
        """Return what is sent of the file, and what takes it back; OSError if it is no memory's."""
        file, branch = self._file, self._branch
        self._check(file.buffer)
        if file.buffer is None:
            memory, content = branch.loaded(file)
            frozen = Frozen(
                content=content,
                memory_id=None if memory is None else memory.id,
                base_sha256=None,
                base_size=0,
                low=0,
                replaced=True,
                zeros=True,
            )
            return frozen, lambda: None
        with branch.lock:
            buffer = file.buffer
            frozen = buffer.freeze()
            for handle in work_of(file).handles:
                handle.send()

        def undo() -> None:
            with branch.lock:
                buffer.thaw(frozen)
                work_of(file).due = file.kind is Kind.PLAIN and not work_of(file).written

        return frozen, undo

    def _check(self, buffer: Buffer | None) -> None:
        if buffer is not None:
            fault = content_fault(bytes(buffer.data), zeros=bool(buffer.zeros))
            if fault:
                self._branch.counts.refuse(fault, size=len(buffer.data))
                raise failure(fault)

    def _arrive(self, kind: Kind) -> None:
        """Put the file where it goes, in place of the target; under the lock."""
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
            size = len(file.buffer.data)
            branch.unsaved.room(file).give(size)
            file.kind = kind
            branch.unsaved.room(file).claim(size)
        file.kind = kind
        branch.tree.move(file, self._new, here=True)
        branch.heads.reconsider()
