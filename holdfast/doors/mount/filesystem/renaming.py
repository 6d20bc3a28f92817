"""Files and directories renamed."""

from errno import EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EXDEV

from holdfast.doors.mount.errors import failure, oserror
from holdfast.doors.mount.filesystem.file_ops import Places
from holdfast.doors.mount.filesystem.nodes import Directory, File
from holdfast.doors.mount.filesystem.parts import Parts
from holdfast.doors.mount.filesystem.rename import OneFile
from holdfast.doors.mount.names import Kind, checked
from holdfast.ground.errors import Unavailable
from holdfast.memories.stores.edits import Move, Moved
from holdfast.memories.stores.records import Applied

NOREPLACE = 1


class Renaming:
    """Renames, as one edit of the store or none."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        """Let what is at *old* be at *new*, in place of what is there."""
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

    def _renamed(self, parts: Parts, old: str, new: str, *, noreplace: bool) -> bool:
        """Rename, or return False if what is at *new* came or went meanwhile."""
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
        self, parts: Parts, file: File, new: str, target: File | None, *, noreplace: bool
    ) -> bool:
        branch = parts.branch
        kind = self._places.checked(parts, new, new=False)
        aside = branch.heads.aside.get(new)
        others = [each for each in (target, aside) if each is not None and each is not file]
        try:
            with branch.turns.of(file, *dict.fromkeys(others)):
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

    def _directory(self, parts: Parts, directory: Directory, new: str, target: object) -> None:
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
        with branch.turns.of_all():
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

    def _carry(self, parts: Parts, directory: Directory, new: str, working: list[File]) -> None:
        """Move *directory* to *new* in the store and in the tree."""
        branch = parts.branch

        def commit(applied: list[Applied]) -> None:
            for file in working:
                branch.heads.set_aside(file, None)
            branch.tree.carry(directory, new)
            branch.absorb(applied)
            # What was not there yet when the moves were listed is where it was.
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

    def _moves(self, parts: Parts, directory: Directory, new: str) -> tuple[Moved, ...]:
        """Return where every memory below *directory* goes; OSError if one cannot go there."""
        branch, old = parts.branch, directory.path
        moves: list[Moved] = []
        for node in directory.below():
            path = branch.in_store(new + node.path[len(old) :])
            checked(path)
            if isinstance(node, File) and node.memory is not None:
                moves.append(Moved(memory_id=node.memory.id, path=path))
        for memory in branch.heads.hidden_below(old):
            path = branch.in_store(new) + memory.path[len(branch.in_store(old)) :]
            moves.append(Moved(memory_id=memory.id, path=path))
        for former, file in branch.heads.aside.items():
            outside = not file.path.startswith(old + "/")
            if outside and former.startswith(old + "/") and file.memory is not None:
                place = branch.in_store(file.path)
                moves.append(Moved(memory_id=file.memory.id, path=place))
        return tuple(moves)

    def _carried(self, parts: Parts, file: File) -> None:
        """Keep what waits under its new path."""
        parts.keeping.renew(file)
        if file.work is None or not file.unsaved or file.work.written:
            return
        if file.kind is Kind.TRANSIENT:
            parts.grace.arm(file)
