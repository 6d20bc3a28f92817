"""Open, create, read, write, flush and release files."""

import os
from collections.abc import Mapping
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
from holdfast.doors.mount.filesystem.store_dir import StoreDirectory
from holdfast.doors.mount.filesystem.transient import StorePersistence
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
        """Return a number for the new *handle*."""
        fh = next(self._numbers)
        self.by_number[fh] = handle
        return fh

    def demand(self, fh: int) -> FileHandle:
        """Return the open file *fh*; raise OSError if it is unknown or dead."""
        handle = self.by_number.get(fh)
        if handle is None:
            raise failure(EBADF)
        if handle.dead:
            raise failure(handle.dead)
        return handle

    def of(self, slug: str) -> list[FileHandle]:
        """Return the open files of one store."""
        return [handle for handle in list(self.by_number.values()) if handle.slug == slug]


class StoreDirectories:
    """The stores of a mount by slug, and the nodes of all of them."""

    def __init__(self, stores: Mapping[str, StorePersistence], nodes: Nodes) -> None:
        self.stores, self.nodes = stores, nodes

    def of(self, path: str, *, change: bool = False) -> StorePersistence:
        """Return the store that contains *path*, else raise OSError.

        With *change*, an entry directly in the mount's root is EROFS.
        """
        end = path.find("/", 1)
        store = self.stores.get(path[1:] if end < 0 else path[1:end])
        if change and end < 0:
            raise failure(EROFS)
        if store is None:
            raise failure(ENOENT)
        return store

    def parent(self, path: str) -> Directory:
        """Return the directory that contains *path*; ENOENT or ENOTDIR."""
        above = self.nodes.get(path[: path.rindex("/")])
        if above is None:
            raise failure(ENOENT)
        if isinstance(above, File):
            raise failure(ENOTDIR)
        return above

    def checked(self, store: StorePersistence, path: str, *, new: bool) -> Kind:
        """Return the kind of a file at *path*; count and raise OSError if refused.

        *new*: the file would add a memory to the store once saved.
        """
        self.parent(path)
        branch = store.branch
        try:
            checked(path.removeprefix(branch.prefix))
            kind = kind_of(path[path.rindex("/") + 1 :])
            if kind is Kind.REFUSED:
                raise failure(EPERM)
            added = new and kind is Kind.PLAIN and path not in branch.heads.backups
            if added and self._full(branch):
                raise failure(ENOSPC)
        except OSError as error:
            branch.status.refuse(error.errno or 0)
            raise
        return kind

    def _full(self, branch: StoreDirectory) -> bool:
        """Check whether the store is at its cap, counting new files not yet saved."""
        left = branch.status.cap - len(branch.heads)
        if left <= 0:
            return True
        # Directories and the other stores' files count too: a bound that is near at once.
        if len(self.nodes) - len(branch.heads.by_id) < left:
            return False
        new = sum(f.memory is None and f.kind is Kind.PLAIN for f in branch.tree.root.files())
        return new >= left


READS_ON = 64
"""How many opens after a cache miss still read ahead."""


class FileOperations:
    """Open, create, read, write and close files; refuse what no memory can hold."""

    def __init__(self, places: StoreDirectories, handles: HandleTable) -> None:
        self._places, self._handles = places, handles
        self._by_number = handles.by_number
        self._stores: Mapping[str, StorePersistence] = places.stores

    def open(self, path: str, flags: int) -> int:
        """Open the file at *path*, load its head and return a handle."""
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise failure(EOPNOTSUPP)
        store = self._places.of(path)
        branch, file = store.branch, self._places.nodes.get(path)
        if not isinstance(file, File):
            raise failure(ENOENT if file is None else EISDIR)
        writing, emptied = flags & os.O_ACCMODE != os.O_RDONLY, bool(flags & os.O_TRUNC)
        if branch.refusal and (writing or emptied):
            raise failure(branch.refusal)
        if emptied and not writing:
            self._shorten(store, file, 0)
        handle = FileHandle(branch.slug, file, writing, bool(flags & os.O_APPEND))
        if not emptied:
            self._load(branch, handle)
        if writing or file.work is not None or file.buffer is not None:
            with branch.lock:
                work_of(file).handles.append(handle)
                if emptied and writing:
                    buffer = file.buffer or self._begin(branch, handle, emptied=True)
                    self._cut(branch, file, buffer, 0)
        return self._handles.add(handle)

    def create(self, path: str, flags: int) -> int:
        """Create a file at *path* and return a handle on it; nothing is saved yet."""
        store = self._places.of(path, change=True)
        branch = store.branch
        branch.demand_writable()
        with branch.lock:
            present = branch.tree.at(path)
            if present is None:
                kind = self._places.checked(store, path, new=True)
                file = branch.tree.new_file(path, kind)
                buffer = branch.unsaved.begin(file, Buffer(b"", branch.context.clock.now()))
                buffer.unsaved = True
                branch.tree.attach(file, path)
                writing, append = flags & os.O_ACCMODE != os.O_RDONLY, bool(flags & os.O_APPEND)
                handle = FileHandle(branch.slug, file, writing, append)
                work_of(file).handles.append(handle)
                return self._handles.add(handle)
        if flags & os.O_EXCL:
            raise failure(EEXIST)
        if isinstance(present, Directory):
            raise failure(EISDIR)
        return self.open(path, flags & ~os.O_CREAT)

    def read(self, fh: int, size: int, offset: int) -> bytes:
        """Return up to *size* bytes at *offset* of the unsaved content, else the head."""
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
            try:
                branch = self._stores[handle.slug].branch
                found, content = branch.content(file, memory)
            except HoldfastError:
                return handle.content[offset : offset + size]
            if not handle.writable:
                # A writing handle stays based on the head at its open.
                handle.pin(content, found.content_sha256, found.id)
        return content[offset : offset + size]

    def flush(self, fh: int) -> None:
        """Save what was written through the handle: a program closed its descriptor."""
        handle = self._handles.demand(fh)
        if handle.sticky_error:
            self._leave_refused(handle)
            raise failure(handle.sticky_error)
        if handle.wrote or handle.sent or handle.failed:
            store = self._stores[handle.slug]
            plain = handle.file.kind is Kind.PLAIN
            save = store.saver.save if plain else store.close
            try:
                save(handle.file)
            finally:
                # Of this save, or of another program's save of the same bytes.
                failed, handle.failed = handle.sticky_error or handle.failed, 0
            if failed:
                raise failure(failed)

    def fsync(self, fh: int) -> None:
        """Save all unsaved bytes of the file; a temporary file goes to disk."""
        handle = self._handles.demand(fh)
        if handle.sticky_error:
            raise failure(handle.sticky_error)
        if handle.file.unsaved or handle.sent or handle.failed:
            try:
                self._stores[handle.slug].sync(handle.file)
            finally:
                failed, handle.failed = handle.sticky_error or handle.failed, 0
            if failed:
                raise failure(failed)

    def release(self, fh: int) -> None:
        """Close the handle; the last writer's saves a file only created or emptied.

        A failure shows only in the spool and the status.
        """
        handle = self._by_number.pop(fh, None)
        if handle is None or handle.file.work is None:
            return
        store, file = self._stores[handle.slug], handle.file
        branch = store.branch
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
            self._last_writer_left(store, file, unsaved=unsaved)
        with branch.lock:
            tidy(file)

    def _last_writer_left(self, store: StorePersistence, file: File, *, unsaved: bool) -> None:
        if file.buffer is None:
            return
        if unsaved and not work_of(file).due:
            # A failure is spooled, counted and published; no program waits for a result here.
            with suppress(OSError):
                store.close(file)
        if file.kind is Kind.TRANSIENT and file.unsaved and not file.has_attempt:
            store.grace.arm(file)
        self._leave_empty(store.branch, file)

    def _load(self, branch: StoreDirectory, handle: FileHandle) -> None:
        """Pin *handle* to its file's head, read from the store if not cached."""
        file = handle.file
        memory = file.memory
        if memory is None or file.buffer is not None:
            return
        known = branch.source.contents.get(memory.content_sha256)
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

    def write(self, fh: int, data: bytes, offset: int) -> int:
        """Write *data* at *offset*, or at the end for an append; return its size.

        Data that no memory can hold sets a sticky error on the handle.
        """
        handle = self._by_number.get(fh)
        if handle is None or not handle.writable:
            raise failure(EBADF)
        branch = self._stores[handle.slug].branch
        if handle.file.buffer is None:
            self._prepare(branch, handle)
        if 0 in data:
            self._learn_of_zeros(branch, handle)
        with branch.lock:
            if handle.sticky_error or branch.refusal:
                raise failure(handle.sticky_error or branch.refusal)
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
                    raise self._refused(branch, handle, fault, len(data))
            grown = offset + len(data) - size
            if grown > 0:
                self._grow(branch, file, offset + len(data), grown)
            buffer.write(data, offset, branch.context.clock.now())
            handle.wrote = True
            file.entry = None
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        """Truncate or extend a file.

        By path, this is saved at once unless a program has the file open for writing.
        """
        if fh is None:
            store = self._places.of(path, change=True)
            file = store.branch.demand_file(path)
            store.branch.demand_writable()
            self._shorten(store, file, length)
            return
        handle = self._handles.demand(fh)
        if not handle.writable:
            raise failure(EBADF)
        branch = self._stores[handle.slug].branch
        branch.demand_writable()
        if length and handle.file.buffer is None:
            self._prepare(branch, handle)
        with branch.lock:
            if handle.sticky_error:
                raise failure(handle.sticky_error)
            file, begun = handle.file, handle.file.buffer is None
            buffer = file.buffer or self._begin(branch, handle, emptied=length == 0)
            try:
                self._cut(branch, file, buffer, length)
            finally:
                if begun and not buffer.unsaved:
                    self._leave_unchanged(branch, file)

    def _shorten(self, store: StorePersistence, file: File, length: int) -> None:
        """Truncate or extend *file* to *length* bytes, by its path."""
        branch = store.branch
        memory, content = (file.memory, b"") if length == 0 else branch.loaded(file)
        with branch.lock:
            buffer = file.buffer
            size = len(content) if buffer is None else len(buffer.data)
            if length > size and file.kind is not Kind.SCRATCH and 0 not in content:
                branch.status.refuse(EFBIG if length > CONTENT_BYTES_MAX else EILSEQ)
                raise failure(EFBIG if length > CONTENT_BYTES_MAX else EILSEQ)
            if buffer is None:
                buffer = branch.unsaved.begin(file, _on(branch, content, memory))
            self._cut(branch, file, buffer, length)
            if not buffer.unsaved and not file.has_attempt and memory is not None:
                branch.unsaved.drop(file)
                return
            if work_of(file).written or file.kind is Kind.SCRATCH:
                return
        store.close(file)
        if file.kind is Kind.TRANSIENT:
            store.grace.arm(file)

    def _leave_unchanged(self, branch: StoreDirectory, file: File) -> None:
        """Drop an unchanged buffer: it would hide changes by other clients."""
        buffer = file.buffer
        if buffer is None or buffer.unsaved or file.memory is None or file.has_attempt:
            return
        branch.unsaved.drop(file)

    def _leave_refused(self, handle: FileHandle) -> None:
        """Remove a new file if all writes to it were refused."""
        branch = self._stores[handle.slug].branch
        with branch.lock:
            if all(each.sticky_error or not each.writable for each in work_of(handle.file).handles):
                self._leave_empty(branch, handle.file)

    def _leave_empty(self, branch: StoreDirectory, file: File) -> None:
        """Remove *file* if the store does not have it and it has nothing to save."""
        with branch.lock:
            buffer = file.buffer
            if file.memory is not None or file.has_attempt or file.kind is Kind.SCRATCH:
                return
            if buffer is not None and not buffer.unsaved and not file.orphan:
                branch.unsaved.drop(file)
                branch.unsaved.vanish(file)

    def _cut(self, branch: StoreDirectory, file: File, buffer: Buffer, length: int) -> None:
        size = len(buffer.data)
        if length > CONTENT_BYTES_MAX and file.kind is not Kind.SCRATCH:
            branch.status.refuse(EFBIG, size=length)
            raise failure(EFBIG)
        if length > size:
            self._grow(branch, file, length, length - size)
        else:
            branch.context.budget.take(file.kind, length - size)
        buffer.truncate(length, branch.context.clock.now())
        file.entry = None

    def _grow(self, branch: StoreDirectory, file: File, size: int, more: int) -> None:
        """Reserve *more* bytes for *file*, which then has *size*; else ENOSPC."""
        if file.kind is Kind.SCRATCH and size > SCRATCH_BYTES_MAX:
            raise failure(ENOSPC)
        if not branch.context.budget.take(file.kind, more):
            branch.status.refuse(ENOSPC, size=more)
            self._leave_unchanged(branch, file)
            raise failure(ENOSPC)

    def _prepare(self, branch: StoreDirectory, handle: FileHandle) -> None:
        """Load the head that a write through *handle* is based on, if not yet read.

        This is the current head for an append, and for a handle without any content yet.
        """
        file = handle.file
        memory = file.memory
        if memory is None or handle.sha256 == memory.content_sha256:
            return
        if handle.memory_id is None:
            found, content = branch.loaded(file)
            if found is not None:
                handle.pin(content, found.content_sha256, found.id)
        elif handle.append:
            # If this fails, the append still goes after the head, from the handle's content.
            with suppress(OSError):
                branch.loaded(file)

    def _begin(
        self, branch: StoreDirectory, handle: FileHandle, *, emptied: bool = False
    ) -> Buffer:
        """Return a new buffer based on the content of *handle*.

        For an append it is based on the current head if that is cached.
        """
        file = handle.file
        content, sha256, memory_id = handle.content, handle.sha256, handle.memory_id
        memory = file.memory
        if memory is not None and sha256 != memory.content_sha256:
            wanted = not emptied and (handle.append or memory_id is None)
            now = branch.source.contents.get(memory.content_sha256) if wanted else None
            if emptied or now is not None:
                content, sha256, memory_id = now or b"", memory.content_sha256, memory.id
            elif memory_id is None:
                raise failure(EIO)
        buffer = Buffer(
            content,
            branch.context.clock.now(),
            memory_id=memory_id,
            base_sha256=sha256 or None,
            zeros=None if emptied and memory is not None else 0 in content,
        )
        branch.unsaved.begin(file, buffer)
        if file.parent is None and not file.orphan:
            self._show_again(branch, file)
        return buffer

    def _show_again(self, branch: StoreDirectory, file: File) -> None:
        """Reattach a file removed by another client and written here, if its path is free."""
        tree = branch.tree
        above = tree.at(file.path[: file.path.rindex("/")])
        if tree.at(file.path) is None and isinstance(above, Directory):
            tree.attach(file, file.path)

    def _learn_of_zeros(self, branch: StoreDirectory, handle: FileHandle) -> None:
        """Check whether the memory already has zero bytes; if not, none may be added."""
        file = handle.file
        buffer, memory = file.buffer, file.memory
        if buffer is None or buffer.zeros is not None or memory is None:
            return
        try:
            buffer.zeros = 0 in branch.content(file, memory)[1]
        except HoldfastError:
            buffer.zeros = False

    def _refused(
        self, branch: StoreDirectory, handle: FileHandle, errno: int, size: int
    ) -> OSError:
        """Revert the writes since the last save and set a sticky error on their handles."""
        file = handle.file
        work, buffer = work_of(file), file.buffer
        for each in work.handles:
            if each.wrote or each is handle:
                each.sticky_error, each.wrote = errno, False
        branch.status.refuse(errno, size=size)
        if buffer is None or file.orphan:
            return failure(errno)
        before, attempt = work.closed, work.attempt
        if before is None and attempt is not None:
            before = attempt.snapshot
        if before is None:
            branch.unsaved.drop(file)
            if file.memory is None:
                branch.unsaved.begin(file, Buffer(b"", branch.context.clock.now()))
        else:
            more = len(before.content) - len(buffer.data)
            branch.context.budget.take(file.kind, more, force=True)
            buffer.restore(before, unsaved=before is work.closed)
            work.spooled_version = buffer.version
        file.entry = None
        if file.parent is not None:
            branch.context.kernel.forget_content(file.path)
        return failure(errno)


def _on(branch: StoreDirectory, content: bytes, memory: Memory | None) -> Buffer:
    """Return a buffer based on *content*, the head of *memory* if that is not None."""
    at = branch.context.clock.now()
    if memory is None:
        return Buffer(content, at)
    return Buffer(
        content,
        at,
        memory_id=memory.id,
        base_sha256=memory.content_sha256,
        zeros=0 in content,
    )
