"""What a mount remembers of each file and directory, and of who has one open.

Ten thousand files are kept in memory, so what most of them never need, `Work`, is made when a file
is opened and forgotten when nothing goes on with it.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from holdfast.doors.mount.filesystem.buffers import Buffer, Frozen
from holdfast.doors.mount.fuse.kernel import Attributes, DirectoryEntry
from holdfast.doors.mount.names import Kind
from holdfast.doors.mount.storage.spool import SpoolEntry
from holdfast.ground.clock import to_microseconds
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import Applied, Memory


class File:
    """One file: a memory, or what may become one.

    `entry` is what is shown of it, made when it is asked for and forgotten when it changes.
    `orphan` says that it was removed here: what is written to it goes with it. A file without
    a parent is in no directory; one that is no orphan was removed or displaced elsewhere. Who has
    it open still sees the attributes of `former`, the memory it was.
    """

    __slots__ = (
        "buffer",
        "entry",
        "former",
        "inode",
        "kind",
        "memory",
        "name",
        "orphan",
        "parent",
        "path",
        "seq",
        "work",
    )

    def __init__(self, inode: int, path: str, *, kind: Kind = Kind.PLAIN) -> None:
        self.inode, self.path, self.kind = inode, path, kind
        self.name = path[path.rindex("/") + 1 :]
        self.parent: Directory | None = None
        self.memory: Memory | None = None
        self.former: Memory | None = None
        self.seq = 0
        self.buffer: Buffer | None = None
        self.work: Work | None = None
        self.entry: DirectoryEntry | None = None
        self.orphan = False

    def show(self, mode: int) -> DirectoryEntry:
        """Make and return what is shown of the file, whose type and permissions are *mode*."""
        buffer, memory = self.buffer, self.memory or self.former
        if buffer is not None:
            size, at = len(buffer.data), buffer.changed_at
        elif memory is not None:
            size, at = memory.content_size_bytes, memory.updated_at
        else:
            size, at = 0, None
        attributes = Attributes(
            inode=self.inode, mode=mode, size=size, nlink=1, mtime_ns=nanoseconds(at)
        )
        self.entry = entry = DirectoryEntry(self.name, attributes)
        return entry

    @property
    def has_attempt(self) -> bool:
        """Whether a save of it is under way or waits to be tried again."""
        return self.work is not None and self.work.attempt is not None

    @property
    def unsaved(self) -> bool:
        """Whether it holds bytes that the store should have and has not."""
        if self.kind is Kind.SCRATCH or self.orphan:
            return False
        return (self.buffer is not None and self.buffer.unsaved) or self.has_attempt


class Directory:
    """One directory: there while something is below it, or because it is `local`: made here."""

    __slots__ = ("changed_at", "children", "entry", "inode", "local", "name", "parent", "path")

    def __init__(self, inode: int, path: str, *, local: bool, at: datetime) -> None:
        self.inode, self.path, self.local, self.changed_at = inode, path, local, at
        self.name = path[path.rindex("/") + 1 :]
        self.parent: Directory | None = None
        self.children: dict[str, File | Directory] = {}
        self.entry: DirectoryEntry | None = None

    def show(self, mode: int) -> DirectoryEntry:
        """Make and return what is shown of the directory."""
        attributes = Attributes(
            inode=self.inode, mode=mode, size=0, nlink=2, mtime_ns=nanoseconds(self.changed_at)
        )
        self.entry = entry = DirectoryEntry(self.name, attributes)
        return entry

    def below(self) -> "Iterator[File | Directory]":
        """Yield every file and directory below this, parents before their children."""
        for child in list(self.children.values()):
            yield child
            if isinstance(child, Directory):
                yield from child.below()

    def files(self) -> list[File]:
        """Return every file below this."""
        return [node for node in self.below() if isinstance(node, File)]


Node = File | Directory
Nodes = dict[str, Node]


def nanoseconds(at: datetime | None) -> int:
    """Return nanoseconds from 1970 to *at*; 0 for None."""
    return 0 if at is None else to_microseconds(at) * 1000


class EditAttempt:
    """Edits that were sent, or are about to be, under one id.

    Sent again it has the same edits and the same id, so that they are done once. In `doubt` it may
    have been done, or be done later, though no answer came: until it is answered no other edit of
    these files is sent. `commit` takes in the answer. `frozen` is the content that it saves, if it
    saves one, and `kept` the entry in the spool that holds that; once it is `left` there for a
    person or the next mount, what becomes of the edits changes nothing there.
    """

    __slots__ = ("commit", "doubt", "edit_id", "edits", "frozen", "kept", "left", "tries")

    def __init__(
        self,
        edits: tuple[Edit, ...],
        edit_id: str,
        commit: Callable[[list[Applied]], None],
        frozen: Frozen | None = None,
    ) -> None:
        self.edits, self.edit_id, self.commit, self.frozen = edits, edit_id, commit, frozen
        self.doubt = self.left = False
        self.kept: SpoolEntry | None = None
        self.tries = 0


class FileHandle:
    """An open file. *content* is what it reads when the storage cannot be asked.

    *content*, *sha256* and *memory_id* are also the base of what is written through it. `wrote`
    says that bytes were written through it since the last save, `sent` that some are in a save that
    has not succeeded yet, `failed` why those never will be saved, `poison` why no more can be
    written, `dead` why nothing can be done with it at all.
    """

    __slots__ = (
        "append",
        "content",
        "dead",
        "failed",
        "file",
        "memory_id",
        "poison",
        "sent",
        "sha256",
        "slug",
        "writable",
        "wrote",
    )

    def __init__(self, slug: str, file: "File", *, writable: bool, append: bool) -> None:
        self.slug, self.file, self.writable, self.append = slug, file, writable, append
        self.content = b""
        self.sha256 = ""
        self.memory_id: str | None = None
        self.poison = self.dead = self.failed = 0
        self.wrote = self.sent = False

    def send(self) -> None:
        """Let what was written through it be in a save."""
        self.sent, self.wrote = self.sent or self.wrote, False

    def pin(self, content: bytes, sha256: str, memory_id: str | None) -> None:
        """Let the handle stand on *content*, of *memory_id*, from now on."""
        self.content, self.sha256, self.memory_id = content, sha256, memory_id


class Work:
    """What goes on with one file.

    `turn` is held by who sends edits of it. `attempt` is the save that was sent last and did not
    succeed yet; `unsure` another edit of the file of which no answer came. `due`: a close asked for
    a save that could not be tried. `kept` is the entry in the spool that holds the unsaved bytes,
    those of the attempt aside, as they were at `kept_version` of the buffer; `kept_id` is the id
    under which they will be saved, `closed` what they were, and `spare` an entry before it that
    holds a part of them still. `aside` is the path at which the store
    still has the memory while its renaming to a backup waits. `retry` and `grace` end
    what is to be done later.
    """

    __slots__ = (
        "aside",
        "attempt",
        "closed",
        "due",
        "grace",
        "handles",
        "kept",
        "kept_id",
        "kept_version",
        "retry",
        "spare",
        "tries",
        "turn",
        "unsure",
    )

    def __init__(self) -> None:
        self.handles: list[FileHandle] = []
        self.attempt: EditAttempt | None = None
        self.unsure: EditAttempt | None = None
        self.turn = False
        self.due = False
        self.kept: SpoolEntry | None = None
        self.spare: SpoolEntry | None = None
        self.kept_id = ""
        self.kept_version = -1
        self.closed: Frozen | None = None
        self.aside: str | None = None
        self.retry: Callable[[], None] | None = None
        self.grace: Callable[[], None] | None = None
        self.tries = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to remember."""
        return not (
            self.handles
            or self.turn
            or self.due
            or self.attempt
            or self.unsure
            or self.kept
            or self.aside
            or self.retry
            or self.grace
        )

    @property
    def written(self) -> bool:
        """Whether a program has it open for writing."""
        return any(handle.writable for handle in self.handles)

    def stop_retrying(self) -> None:
        """Do not try the save again later."""
        cancel, self.retry = self.retry, None
        if cancel is not None:
            cancel()

    def stop_grace(self) -> None:
        """Do not see later whether the file was meant."""
        cancel, self.grace = self.grace, None
        if cancel is not None:
            cancel()


def work_of(file: "File") -> Work:
    """Return what goes on with *file*, from now on remembered."""
    work = file.work
    if work is None:
        work = file.work = Work()
    return work


def tidy(file: "File") -> None:
    """Forget what goes on with *file* where that is nothing."""
    if file.work is not None and file.work.idle:
        file.work = None
