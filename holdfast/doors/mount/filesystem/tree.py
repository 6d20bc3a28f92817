"""The tree of a mounted store: paths, heads, unsaved files.

All stores of a mount share one dictionary from path to file or directory, so that a look-up is one
dictionary access. Changes to a tree require its store's lock; look-ups do not.
"""

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from errno import ENOSPC
from itertools import count
from threading import Lock

from msgspec import Struct, field

from holdfast.doors.mount.errors import failure
from holdfast.doors.mount.filesystem.nodes import (
    Buffer,
    Directory,
    File,
    Kernel,
    Node,
    Nodes,
    NoKernel,
    work_of,
)
from holdfast.doors.mount.names import MIB, Kind, MountOptions, is_shown
from holdfast.doors.mount.storage.deadline import Later
from holdfast.doors.mount.storage.spool import Spool
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.events import Event, Fact
from holdfast.ground.ids import Ids
from holdfast.memories.stores.records import Memory, Snapshot


class Tree:
    """The files and directories of one store below *prefix*, `/<slug>`.

    They are in *nodes*, the dictionary that the trees of a mount share.
    """

    def __init__(
        self,
        prefix: str,
        nodes: Nodes,
        *,
        inodes: "count[int]",
        kernel: Callable[[], Kernel],
        now: Callable[[], datetime],
    ) -> None:
        self.prefix = prefix
        self._nodes, self._inodes, self._kernel, self._now = nodes, inodes, kernel, now
        self.at: Callable[[str], Node | None] = nodes.get
        self.writable = True
        self.root = Directory(next(inodes), prefix, local=True, at=now())
        nodes[prefix] = self.root

    def new_file(self, path: str, kind: Kind = Kind.PLAIN) -> File:
        """Return a file that is not yet in any directory."""
        return File(next(self._inodes), path, kind=kind)

    def attach(self, file: File, path: str) -> None:
        """Put *file*, which is detached, at *path*, and create the directories above it.

        A file in its way is detached. If a directory that is not empty is there, *file* stays
        detached.
        """
        parent, present = self._above(path), self._nodes.get(path)
        if isinstance(present, File):
            self._take(present)
        elif present is not None:
            if present.children:
                return
            self.remove(present)
        if file.path != path:
            file.path, file.name = path, path[path.rindex("/") + 1 :]
        file.entry, file.parent = None, parent
        parent.children[file.name] = file
        self._nodes[path] = file
        self._changed(parent)

    def detach(self, file: File, *, here: bool) -> None:
        """Detach *file* from its directory; *here*: by this mount, so directories stay."""
        parent, name = file.parent, file.name
        if parent is not None:
            self._take(file)
            self._left(parent, name, here=here)

    def move(self, file: File, path: str, *, here: bool) -> None:
        """Move *file* to *path*, which is free."""
        parent, name = file.parent, file.name
        if parent is not None:
            self._take(file)
        self.attach(file, path)
        if parent is not None:
            self._left(parent, name, here=here)

    def _prune(self, directory: Directory) -> None:
        """Remove *directory* and those above it that are empty and not created here."""
        while not directory.children and not directory.local and directory.parent is not None:
            parent = directory.parent
            self.remove(directory)
            self._kernel().forget_name(parent.path, directory.name)
            directory = parent

    def make(self, path: str, *, local: bool) -> Directory:
        """Create a directory at *path*, and those above it."""
        parent = self._above(path)
        made = Directory(next(self._inodes), path, local=local, at=self._now())
        made.parent = parent
        parent.children[made.name] = made
        self._nodes[path] = made
        self._changed(parent)
        return made

    def remove(self, directory: Directory) -> None:
        """Remove *directory*, which is empty; the one above it stays."""
        parent = directory.parent
        if parent is not None:
            parent.children.pop(directory.name, None)
            self._nodes.pop(directory.path, None)
            self._changed(parent)
            directory.parent = None

    def carry(self, directory: Directory, path: str) -> None:
        """Move *directory* and all below it to *path*, replacing a file there.

        If a directory exists at *path*, the two are merged.
        """
        former = directory.parent
        self.remove(directory)
        if former is not None and not former.children:
            former.local = True
        for node in directory.below():
            self._nodes.pop(node.path, None)
        self._graft(directory, self._above(path), path[path.rindex("/") + 1 :])

    def _graft(self, node: Node, parent: Directory, name: str) -> None:
        """Put *node*, which is detached, and all below it, into *parent* as *name*."""
        present = parent.children.get(name)
        if isinstance(present, File):
            self.detach(present, here=False)
        if isinstance(present, Directory):
            if isinstance(node, File):
                # The feed will show the memory of *node* at its path in the store.
                node.parent = None
                return
            present.local = present.local or node.local
            for child in list(node.children.values()):
                self._graft(child, present, child.name)
            return
        node.parent, node.name, node.entry = parent, name, None
        node.path = f"{parent.path}/{name}"
        parent.children[name] = node
        self._nodes[node.path] = node
        self._changed(parent)
        if isinstance(node, Directory):
            children, node.children = node.children, {}
            for child in children.values():
                self._graft(child, node, child.name)

    def set_writable(self, *, writable: bool) -> None:
        """Show everything as writable, or as read-only."""
        if writable != self.writable:
            self.writable = writable
            for node in [self.root, *self.root.below()]:
                node.entry = None
                self._kernel().forget_content(node.path)

    def file_above(self, path: str) -> File | None:
        """Return the file that is where *path* needs a directory, or None."""
        end = path.rfind("/")
        while end > 0:
            node = self._nodes.get(path[:end])
            if node is not None:
                return node if isinstance(node, File) else None
            end = path.rfind("/", 0, end)
        return None

    def _take(self, file: File) -> None:
        parent, file.parent = file.parent, None
        if parent is not None:
            parent.children.pop(file.name, None)
            self._nodes.pop(file.path, None)
            self._changed(parent)

    def _left(self, parent: Directory, name: str, *, here: bool) -> None:
        """Remove *parent* if empty after *name* was detached; keep it if *here*."""
        if here:
            parent.local = parent.local or not parent.children
            return
        self._kernel().forget_name(parent.path, name)
        self._kernel().forget_content(parent.path)
        self._prune(parent)

    def _above(self, path: str) -> Directory:
        """Return the directory of *path*; create it if missing, replacing a file."""
        above = path[: path.rindex("/")]
        node = self._nodes.get(above)
        if isinstance(node, File):
            self._take(node)
        return node if isinstance(node, Directory) else self.make(above, local=False)

    def _changed(self, directory: Directory) -> None:
        directory.changed_at = self._now()
        directory.entry = None


BUDGET = 64 * MIB
"""Byte budget of unsaved files in RAM, and the same again for scratch files."""


class BufferBudget:
    """Byte budgets of buffers in memory: of scratch files, and of others."""

    def __init__(self, limit: int = BUDGET) -> None:
        self._remaining, self._lock = {True: limit, False: limit}, Lock()

    def take(self, kind: Kind, size: int, *, force: bool = False) -> bool:
        """Reserve *size* bytes for a file of *kind*; return False if fewer remain.

        A negative *size* releases bytes. With *force* they are reserved even if fewer remain.
        """
        scratch = kind is Kind.SCRATCH
        with self._lock:
            if size > max(0, self._remaining[scratch]) and not force:
                return False
            self._remaining[scratch] -= size
            return True


class MountContext(Struct, kw_only=True):
    """State that all stores of a mount share.

    A binding may set `kernel` before the start. `hurried`: no time is left to save unsaved files,
    so they are spooled.
    """

    options: MountOptions
    spool: Spool
    later: Later
    clock: Clock
    ids: Ids
    publish: Callable[[Event], None]
    kernel: Kernel = field(default_factory=NoKernel)
    budget: BufferBudget = field(default_factory=BufferBudget)
    stopping: bool = False
    hurried: bool = False

    def new_edit_id(self) -> str:
        """Return the id of a new edit."""
        return self.ids.new("edit", to_microseconds(self.clock.now()))

    def emit(self, what: str, workspace: str, **data: Fact) -> None:
        """Publish `mount.<what>`, an event of the whole mount."""
        ids = {} if self.options.session_id is None else {"session_id": self.options.session_id}
        at = self.clock.now()
        self.publish(Event(type=f"mount.{what}", at=at, workspace=workspace, ids=ids, data=data))


# Every head comes with the store's sequence number at which it was the head, so that a late change
# never undoes a newer one. A memory is hidden while no directory can show its name, or while a
# file that the store does not have is at its path.


class _Room(Enum):
    """Whether a memory can be shown at its path; LATER: the path has a newer change."""

    FREE = "free"
    NONE = "none"
    LATER = "later"


class HeadTable:
    """The memories of one store, by id. Callers hold the store's lock."""

    def __init__(
        self, tree: Tree, *, kernel: Callable[[], Kernel], on_hidden: Callable[[str], None]
    ) -> None:
        self._tree, self._kernel, self._on_hidden = tree, kernel, on_hidden
        self.backups: dict[str, File] = {}
        """Files with a pending rename to a backup, by the path of their memories in the store."""
        self.by_id: dict[str, File] = {}
        self.hidden: dict[str, tuple[Memory, int]] = {}
        self._deleted: dict[str, int] = {}
        """Sequence numbers of deletions by memory id, until the feed is past them."""

    def __len__(self) -> int:
        return len(self.by_id) + len(self.hidden)

    def resync(self, snapshot: Snapshot) -> None:
        """Apply a snapshot of all heads: others were deleted, unless they are newer."""
        present = {memory.id for memory in snapshot.memories}
        for id in [*self.by_id, *self.hidden]:
            if id not in present:
                self.lose(id, snapshot.seq)
        for memory in snapshot.memories:
            self.learn(memory, snapshot.seq)
        self.passed(snapshot.seq)

    def learn(self, memory: Memory, seq: int) -> None:
        """Record that *memory* was the head of its memory at *seq*."""
        file = self.by_id.get(memory.id)
        if file is not None:
            self._update(file, memory, seq)
        elif self._deleted.get(memory.id, -1) < seq:
            known = self.hidden.get(memory.id)
            if known is None or known[1] < seq:
                self._place_new(memory, seq)

    def lose(self, memory_id: str, seq: int, *, here: bool = False) -> None:
        """Record that a memory was deleted at *seq*; *here*: this mount removed it."""
        file = self.by_id.get(memory_id)
        if file is None:
            if self.hidden.get(memory_id, (None, -1))[1] <= seq:
                self.hidden.pop(memory_id, None)
                self._deleted[memory_id] = seq
            return
        if file.seq > seq:
            return
        del self.by_id[memory_id]
        self._deleted[memory_id] = seq
        file.memory, file.former, file.entry = None, file.memory, None
        self._forget_stored_path(file)
        if file.buffer is None or here:
            self._tree.detach(file, here=here)
            self.reconsider()

    def passed(self, seq: int) -> None:
        """Forget deletions up to *seq*: no older change will arrive any more."""
        if self._deleted:
            self._deleted = {id: at for id, at in self._deleted.items() if at > seq}

    def own(self, file: File, memory: Memory, seq: int) -> File:
        """Record that a save of *file* made *memory* the head at *seq*; return its file."""
        if self._deleted.get(memory.id, -1) >= seq:
            return file
        known, other, other_seq = self.by_id.get(memory.id), None, -1
        if known is not None and known is not file:
            file = self._merge(file, known)
        elif known is None:
            other, other_seq = file.memory, file.seq
            self.release(file)
            self.hidden.pop(memory.id, None)
        self.by_id[memory.id] = file
        if file.memory is not None and file.seq > seq:
            return file
        if file.entry is not None:
            self._kernel().forget_content(file.path)
        file.memory, file.seq, file.entry = memory, seq, None
        file.kind = Kind.PLAIN
        if file.parent is None or self._tree.prefix + memory.path != file.path:
            self._follow(file, memory)
        if other is not None:
            # The feed gave it to the file meanwhile; it is still where it was.
            self.learn(other, other_seq)
        return file

    def release(self, file: File) -> None:
        """Separate *file* from its memory."""
        if file.memory is not None:
            self.by_id.pop(file.memory.id, None)
            file.memory, file.former, file.entry = None, file.memory, None

    def end(self, memory_id: str, seq: int) -> None:
        """Record that this mount removed a memory at *seq*, and release its file."""
        file = self.by_id.get(memory_id)
        if file is not None:
            self.release(file)
        self._deleted[memory_id] = seq

    def put_back(self, file: File) -> None:
        """Move *file*, which could not be renamed, back to the path of its memory."""
        self._forget_stored_path(file)
        if file.memory is not None:
            self._follow(file, file.memory)

    def glimpse(self, file: File, known: Memory, found: Memory) -> None:
        """Record *found* as the head of *file*, if still *known*; its seq is unknown."""
        if file.memory is known and found.memory_version_id != known.memory_version_id:
            file.memory, file.entry = found, None
            self._kernel().forget_content(file.path)

    def reconsider(self) -> None:
        """Show hidden memories that can be shown now."""
        for memory, seq in list(self.hidden.values()):
            if is_shown(memory.path):
                del self.hidden[memory.id]
                self._place_new(memory, seq, again=True)

    def hidden_below(self, path: str) -> list[Memory]:
        """Return the hidden memories below the directory *path*."""
        below = path[len(self._tree.prefix) :] + "/"
        return [memory for memory, _ in self.hidden.values() if memory.path.startswith(below)]

    def _update(self, file: File, memory: Memory, seq: int) -> None:
        known = file.memory
        if seq <= file.seq or known is None:
            return
        file.seq, file.memory = seq, memory
        file.entry = None
        if file.buffer is None and known.content_sha256 != memory.content_sha256:
            self._kernel().forget_content(file.path)
        self._follow(file, memory)

    def set_stored_path(self, file: File, path: str | None) -> None:
        """Record the path that the memory of *file* still has in the store.

        None: it is where it is shown.
        """
        if path is None and file.work is None:
            return
        work = work_of(file)
        if work.stored_path is not None and self.backups.get(work.stored_path) is file:
            del self.backups[work.stored_path]
        work.stored_path = path
        if path is not None:
            self.backups[path] = file

    def _forget_stored_path(self, file: File) -> None:
        if file.work is not None and file.work.stored_path is not None:
            self.set_stored_path(file, None)

    def _follow(self, file: File, memory: Memory) -> None:
        """Move *file* to the path of *memory*, unless its rename here is still pending."""
        stored = file.work.stored_path if file.work is not None else None
        full = self._tree.prefix + memory.path
        if file.parent is not None and full in (file.path, stored):
            return
        self._forget_stored_path(file)
        if file.orphan:
            return
        room = self._make_room(full, file.seq) if is_shown(memory.path) else _Room.NONE
        present = self._tree.at(full)
        if room is _Room.FREE and not isinstance(present, File):
            self._tree.move(file, full, here=False)
            return
        self._tree.detach(file, here=False)
        if room is _Room.NONE:
            self._hide(memory, file.seq)
            self.by_id.pop(memory.id, None)
        elif room is _Room.FREE and isinstance(present, File):
            self.release(file)
            self._become(present, memory, file.seq)

    def _place_new(self, memory: Memory, seq: int, *, again: bool = False) -> None:
        full = self._tree.prefix + memory.path
        room = self._make_room(full, seq) if is_shown(memory.path) else _Room.NONE
        if room is _Room.NONE:
            self._hide(memory, seq, again=again)
            return
        self.hidden.pop(memory.id, None)
        present = self._tree.at(full) if room is _Room.FREE else None
        if isinstance(present, File):
            self._become(present, memory, seq)
            return
        file = self._tree.new_file(full)
        self._become(file, memory, seq)
        if room is _Room.FREE:
            self._tree.attach(file, full)
        if file.parent is not None:
            self._kernel().forget_content(file.parent.path)

    def _become(self, file: File, memory: Memory, seq: int) -> None:
        """Assign *memory* to *file*, which had none."""
        self.by_id[memory.id] = file
        file.memory, file.seq, file.entry = memory, seq, None

    def _hide(self, memory: Memory, seq: int, *, again: bool = False) -> None:
        again = again or memory.id in self.hidden
        self.hidden[memory.id] = (memory, seq)
        if not again:
            self._on_hidden(memory.id)

    def _make_room(self, path: str, seq: int) -> _Room:
        """Free *path* for a memory that was there at *seq*, or return why it cannot be.

        A memory in its way is detached: its own change comes later in the order of the store, or
        its rename to a backup here will fail. A file that the store does not have stays at the
        path itself.
        """
        present = self._tree.at(path)
        standing = present.files() if isinstance(present, Directory) else []
        standing += [file for file in (self._tree.file_above(path),) if file is not None]
        if isinstance(present, File) and (present.memory or present.kind is Kind.SCRATCH):
            standing.append(present)
        if any(_stands(file) and file.seq > seq for file in standing):
            return _Room.LATER
        if present is self._tree.root or any(file.memory is None for file in standing):
            return _Room.NONE
        for file in standing:
            self._tree.detach(file, here=False)
        if isinstance(present, Directory) and self._tree.at(path) is present:
            self._clear(present)
        return _Room.FREE

    def _clear(self, directory: Directory) -> None:
        """Remove *directory*, which has no files below it."""
        for each in [*reversed(list(directory.below())), directory]:
            if isinstance(each, Directory):
                self._tree.remove(each)
        self._kernel().forget_name(directory.path.rpartition("/")[0], directory.name)

    def _merge(self, file: File, known: File) -> File:
        """Merge two files that turn out to be the same memory; return the remaining one."""
        remaining, other = (known, file) if file.parent is None else (file, known)
        if other is known:
            self._tree.detach(known, here=False)
            self.release(remaining)
            remaining.memory, remaining.seq, known.memory = known.memory, known.seq, None
        else:
            self.release(file)
        if other.work is not None:
            for handle in other.work.handles:
                handle.file = remaining
                work_of(remaining).handles.append(handle)
            other.work.handles = []
        other.buffer = None
        return remaining


def _stands(file: File) -> bool:
    """Return whether the store has the memory of *file* where the file is shown."""
    pending = file.work is not None and file.work.stored_path is not None
    return file.memory is not None and not pending


class DirtyFiles:
    """Start and drop buffers of unsaved bytes. Callers hold the store's lock."""

    def __init__(self, tree: Tree, heads: HeadTable, context: MountContext) -> None:
        self._tree, self._heads, self._context = tree, heads, context

    def begin(self, file: File, buffer: Buffer) -> Buffer:
        """Make *buffer* the unsaved content of *file*; ENOSPC over the byte budget."""
        if not self._context.budget.take(file.kind, len(buffer.data)):
            raise failure(ENOSPC)
        file.buffer, file.entry = buffer, None
        return buffer

    def drop(self, file: File) -> None:
        """Drop the buffer of *file* and release its bytes."""
        buffer, file.buffer = file.buffer, None
        file.entry = None
        if buffer is not None:
            self._context.budget.take(file.kind, -len(buffer.data))

    def fork(self, file: File, content: bytes) -> None:
        """Separate the backup *file*, with *content*, from its memory."""
        self._heads.release(file)
        self._heads.set_stored_path(file, None)
        file.kind = Kind.TRANSIENT
        if file.buffer is None:
            self._context.budget.take(file.kind, len(content), force=True)
            file.buffer = Buffer(content, self._context.clock.now())
        file.buffer.memory_id = file.buffer.base_sha256 = None
        file.buffer.unsaved = True
        file.entry = None

    def vanish(self, file: File) -> None:
        """Detach *file*, which the store does not have."""
        if file.parent is not None:
            self._tree.detach(file, here=False)
            self._heads.reconsider()
