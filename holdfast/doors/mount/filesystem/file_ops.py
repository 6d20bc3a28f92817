"""Open, create, read, write, flush and release files."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import (
    EBADF,
    EEXIST,
    EFBIG,
    EILSEQ,
    EIO,
    EISDIR,
    ENOENT,
    ENOSPC,
    ENOTDIR,
    EOPNOTSUPP,
    EPERM,
    EROFS,
)
from itertools import count

from holdfast.doors.mount.errors import failure, oserror
from holdfast.doors.mount.filesystem.nodes import (
    SCRATCH_BYTES_MAX,
    Buffer,
    Directory,
    File,
    FileHandle,
    Nodes,
    tidy,
    work_of,
)
from holdfast.doors.mount.filesystem.store_dir import Branch
from holdfast.doors.mount.filesystem.transient import Parts
from holdfast.doors.mount.names import Kind, checked, kind_of
from holdfast.ground.errors import HoldfastError
from holdfast.memories.stores.records import Memory
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX


class HandleTable:
    """The open files of a mount, by number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.by_number: dict[int, FileHandle] = {}

    def add(self, handle: FileHandle) -> int:
        """Return the number of *handle* from now on."""
        fh = next(self._numbers)
        self.by_number[fh] = handle
        return fh

    def demand(self, fh: int) -> FileHandle:
        """Return the open file *fh*, or OSError if nothing can be done with it."""
        handle = self.by_number.get(fh)
        if handle is None:
            raise failure(EBADF)
        if handle.dead:
            raise failure(handle.dead)
        return handle

    def of(self, slug: str) -> list[FileHandle]:
        """Return the open files of one store."""
        return [handle for handle in list(self.by_number.values()) if handle.slug == slug]


class Places:
    """The stores of a mount by slug, and all their names together."""

    def __init__(self, parts: Mapping[str, Parts], nodes: Nodes) -> None:
        self.parts, self.nodes = parts, nodes

    def of(self, path: str, *, change: bool = False) -> Parts:
        """Return the store that *path* is in, or OSError.

        Where *change*, what lies directly in the mount's directory is EROFS.
        """
        end = path.find("/", 1)
        parts = self.parts.get(path[1:] if end < 0 else path[1:end])
        if change and end < 0:
            raise failure(EROFS)
        if parts is None:
            raise failure(ENOENT)
        return parts

    def parent(self, path: str) -> Directory:
        """Return the directory that *path* is in; ENOENT or ENOTDIR."""
        above = self.nodes.get(path[: path.rindex("/")])
        if above is None:
            raise failure(ENOENT)
        if isinstance(above, File):
            raise failure(ENOTDIR)
        return above

    def checked(self, parts: Parts, path: str, *, new: bool) -> Kind:
        """Return what a file at *path* is, if there can be one; else OSError, counted.

        *new*: a memory more than there are, if it becomes one.
        """
        self.parent(path)
        branch = parts.branch
        try:
            checked(branch.in_store(path))
            kind = kind_of(path[path.rindex("/") + 1 :])
            if kind is Kind.REFUSED:
                raise failure(EPERM)
            if new and kind is Kind.PLAIN and path not in branch.heads.aside and self._full(branch):
                raise failure(ENOSPC)
        except OSError as error:
            branch.counts.refuse(error.errno or 0)
            raise
        return kind

    def _full(self, branch: Branch) -> bool:
        """Tell whether no memory more fits, with the new files that wait to be saved."""
        left = branch.cap - len(branch.heads)
        if left <= 0:
            return True
        # Directories and the other stores' files count too: a bound that is near at once.
        if len(self.nodes) - len(branch.heads.by_id) < left:
            return False
        new = sum(f.memory is None and f.kind is Kind.PLAIN for f in branch.tree.root.files())
        return new >= left


class Writing:
    """Writes and truncates files. What no memory can hold is told at once."""

    def __init__(self, places: Places, handles: HandleTable) -> None:
        self._places, self._handles = places, handles
        self._by_number = handles.by_number
        self._parts: Mapping[str, Parts] = places.parts

    def write(self, fh: int, data: bytes, offset: int) -> int:
        """Put *data* at *offset*, or at the end; what no memory can hold poisons the handle."""
        handle = self._by_number.get(fh)
        if handle is None or not handle.writable:
            raise failure(EBADF)
        branch = self._parts[handle.slug].branch
        if handle.file.buffer is None:
            self._prepare(branch, handle)
        if 0 in data:
            self._learn_of_zeros(branch, handle)
        with branch.lock:
            if handle.poison or branch.refusal:
                raise failure(handle.poison or branch.refusal)
            file = handle.file
            buffer = file.buffer
            if buffer is None:
                buffer = self._begin(branch, handle)
            size = len(buffer.data)
            if handle.append:
                offset = size
            if file.kind is not Kind.SCRATCH:
                fault = buffer.fault(data, offset)
                if fault:
                    raise self._poisoned(branch, handle, fault, len(data))
            grown = offset + len(data) - size
            if grown > 0:
                self._grow(branch, file, offset + len(data), grown)
            buffer.write(data, offset, branch.surroundings.clock.now())
            handle.wrote = True
            file.entry = None
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        """Cut or lengthen a file: by its path, a save of its own unless somebody writes it."""
        if fh is None:
            parts = self._places.of(path, change=True)
            file = parts.branch.demand_file(path)
            parts.branch.demand_writable()
            self.shorten(parts, file, length)
            return
        handle = self._handles.demand(fh)
        if not handle.writable:
            raise failure(EBADF)
        branch = self._parts[handle.slug].branch
        branch.demand_writable()
        if length and handle.file.buffer is None:
            self._prepare(branch, handle)
        with branch.lock:
            self.cut(branch, handle, length)

    def shorten(self, parts: Parts, file: File, length: int) -> None:
        """Make *file* of *length* bytes, by its path."""
        branch = parts.branch
        memory, content = (file.memory, b"") if length == 0 else branch.loaded(file)
        with branch.lock:
            buffer = file.buffer
            size = len(content) if buffer is None else len(buffer.data)
            if length > size and file.kind is not Kind.SCRATCH and 0 not in content:
                branch.counts.refuse(EFBIG if length > CONTENT_BYTES_MAX else EILSEQ)
                raise failure(EFBIG if length > CONTENT_BYTES_MAX else EILSEQ)
            if buffer is None:
                buffer = branch.unsaved.begin(file, _on(branch, content, memory))
            self._cut(branch, file, buffer, length)
            if not buffer.unsaved and not file.has_attempt and memory is not None:
                branch.unsaved.drop(file)
                return
            if work_of(file).written or file.kind is Kind.SCRATCH:
                return
        parts.close(file)
        if file.kind is Kind.TRANSIENT:
            parts.grace.arm(file)

    def cut(self, branch: Branch, handle: FileHandle, length: int) -> None:
        """Make the file of *handle* of *length* bytes, as part of its next save; under the lock."""
        if handle.poison:
            raise failure(handle.poison)
        file, begun = handle.file, handle.file.buffer is None
        buffer = file.buffer or self._begin(branch, handle, emptied=length == 0)
        try:
            self._cut(branch, file, buffer, length)
        finally:
            if begun:
                self._leave_unchanged(branch, file)

    def _leave_unchanged(self, branch: Branch, file: File) -> None:
        """Let go of a buffer in which nothing changed: it would hide what comes from elsewhere."""
        buffer = file.buffer
        if buffer is None or buffer.unsaved or file.memory is None or file.has_attempt:
            return
        branch.unsaved.drop(file)

    def leave_poisoned(self, handle: FileHandle) -> None:
        """Let a file that was new disappear: what was written to it was refused."""
        branch = self._parts[handle.slug].branch
        with branch.lock:
            if all(each.poison or not each.writable for each in work_of(handle.file).handles):
                self.leave_empty(branch, handle.file)

    def leave_empty(self, branch: Branch, file: File) -> None:
        """Let *file* disappear if the store does not have it and nothing of it is to be saved."""
        with branch.lock:
            buffer = file.buffer
            if file.memory is not None or file.has_attempt or file.kind is Kind.SCRATCH:
                return
            if buffer is not None and not buffer.unsaved and not file.orphan:
                branch.unsaved.drop(file)
                branch.unsaved.vanish(file)

    def _cut(self, branch: Branch, file: File, buffer: Buffer, length: int) -> None:
        size = len(buffer.data)
        if length > CONTENT_BYTES_MAX and file.kind is not Kind.SCRATCH:
            branch.counts.refuse(EFBIG, size=length)
            raise failure(EFBIG)
        if length > size:
            self._grow(branch, file, length, length - size)
        else:
            branch.unsaved.room(file).give(size - length)
        buffer.truncate(length, branch.surroundings.clock.now())
        file.entry = None

    def _grow(self, branch: Branch, file: File, size: int, more: int) -> None:
        """Take room for *more* bytes of *file*, *size* with them; else ENOSPC."""
        if file.kind is Kind.SCRATCH and size > SCRATCH_BYTES_MAX:
            raise failure(ENOSPC)
        if not branch.unsaved.room(file).take(more):
            branch.counts.refuse(ENOSPC, size=more)
            self._leave_unchanged(branch, file)
            raise failure(ENOSPC)

    def _prepare(self, branch: Branch, handle: FileHandle) -> None:
        """Read the head that *handle* is to write on: what is appended to, or all it has not."""
        file = handle.file
        memory = file.memory
        if memory is None or handle.sha256 == memory.content_sha256:
            return
        if handle.memory_id is None:
            found, content = branch.loaded(file)
            if found is not None:
                handle.pin(content, found.content_sha256, found.id)
        elif handle.append:
            # Without it the append goes after the head all the same, by what the handle knows.
            with suppress(OSError):
                branch.loaded(file)

    def _begin(self, branch: Branch, handle: FileHandle, *, emptied: bool = False) -> Buffer:
        """Return a new buffer on what *handle* stands on; for an append, on the head by now."""
        file = handle.file
        content, sha256, memory_id = handle.content, handle.sha256, handle.memory_id
        memory = file.memory
        if memory is not None and sha256 != memory.content_sha256:
            wanted = handle.append or memory_id is None
            now = branch.source.cached(memory.content_sha256) if wanted else None
            if emptied or now is not None:
                content, sha256, memory_id = now or b"", memory.content_sha256, memory.id
            elif memory_id is None:
                raise failure(EIO)
        buffer = Buffer(
            content,
            branch.surroundings.clock.now(),
            memory_id=memory_id,
            base_sha256=sha256 or None,
            zeros=None if emptied and memory is not None else 0 in content,
        )
        branch.unsaved.begin(file, buffer)
        self._show_again(branch, file)
        return buffer

    def _show_again(self, branch: Branch, file: File) -> None:
        """Show a file that went elsewhere and is written here, if its place is still there."""
        tree = branch.tree
        above = tree.at(file.path[: file.path.rindex("/")])
        free = tree.at(file.path) is None and isinstance(above, Directory)
        if file.parent is None and not file.orphan and free:
            tree.attach(file, file.path)

    def _learn_of_zeros(self, branch: Branch, handle: FileHandle) -> None:
        """See whether the memory holds zero bytes already: else none may be added."""
        file = handle.file
        buffer, memory = file.buffer, file.memory
        if buffer is None or buffer.zeros is not None or memory is None:
            return
        try:
            buffer.zeros = 0 in branch.content(file, memory)[1]
        except HoldfastError:
            buffer.zeros = False

    def _poisoned(self, branch: Branch, handle: FileHandle, errno: int, size: int) -> OSError:
        """Take back what was written since the last save; it and what follows is refused."""
        file = handle.file
        work, buffer = work_of(file), file.buffer
        for each in work.handles:
            if each.wrote or each is handle:
                each.poison, each.wrote = errno, False
        branch.counts.refuse(errno, size=size)
        if buffer is None or file.orphan:
            return failure(errno)
        before, attempt = work.closed, work.attempt
        if before is None and attempt is not None:
            before = attempt.frozen
        if before is None:
            branch.unsaved.drop(file)
            if file.memory is None:
                branch.unsaved.begin(file, Buffer(b"", branch.surroundings.clock.now()))
        else:
            branch.unsaved.room(file).claim(len(before.content) - len(buffer.data))
            buffer.restore(before, unsaved=before is work.closed)
            work.kept_version = buffer.version
        file.entry = None
        if file.parent is not None:
            branch.kernel().forget_content(file.path)
        return failure(errno)


def _on(branch: Branch, content: bytes, memory: Memory | None) -> Buffer:
    """Return a buffer on *content*, the head of *memory*, if it is one."""
    at = branch.surroundings.clock.now()
    if memory is None:
        return Buffer(content, at)
    return Buffer(
        content,
        at,
        memory_id=memory.id,
        base_sha256=memory.content_sha256,
        zeros=0 in content,
    )


READS_ON = 64
"""Files opened after one whose content was missing of which the next may be missing too."""


class FileOperations:
    """Opens, makes, reads and closes files."""

    def __init__(self, places: Places, handles: HandleTable, writing: Writing) -> None:
        self._places, self._writing = places, writing
        self._parts: Mapping[str, Parts] = places.parts
        self._handles, self._by_number = handles, handles.by_number

    def open(self, path: str, flags: int) -> int:
        """Return a handle on the file at *path*, whose head can be read from now on."""
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise failure(EOPNOTSUPP)
        parts = self._places.of(path)
        branch, file = parts.branch, parts.branch.demand_file(path)
        writing, emptied = flags & os.O_ACCMODE != os.O_RDONLY, bool(flags & os.O_TRUNC)
        if writing or emptied:
            branch.demand_writable()
        if emptied and not writing:
            self._writing.shorten(parts, file, 0)
        handle = _handle(branch, file, flags)
        if not emptied:
            self._stand(branch, handle)
        if writing or file.work is not None or file.buffer is not None:
            with branch.lock:
                work_of(file).handles.append(handle)
                if emptied and writing:
                    self._writing.cut(branch, handle, 0)
        return self._handles.add(handle)

    def create(self, path: str, flags: int) -> int:
        """Make a file at *path* and return a handle on it; nothing is saved yet."""
        parts = self._places.of(path, change=True)
        branch = parts.branch
        branch.demand_writable()
        with branch.lock:
            present = branch.tree.at(path)
            if present is None:
                kind = self._places.checked(parts, path, new=True)
                file = branch.tree.new_file(path, kind)
                buffer = branch.unsaved.begin(file, Buffer(b"", branch.surroundings.clock.now()))
                buffer.unsaved = True
                branch.tree.attach(file, path)
                handle = _handle(branch, file, flags)
                work_of(file).handles.append(handle)
                return self._handles.add(handle)
        if flags & os.O_EXCL:
            raise failure(EEXIST)
        if isinstance(present, Directory):
            raise failure(EISDIR)
        return self.open(path, flags & ~os.O_CREAT)

    def read(self, fh: int, size: int, offset: int) -> bytes:
        """Return up to *size* bytes at *offset*: what is unsaved, else the head."""
        handle = self._by_number.get(fh)
        if handle is None:
            raise failure(EBADF)
        if handle.dead:
            raise failure(handle.dead)
        file = handle.file
        buffer = file.buffer
        if buffer is not None:
            return bytes(buffer.data[offset : offset + size])
        content, memory = handle.content, file.memory
        if memory is not None and memory.content_sha256 != handle.sha256:
            content = self._present(handle, memory)
        return content[offset : offset + size]

    def flush(self, fh: int) -> None:
        """Save what was written through the handle: a program closed a descriptor of it."""
        handle = self._handles.demand(fh)
        if handle.poison:
            self._writing.leave_poisoned(handle)
            raise failure(handle.poison)
        if handle.wrote or handle.sent or handle.failed:
            self._save(handle, self._parts[handle.slug].close)

    def fsync(self, fh: int) -> None:
        """Save all that is unsaved of the file, a temporary file to disk."""
        handle = self._handles.demand(fh)
        if handle.poison:
            raise failure(handle.poison)
        if handle.file.unsaved or handle.sent or handle.failed:
            self._save(handle, self._parts[handle.slug].sync)

    def release(self, fh: int) -> None:
        """Forget the handle; the last writer's saves what was only made or emptied.

        Nobody hears of what fails here but the spool and the status.
        """
        handle = self._by_number.pop(fh, None)
        if handle is None or handle.file.work is None:
            return
        parts, file = self._parts[handle.slug], handle.file
        branch = parts.branch
        with branch.lock:
            work = work_of(file)
            if handle in work.handles:
                work.handles.remove(handle)
            if file.orphan and not work.handles:
                branch.unsaved.drop(file)
            last = handle.writable and not work.written and not handle.dead
            # What another program writes from here on is for its own close to save.
            unsaved = file.buffer is not None and file.buffer.unsaved
        if last and not file.orphan:
            self._last_writer_left(parts, file, unsaved=unsaved)
        with branch.lock:
            tidy(file)

    def _save(self, handle: FileHandle, save: Callable[[File], None]) -> None:
        """Save what was written; OSError too if another program's save of the bytes failed."""
        try:
            save(handle.file)
            failed = handle.poison or handle.failed
        finally:
            handle.failed = 0
        if failed:
            raise failure(failed)

    def _last_writer_left(self, parts: Parts, file: File, *, unsaved: bool) -> None:
        if file.buffer is None:
            return
        if unsaved and not work_of(file).due:
            # What fails is kept, counted and told of; there is nobody to hear of it here.
            with suppress(OSError):
                parts.close(file)
        if file.kind is Kind.TRANSIENT and file.unsaved and not file.has_attempt:
            parts.grace.arm(file)
        self._writing.leave_empty(parts.branch, file)

    def _stand(self, branch: Branch, handle: FileHandle) -> None:
        """Let *handle* stand on its file's head, read now if need be."""
        file = handle.file
        memory = file.memory
        if memory is None or file.buffer is not None:
            return
        known = branch.source.cached(memory.content_sha256)
        if not handle.writable and (known is None or branch.reads_on):
            branch.reads_on = READS_ON if known is None else branch.reads_on - 1
            branch.source.ahead(memory)
        if known is not None:
            handle.pin(known, memory.content_sha256, memory.id)
            return
        try:
            found, content = branch.content(file, memory)
        except HoldfastError as error:
            branch.noted(error)
            raise oserror(error) from error
        handle.pin(content, found.content_sha256, found.id)

    def _present(self, handle: FileHandle, memory: Memory) -> bytes:
        """Return the head as it is by now; what the handle had, if that cannot be read."""
        try:
            found, content = self._parts[handle.slug].branch.content(handle.file, memory)
        except HoldfastError:
            return handle.content
        if not handle.writable:
            # What is written through a writer's goes by the head at its open.
            handle.pin(content, found.content_sha256, found.id)
        return content


def _handle(branch: Branch, file: File, flags: int) -> FileHandle:
    return FileHandle(
        branch.slug,
        file,
        writable=flags & os.O_ACCMODE != os.O_RDONLY,
        append=bool(flags & os.O_APPEND),
    )
