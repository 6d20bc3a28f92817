"""One mounted store: its names, its heads, what is asked of it and what may be done to it.

The lock is for the tree and is never held while the storage is asked.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from errno import EISDIR, ENOENT, EROFS, ESTALE
from itertools import count
from threading import RLock

from holdfast.doors.mount.errors import failure, oserror, seconds_left
from holdfast.doors.mount.filesystem.nodes import File, Nodes
from holdfast.doors.mount.filesystem.status import StoreDirectoryStatus
from holdfast.doors.mount.filesystem.tree import HeadTable, Surroundings, Tree, Unsaved
from holdfast.doors.mount.filesystem.turns import FileLocks
from holdfast.doors.mount.fuse.kernel import Kernel
from holdfast.doors.mount.storage.source import StoreSource
from holdfast.ground.errors import HoldfastError, NotFound
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import Access, Applied, Memory, Snapshot


class Branch:
    """The directory of one store.

    `refusal` is the errno of every change, 0 while there is none: EROFS, or ESTALE once the store
    is deleted. `unsafe` are files whose unsaved bytes could not be spooled.
    """

    def __init__(
        self,
        slug: str,
        source: StoreSource,
        access: Access,
        *,
        surroundings: Surroundings,
        nodes: Nodes,
        inodes: "count[int]",
    ) -> None:
        self.slug, self.source, self.surroundings = slug, source, surroundings
        self.prefix = f"/{slug}"
        self.lock = RLock()
        self.turns = FileLocks(self.lock, surroundings)
        self.tree = Tree(
            self.prefix, nodes, inodes=inodes, kernel=self.kernel, now=surroundings.clock.now
        )
        self.heads = HeadTable(self.tree, kernel=self.kernel, on_hidden=self._hidden)
        self.counts = StoreDirectoryStatus(
            surroundings, workspace=source.workspace, ids={"store_id": source.id}
        )
        self.read_only = access == "read_only" or surroundings.options.read_only
        self.archived_at: datetime | None = None
        self.cap = 0
        self.refusal = EROFS if self.read_only else 0
        self.tree.writable = not self.read_only
        self.gone = False
        self.ended = False
        """Whether the session through which the store is reached is archived."""
        self.lost: HoldfastError | None = None
        self.unsaved = Unsaved(self.tree, self.heads, surroundings)
        self.unsafe: set[File] = set()
        self.reads_on = 0
        """How many of the next reads may be of a directory that is read file by file."""

    def kernel(self) -> Kernel:
        """Return whom to tell what changed."""
        return self.surroundings.kernel

    def fill(self, snapshot: Snapshot) -> None:
        """Show the store as it is at *snapshot*."""
        with self.lock:
            self.cap, self.archived_at = snapshot.cap, snapshot.archived_at
            self.judge()
            self.heads.resync(snapshot)

    def judge(self) -> None:
        """See whether the store can be changed."""
        closed = self.read_only or self.ended or self.archived_at is not None
        self.refusal = ESTALE if self.gone else EROFS if closed else 0
        self.tree.set_writable(writable=not self.refusal)

    def demand_writable(self) -> None:
        """Raise OSError if nothing can be changed."""
        if self.refusal:
            raise failure(self.refusal)

    def in_store(self, path: str) -> str:
        """Return the path of a memory at *path* of the mount."""
        return path[len(self.prefix) :]

    def apply(
        self, edits: Sequence[Edit], edit_id: str, commit: Callable[[list[Applied]], None]
    ) -> None:
        """Send *edits* and take in what they came to with *commit*, under the lock."""
        with self.turns.flight():
            left = seconds_left(self.surroundings.options.deadline)
            self.kernel().step_aside()
            applied = (
                self.source.apply(edits, edit_id)
                if left is None
                else self.source.apply(edits, edit_id, left)
            )
            with self.lock:
                commit(applied)

    def absorb(self, applied: list[Applied]) -> None:
        """Take in what edits came to whose sender is gone: as if done elsewhere."""
        for each in applied:
            for id in each.deleted:
                self.heads.lose(id, each.seq)
            for memory in each.memories:
                self.heads.learn(memory, each.seq)

    def content(self, file: File, memory: Memory) -> tuple[Memory, bytes]:
        """Return the head of *file*, *memory* or a newer one, and its content."""
        known = self.source.cached(memory.content_sha256)
        if known is not None:
            return memory, known
        left = seconds_left(self.surroundings.options.deadline)
        self.kernel().step_aside()
        found = self.source.content(memory) if left is None else self.source.content(memory, left)
        if found.memory_version_id != memory.memory_version_id:
            with self.lock:
                self.heads.glimpse(file, memory, found)
        return found, (found.content or "").encode()

    def loaded(self, file: File) -> tuple[Memory | None, bytes]:
        """Return what is read of *file* now, or OSError: its unsaved bytes, or its head's."""
        buffer, memory = file.buffer, file.memory
        if buffer is not None:
            return memory, bytes(buffer.data)
        if memory is None:
            return None, b""
        try:
            return self.content(file, memory)
        except HoldfastError as error:
            self.noted(error)
            raise oserror(error) from error

    def noted(self, error: BaseException) -> None:
        """Take in what a failure says of the store itself."""
        if isinstance(error, NotFound) and oserror(error).errno == ESTALE and not self.gone:
            self.on_gone(error)

    on_gone: Callable[[HoldfastError], None]
    """What is done once the store turns out to be deleted."""

    def demand_file(self, path: str) -> File:
        """Return the file at *path*, or OSError."""
        node = self.tree.at(path)
        if node is None:
            raise failure(ENOENT)
        if not isinstance(node, File):
            raise failure(EISDIR)
        return node

    def _hidden(self, memory_id: str) -> None:
        self.counts.tell("refused", memory_id, hidden=True)
