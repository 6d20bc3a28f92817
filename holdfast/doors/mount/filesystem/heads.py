"""Which memory is which file: heads as the store tells of them, put where they belong.

Every head comes with the store's number at which it was one, so that what is told late never
undoes what is known. A memory whose name no directory can show, or at whose place a file lies that
the store does not have, is hidden: kept here until there is room.
"""

from collections.abc import Callable
from enum import Enum

from holdfast.doors.mount.filesystem.nodes import Directory, File, work_of
from holdfast.doors.mount.filesystem.tree import Tree
from holdfast.doors.mount.fuse.kernel import Kernel
from holdfast.doors.mount.names import Kind, is_shown
from holdfast.memories.stores.records import Memory, Snapshot


class _Room(Enum):
    """Whether a memory can be shown where it is: LATER, what is known of its place is newer."""

    FREE = "free"
    NONE = "none"
    LATER = "later"


class HeadTable:
    """The memories of one store, by id. Who calls holds the store's lock."""

    def __init__(
        self, tree: Tree, *, kernel: Callable[[], Kernel], on_hidden: Callable[[str], None]
    ) -> None:
        self._tree, self._kernel, self._on_hidden = tree, kernel, on_hidden
        self.aside: dict[str, File] = {}
        """Files whose renaming to a backup waits, by the path that their memories still have."""
        self.by_id: dict[str, File] = {}
        self.hidden: dict[str, tuple[Memory, int]] = {}
        self._gone: dict[str, int] = {}
        """Numbers at which memories went, until the feed is past them."""

    def __len__(self) -> int:
        return len(self.by_id) + len(self.hidden)

    def resync(self, snapshot: Snapshot) -> None:
        """Take in all heads at one moment: what is not among them is gone, unless it is newer."""
        present = {memory.id for memory in snapshot.memories}
        for id in [*self.by_id, *self.hidden]:
            if id not in present:
                self.lose(id, snapshot.seq)
        for memory in snapshot.memories:
            self.learn(memory, snapshot.seq)
        self.passed(snapshot.seq)

    def learn(self, memory: Memory, seq: int) -> None:
        """Take in that *memory* was the head of its memory at *seq*."""
        file = self.by_id.get(memory.id)
        if file is not None:
            self._update(file, memory, seq)
        elif self._gone.get(memory.id, -1) < seq:
            known = self.hidden.get(memory.id)
            if known is None or known[1] < seq:
                self._place_new(memory, seq)

    def lose(self, memory_id: str, seq: int, *, here: bool = False) -> None:
        """Take in that a memory was gone at *seq*; *here*: this mount removed it."""
        file = self.by_id.get(memory_id)
        if file is None:
            if self.hidden.get(memory_id, (None, -1))[1] <= seq:
                self.hidden.pop(memory_id, None)
                self._gone[memory_id] = seq
            return
        if file.seq > seq:
            return
        del self.by_id[memory_id]
        self._gone[memory_id] = seq
        file.memory, file.former, file.entry = None, file.memory, None
        self._forget_aside(file)
        if file.buffer is None or here:
            self._tree.detach(file, here=here)
            self.reconsider()

    def passed(self, seq: int) -> None:
        """Forget which memories went up to *seq*: nothing older will be told any more."""
        if self._gone:
            self._gone = {id: at for id, at in self._gone.items() if at > seq}

    def own(self, file: File, memory: Memory, seq: int) -> File:
        """Take in that a save of *file* made *memory* the head at *seq*; return its file."""
        if self._gone.get(memory.id, -1) >= seq:
            return file
        known = self.by_id.get(memory.id)
        if known is not None and known is not file:
            file = self._merge(file, known)
        elif known is None:
            self.release(file)
            self.hidden.pop(memory.id, None)
        self.by_id[memory.id] = file
        if file.memory is not None and file.seq > seq:
            return file
        if file.entry is not None:
            self._kernel().forget_content(file.path)
        file.memory, file.seq, file.entry = memory, seq, None
        file.kind = Kind.PLAIN
        self._follow(file, memory)
        return file

    def release(self, file: File) -> None:
        """Let *file* no longer be its memory, which another file is about to be."""
        if file.memory is not None:
            self.by_id.pop(file.memory.id, None)
            file.memory, file.former, file.entry = None, file.memory, None

    def end(self, memory_id: str, seq: int) -> None:
        """Take in that this mount removed a memory at *seq* and that no file is it any more."""
        file = self.by_id.get(memory_id)
        if file is not None:
            self.release(file)
        self._gone[memory_id] = seq

    def put_back(self, file: File) -> None:
        """Put *file*, whose renaming here failed, where its memory is."""
        self._forget_aside(file)
        if file.memory is not None:
            self._follow(file, file.memory)

    def glimpse(self, file: File, asked: Memory, found: Memory) -> None:
        """Take in that the head of *file* is *found* where *asked* was; nobody said since when."""
        if file.memory is asked and found.memory_version_id != asked.memory_version_id:
            file.memory, file.entry = found, None
            self._kernel().forget_content(file.path)

    def reconsider(self) -> None:
        """Show what is hidden no longer for a reason."""
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

    def set_aside(self, file: File, path: str | None) -> None:
        """Note that the memory of *file* is still at *path*, or that it is where it is shown."""
        if path is None and file.work is None:
            return
        work = work_of(file)
        if work.aside is not None and self.aside.get(work.aside) is file:
            del self.aside[work.aside]
        work.aside = path
        if path is not None:
            self.aside[path] = file

    def _forget_aside(self, file: File) -> None:
        if file.work is not None and file.work.aside is not None:
            self.set_aside(file, None)

    def _follow(self, file: File, memory: Memory) -> None:
        """Put *file* where *memory* is, unless its renaming here waits to be told to the store."""
        aside = file.work.aside if file.work is not None else None
        full = self._tree.prefix + memory.path
        if file.parent is not None and full in (file.path, aside):
            return
        self._forget_aside(file)
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
        """Let *file*, which the store did not have, be *memory*."""
        self.by_id[memory.id] = file
        file.memory, file.seq, file.entry = memory, seq, None

    def _hide(self, memory: Memory, seq: int, *, again: bool = False) -> None:
        again = again or memory.id in self.hidden
        self.hidden[memory.id] = (memory, seq)
        if not again:
            self._on_hidden(memory.id)

    def _make_room(self, path: str, seq: int) -> _Room:
        """Make *path* free for a memory that was there at *seq*, or say why it cannot be there.

        What is told of another memory in its way comes later in the order of the store, so that
        one is taken out until then. A file that the store does not have stays at the path itself.
        """
        present = self._tree.at(path)
        standing = present.files() if isinstance(present, Directory) else []
        standing += [file for file in (self._tree.file_above(path),) if file is not None]
        if isinstance(present, File) and (present.memory or present.kind is Kind.SCRATCH):
            standing.append(present)
        if any(file.memory is not None and file.seq > seq for file in standing):
            return _Room.LATER
        if present is self._tree.root or any(file.memory is None for file in standing):
            return _Room.NONE
        for file in standing:
            self._tree.detach(file, here=False)
        if isinstance(present, Directory) and self._tree.at(path) is present:
            self._clear(present)
        return _Room.FREE

    def _clear(self, directory: Directory) -> None:
        """Remove *directory*, below which no file is."""
        for each in [*reversed(list(directory.below())), directory]:
            if isinstance(each, Directory):
                self._tree.remove(each)
        self._kernel().forget_name(directory.path.rpartition("/")[0], directory.name)

    def _merge(self, file: File, known: File) -> File:
        """Let two files that turn out to be one memory be one; return it."""
        kept, other = (known, file) if file.parent is None else (file, known)
        if other is known:
            self._tree.detach(known, here=False)
            self.release(kept)
            kept.memory, kept.seq, known.memory = known.memory, known.seq, None
        else:
            self.release(file)
        if other.work is not None:
            for handle in other.work.handles:
                handle.file = kept
                work_of(kept).handles.append(handle)
            other.work.handles = []
        other.buffer = None
        return kept
