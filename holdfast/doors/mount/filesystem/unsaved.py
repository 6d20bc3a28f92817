"""The unsaved bytes of one store's files, in the room there is for them."""

from errno import ENOSPC

from holdfast.doors.mount.errors import failure
from holdfast.doors.mount.filesystem.heads import HeadTable
from holdfast.doors.mount.filesystem.nodes import Buffer, File
from holdfast.doors.mount.filesystem.surroundings import BufferBudget, Surroundings
from holdfast.doors.mount.filesystem.tree import Tree
from holdfast.doors.mount.names import Kind


class Unsaved:
    """Begins and forgets what is written to files. Who calls holds the store's lock."""

    def __init__(self, tree: Tree, heads: HeadTable, surroundings: Surroundings) -> None:
        self._tree, self._heads, self._surroundings = tree, heads, surroundings

    def room(self, file: File) -> BufferBudget:
        """Return the room that the bytes of *file* take."""
        around = self._surroundings
        return around.scratch if file.kind is Kind.SCRATCH else around.unsaved

    def begin(self, file: File, buffer: Buffer) -> Buffer:
        """Let *buffer* be what is written to *file*; ENOSPC if it is too much."""
        if not self.room(file).take(len(buffer.data)):
            raise failure(ENOSPC)
        file.buffer, file.entry = buffer, None
        return buffer

    def drop(self, file: File) -> None:
        """Forget what was written to *file*."""
        buffer, file.buffer = file.buffer, None
        file.entry = None
        if buffer is not None:
            self.room(file).give(len(buffer.data))

    def part(self, file: File, content: bytes) -> None:
        """Let the backup *file* be a file of its own, of *content*: its memory stayed behind."""
        self._heads.release(file)
        self._heads.set_aside(file, None)
        file.kind = Kind.TRANSIENT
        if file.buffer is None:
            self._surroundings.unsaved.claim(len(content))
            file.buffer = Buffer(content, self._surroundings.clock.now())
        file.buffer.memory_id = file.buffer.base_sha256 = None
        file.buffer.unsaved = True
        file.entry = None

    def vanish(self, file: File) -> None:
        """Let *file*, which the store does not have, be nowhere."""
        if file.parent is not None:
            self._tree.detach(file, here=False)
            self._heads.reconsider()
