"""Files opened, made, read and closed."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import EBADF, EEXIST, EISDIR, EOPNOTSUPP

from holdfast.doors.mount.errors import failure, oserror
from holdfast.doors.mount.filesystem.file_ops import Writing
from holdfast.doors.mount.filesystem.handles import HandleTable
from holdfast.doors.mount.filesystem.nodes import Buffer, Directory, File, FileHandle, tidy, work_of
from holdfast.doors.mount.filesystem.parts import Parts
from holdfast.doors.mount.filesystem.places import Places
from holdfast.doors.mount.filesystem.store_dir import Branch
from holdfast.doors.mount.names import Kind
from holdfast.ground.errors import HoldfastError
from holdfast.memories.stores.records import Memory

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
