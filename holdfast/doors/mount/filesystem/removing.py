"""Names made and removed: directories, and files that go."""

from errno import EEXIST, ENOENT, ENOTDIR, ENOTEMPTY

from holdfast.doors.mount.errors import failure, oserror
from holdfast.doors.mount.filesystem.file_ops import Places
from holdfast.doors.mount.filesystem.nodes import Directory, File, work_of
from holdfast.doors.mount.filesystem.parts import Parts
from holdfast.doors.mount.names import Kind
from holdfast.ground.errors import Unavailable
from holdfast.memories.stores.edits import Remove
from holdfast.memories.stores.records import Applied


class Removing:
    """Makes and removes directories, which live in the mount alone, and removes files."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def mkdir(self, path: str) -> None:
        """Make a directory at *path*."""
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
        """Remove the file at *path*; it stays where the storage fails."""
        parts = self._places.of(path, change=True)
        branch = parts.branch
        file = branch.demand_file(path)
        branch.demand_writable()
        try:
            with branch.turns.of(file):
                self._unlink(parts, file)
        except Unavailable as error:
            raise oserror(error) from error

    def fsyncdir(self, path: str) -> None:
        """Let nothing in the directory *path* wait to see whether it was meant."""
        if path == "/":
            return
        parts = self._places.of(path)
        node = parts.branch.tree.at(path)
        if not isinstance(node, Directory):
            raise failure(ENOENT if node is None else ENOTDIR)
        if not parts.branch.refusal:
            parts.grace.end(node)

    def _unlink(self, parts: Parts, file: File) -> None:
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

    def _answer(self, parts: Parts, file: File) -> None:
        """Let nothing be in doubt about *file*: it could be there again otherwise."""
        work = work_of(file)
        if work.unsure is not None or (work.attempt is not None and work.attempt.doubt):
            parts.saves.settle(file)

    def _leave_behind(self, parts: Parts, file: File) -> bool:
        """Leave the memory of a backup to the file that is written in its place, if one is."""
        branch, aside = parts.branch, work_of(file).aside
        heir = None if aside is None else branch.tree.at(aside)
        if not isinstance(heir, File) or heir.memory is not None or heir.kind is not Kind.PLAIN:
            return False
        with branch.lock:
            memory, seq = file.memory, file.seq
            branch.heads.set_aside(file, None)
            branch.heads.release(file)
            if memory is not None:
                branch.heads.own(heir, memory, seq)
        return True

    def _gone(self, parts: Parts, file: File) -> None:
        """Let *file* be an orphan: who has it open goes on, and it goes with the last of them."""
        branch = parts.branch
        branch.heads.set_aside(file, None)
        file.orphan = True
        branch.tree.detach(file, here=True)
        if file.buffer is not None and not work_of(file).handles:
            branch.unsaved.drop(file)
        branch.heads.reconsider()
