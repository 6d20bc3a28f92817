"""Bytes written to open files, checked as they come."""

from collections.abc import Mapping
from contextlib import suppress
from errno import EBADF, EFBIG, EILSEQ, EIO, ENOSPC

from holdfast.doors.mount.errors import failure
from holdfast.doors.mount.filesystem.handles import HandleTable
from holdfast.doors.mount.filesystem.nodes import (
    SCRATCH_BYTES_MAX,
    Buffer,
    Directory,
    File,
    FileHandle,
    work_of,
)
from holdfast.doors.mount.filesystem.parts import Parts
from holdfast.doors.mount.filesystem.places import Places
from holdfast.doors.mount.filesystem.store_dir import Branch
from holdfast.doors.mount.names import Kind
from holdfast.ground.errors import HoldfastError
from holdfast.memories.stores.records import Memory
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX


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
