"""One mounted store: its names, its heads, what may be done to it, and whose turn it is.

The lock is for the tree and is never held while the storage is asked. Who sends edits of a file
holds the file's turn meanwhile, so that its saves are in order; who renames a directory is alone.
While edits are under way the store may already be what the tree is not yet: what is heard from
elsewhere waits for those that were under way when it came.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from errno import EISDIR, ENOENT, ENOSPC, EROFS, ESTALE
from itertools import count
from threading import Condition, RLock

from holdfast.doors.mount.buffers import Buffer
from holdfast.doors.mount.errors import oserror
from holdfast.doors.mount.failure import failure
from holdfast.doors.mount.heads import Heads
from holdfast.doors.mount.kernel import Kernel
from holdfast.doors.mount.names import Kind
from holdfast.doors.mount.nodes import File, Nodes, tidy, work_of
from holdfast.doors.mount.pace import SLACK, seconds_left
from holdfast.doors.mount.source import Source
from holdfast.doors.mount.status import Counts
from holdfast.doors.mount.surroundings import Room, Surroundings
from holdfast.doors.mount.tree import Tree
from holdfast.ground.errors import HoldfastError, NotFound, Unavailable
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import Access, Applied, Memory, Snapshot


class Branch:
    """The directory of one store.

    `refusal` is the errno of every change, 0 while there is none: EROFS, or ESTALE once the store
    is deleted. `aside` are the files whose renaming to a backup waits, by their path in the store.
    `unsafe` are files whose unsaved bytes could not be spooled.
    """

    def __init__(
        self,
        slug: str,
        source: Source,
        access: Access,
        *,
        surroundings: Surroundings,
        nodes: Nodes,
        inodes: "count[int]",
    ) -> None:
        self.slug, self.source, self.surroundings = slug, source, surroundings
        self.prefix = f"/{slug}"
        self.lock = RLock()
        self.freed = Condition(self.lock)
        self.tree = Tree(
            self.prefix, nodes, inodes=inodes, kernel=self.kernel, now=surroundings.clock.now
        )
        self.heads = Heads(self.tree, kernel=self.kernel, on_hidden=self._hidden)
        self.counts = Counts(surroundings, workspace=source.workspace, ids={"store_id": source.id})
        self.read_only = access == "read_only" or surroundings.options.read_only
        self.archived_at: datetime | None = None
        self.cap = 0
        self.refusal = EROFS if self.read_only else 0
        self.tree.writable = not self.read_only
        self.gone = False
        self.ended = False
        """Whether the session through which the store is reached is archived."""
        self.lost: HoldfastError | None = None
        self.aside = self.heads.aside
        self.unsafe: set[File] = set()
        self.reads_on = 0
        """How many of the next reads may be of a directory that is read file by file."""
        self._flights: set[object] = set()
        self._turns = 0
        self._alone = False

    def kernel(self) -> Kernel:
        """Return whom to tell what changed."""
        return self.surroundings.kernel

    def fill(self, snapshot: Snapshot) -> None:
        """Show the store as it is at *snapshot*."""
        with self.lock:
            self.cap, self.archived_at = snapshot.cap, snapshot.archived_at
            self.judge()
            self.heads.fill(snapshot)

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

    @property
    def full(self) -> bool:
        """Whether no new memory fits, with those that wait to be saved."""
        return len(self.heads) >= self.cap

    # What is asked of the storage

    def apply(
        self, edits: Sequence[Edit], edit_id: str, commit: Callable[[list[Applied]], None]
    ) -> None:
        """Send *edits* and take in what they came to with *commit*, under the lock."""
        flight = object()
        with self.lock:
            self._flights.add(flight)
        try:
            left = seconds_left(self.surroundings.options.deadline)
            self.kernel().step_aside()
            applied = (
                self.source.apply(edits, edit_id)
                if left is None
                else self.source.apply(edits, edit_id, left)
            )
            with self.lock:
                commit(applied)
        finally:
            with self.lock:
                self._flights.discard(flight)
                self.freed.notify_all()

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

    # Whose turn it is

    @contextmanager
    def turn(self, *files: File) -> Generator[None]:
        """Have the turn of all *files*, within the operation's time; else Unavailable."""

        def free() -> bool:
            return not self._alone and not any(file.work and file.work.turn for file in files)

        with self.lock:
            self._wait(free)
            self._turns += 1
            for file in files:
                work_of(file).turn = True
        try:
            yield
        finally:
            with self.lock:
                self._turns -= 1
                for file in files:
                    work_of(file).turn = False
                    tidy(file)
                self.freed.notify_all()

    @contextmanager
    def alone(self) -> Generator[None]:
        """Have the turn of every file there is; else Unavailable."""
        with self.lock:
            self._wait(lambda: not self._alone and not self._turns)
            self._alone = True
        try:
            yield
        finally:
            with self.lock:
                self._alone = False
                self.freed.notify_all()

    def await_flights(self) -> None:
        """Wait until the edits that are under way now are answered; the lock is held once more."""
        under_way = set(self._flights)
        limit = self.surroundings.options.deadline + 1
        self.freed.wait_for(lambda: not under_way & self._flights, limit)

    def _wait(self, free: Callable[[], bool]) -> None:
        if free():
            return
        deadline = self.surroundings.options.deadline
        left = seconds_left(deadline)
        self.kernel().step_aside()
        # What is left then is for what it does when its turn has come, or to keep what it cannot.
        if not self.freed.wait_for(free, deadline if left is None else max(0.0, left - SLACK)):
            raise Unavailable("Another save of the file is under way.", reason="busy")

    # What is unsaved

    def room(self, file: File) -> Room:
        """Return the room that the bytes of *file* take."""
        around = self.surroundings
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
        self.heads.release(file)
        self.heads.set_aside(file, None)
        file.kind = Kind.TRANSIENT
        if file.buffer is None:
            self.surroundings.unsaved.claim(len(content))
            file.buffer = Buffer(content, self.surroundings.clock.now())
        file.buffer.memory_id = file.buffer.base_sha256 = None
        file.buffer.unsaved = True
        file.entry = None

    def vanish(self, file: File) -> None:
        """Let *file*, which the store does not have, be nowhere."""
        if file.parent is not None:
            self.tree.detach(file, here=False)
            self.heads.reconsider()

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
