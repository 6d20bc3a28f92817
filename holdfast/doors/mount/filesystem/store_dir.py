"""The directory of one mounted store, and its file locks.

The lock protects the tree and is never held during a call to the storage.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from errno import EISDIR, ENOENT, EROFS, ESTALE, errorcode
from itertools import count
from threading import Condition, RLock

from msgspec import Struct

from holdfast.doors.mount.errors import (
    SLACK,
    errno_of,
    failure,
    in_doubt,
    oserror,
    passing,
    seconds_left,
)
from holdfast.doors.mount.filesystem.nodes import EditAttempt, File, Nodes, tidy, work_of
from holdfast.doors.mount.filesystem.tree import DirtyFiles, HeadTable, MountContext, Tree
from holdfast.doors.mount.storage.source import StoreSource
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import HoldfastError, IdempotencyMismatch, NotFound, Unavailable
from holdfast.ground.events import Event, Fact
from holdfast.memories.stores.edits import Edit, Remove
from holdfast.memories.stores.records import Access, Applied, Memory, Snapshot

_log = logging.getLogger(__name__)


class StoreStatus(Struct, frozen=True, kw_only=True):
    """Status of one mounted store, with counters since the start.

    `unsaved` and `retrying` count files, `spooled` entries, `hidden` memories that are not shown.
    """

    id: str
    name: str
    slug: str
    access: str
    archived_at: str | None
    memories: int
    cap: int
    unsaved: int
    retrying: int
    spooled: int
    hidden: int
    saves: int
    refused: dict[str, int]
    failed: dict[str, int]
    promoted: int
    conflicts: int
    retried: int


class MountStatus(Struct, frozen=True, kw_only=True):
    """Status of a mount: `ok`, `degraded`, `unsafe` or `stopping`, and its stores."""

    state: str
    feed_lag_seconds: float
    stores: tuple[StoreStatus, ...]


class StoreDirectoryStatus:
    """Access to one store, and counters since the start, with log lines and events.

    `ended`: the session through which the store is reached is archived. `disconnected` is why its
    changes cannot be followed.
    """

    def __init__(
        self, context: MountContext, source: StoreSource, slug: str, access: Access
    ) -> None:
        self._context, self._source, self._slug = context, source, slug
        self.read_only = access == "read_only" or context.options.read_only
        self.archived_at: datetime | None = None
        self.deleted = self.ended = False
        self.disconnected: HoldfastError | None = None
        self.cap = self.saves = self.promoted = self.conflicts = self.retried = 0
        self.refused: dict[str, int] = {}
        self.failed: dict[str, int] = {}

    @property
    def refusal(self) -> int:
        """The errno of every change, 0 while there is none."""
        closed = self.read_only or self.ended or self.archived_at is not None
        return ESTALE if self.deleted else EROFS if closed else 0

    def report(self, *, memories: int, unsaved: int, retrying: int, hidden: int) -> StoreStatus:
        """Return the status of the store, with these numbers of memories and files."""
        archived_at = self.archived_at
        return StoreStatus(
            id=self._source.id,
            name=self._source.name,
            slug=self._slug,
            access="read_only" if self.read_only else "read_write",
            archived_at=None if archived_at is None else to_rfc3339(archived_at),
            memories=memories,
            cap=self.cap,
            unsaved=unsaved,
            retrying=retrying,
            spooled=self._context.spool.count(self._source.id),
            hidden=hidden,
            saves=self.saves,
            refused=dict(self.refused),
            failed=dict(self.failed),
            promoted=self.promoted,
            conflicts=self.conflicts,
            retried=self.retried,
        )

    def refuse(self, errno: int, *, size: int = 0) -> None:
        """Count an operation refused with *errno* before it began."""
        name = _add(self.refused, errno)
        self.emit("refused", errno=name, size_bytes=size)

    def fail(self, errno: int, *, memory_id: str | None = None, size: int = 0) -> None:
        """Count a failure with *errno*."""
        name = _add(self.failed, errno)
        self.emit("failed", memory_id, errno=name, size_bytes=size)

    def conflict(self, errno: int, *, memory_id: str | None = None) -> None:
        """Count a save refused because of another client's change."""
        self.conflicts += 1
        self.emit("conflict", memory_id, errno=errorcode.get(errno, "EIO"))

    def materialise(self, memory_id: str) -> None:
        """Count a temporary file that became a memory."""
        self.promoted += 1
        _log.info("promoted: %s of %s", memory_id, self._source.id)

    def emit(self, what: str, memory_id: str | None = None, **data: Fact) -> None:
        """Log and publish `mount.<what>`."""
        ids = {"store_id": self._source.id}
        if memory_id is not None:
            ids["memory_id"] = memory_id
        _log.warning("%s: %s %s", what, ids, data)
        at, workspace = self._context.clock.now(), self._source.workspace
        self._context.publish(
            Event(type=f"mount.{what}", at=at, workspace=workspace, ids=ids, data=data)
        )


def _add(counts: dict[str, int], errno: int) -> str:
    name = errorcode.get(errno, "EIO")
    counts[name] = counts.get(name, 0) + 1
    return name


class FileLocks:
    """Locks of one store's files, under the *lock* of the store.

    A thread holds a file's lock while it sends edits of it, so that saves of a file are in order.
    """

    def __init__(self, lock: RLock, context: MountContext) -> None:
        self._lock, self._context = lock, context
        self.freed = Condition(lock)
        self.in_flight: set[str] = set()
        """The ids of edits that were sent: the store may be ahead of the tree."""
        self._held, self._alone = 0, False

    @contextmanager
    def of(self, *files: File) -> Generator[None]:
        """Hold the locks of *files*; Unavailable after the operation's time limit."""
        with self._lock:
            busy = [file for file in files if file.work is not None and file.work.locked]
            if self._alone or busy:
                self._wait(
                    lambda: not self._alone and not any(work_of(file).locked for file in files)
                )
            self._held += 1
            for file in files:
                work_of(file).locked = True
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1
                for file in files:
                    work_of(file).locked = False
                    tidy(file)
                self.freed.notify_all()

    @contextmanager
    def of_all(self) -> Generator[None]:
        """Hold the locks of all files; Unavailable after the operation's time limit."""
        with self._lock:
            if self._alone or self._held:
                self._wait(lambda: not self._alone and not self._held)
            self._alone = True
        try:
            yield
        finally:
            with self._lock:
                self._alone = False
                self.freed.notify_all()

    def await_in_flight(self) -> None:
        """Wait until the edits now in flight have a response.

        The lock is released meanwhile. The wait ends at the latest one second after the deadline.
        """
        under_way = set(self.in_flight)
        limit = self._context.options.deadline + 1
        self.freed.wait_for(lambda: not under_way & self.in_flight, limit)

    def _wait(self, free: Callable[[], bool]) -> None:
        deadline = self._context.options.deadline
        left = seconds_left(deadline)
        self._context.kernel.step_aside()
        # The rest of the time is for the work under the lock, or to spool what cannot be saved.
        if not self.freed.wait_for(free, deadline if left is None else max(0.0, left - SLACK)):
            raise Unavailable("Another save of the file is under way.", reason="busy")


class StoreDirectory:
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
        context: MountContext,
        nodes: Nodes,
        inodes: "count[int]",
    ) -> None:
        self.slug, self.source, self.context = slug, source, context
        self.prefix = f"/{slug}"
        self.lock = RLock()
        self.locks = FileLocks(self.lock, context)
        self.tree = Tree(
            self.prefix,
            nodes,
            inodes=inodes,
            kernel=lambda: context.kernel,
            now=context.clock.now,
        )
        self.status = StoreDirectoryStatus(context, source, slug, access)
        self.heads = HeadTable(
            self.tree,
            kernel=lambda: context.kernel,
            on_hidden=lambda memory_id: self.status.emit("refused", memory_id, hidden=True),
        )
        self.refusal = self.status.refusal
        self.tree.writable = not self.refusal
        self.unsaved = DirtyFiles(self.tree, self.heads, context)
        self.unsafe: set[File] = set()
        self.reads_on = 0
        """For how many more opens to read ahead: a directory may be read file by file."""

    def fill(self, snapshot: Snapshot) -> None:
        """Show the store as it is at *snapshot*."""
        with self.lock:
            self.status.cap, self.status.archived_at = snapshot.cap, snapshot.archived_at
            self.update_access()
            self.heads.resync(snapshot)

    def update_access(self) -> None:
        """Update `refusal` and the shown permissions from the state of the store."""
        self.refusal = self.status.refusal
        self.tree.set_writable(writable=not self.refusal)

    def demand_writable(self) -> None:
        """Raise OSError if the store cannot be changed."""
        if self.refusal:
            raise failure(self.refusal)

    def apply(
        self, edits: Sequence[Edit], edit_id: str, commit: Callable[[list[Applied]], None]
    ) -> None:
        """Send *edits*, and pass their results to *commit* under the lock."""
        in_flight = self.locks.in_flight
        with self.lock:
            in_flight.add(edit_id)
        try:
            left = seconds_left(self.context.options.deadline)
            self.context.kernel.step_aside()
            applied = self.source.apply(edits, edit_id, left)
            with self.lock:
                commit(applied)
        finally:
            with self.lock:
                in_flight.discard(edit_id)
                self.locks.freed.notify_all()

    def absorb(self, applied: list[Applied]) -> None:
        """Apply the results of edits without a waiting sender, like remote changes."""
        for each in applied:
            for id in each.deleted:
                self.heads.lose(id, each.seq)
            for memory in each.memories:
                self.heads.learn(memory, each.seq)

    def content(self, file: File, memory: Memory) -> tuple[Memory, bytes]:
        """Return the head of *file*, *memory* or a newer one, and its content."""
        known = self.source.contents.get(memory.content_sha256)
        if known is not None:
            return memory, known
        left = seconds_left(self.context.options.deadline)
        self.context.kernel.step_aside()
        found = self.source.content(memory, left)
        if found.memory_version_id != memory.memory_version_id:
            with self.lock:
                self.heads.glimpse(file, memory, found)
        return found, (found.content or "").encode()

    def loaded(self, file: File) -> tuple[Memory | None, bytes]:
        """Return the memory and bytes of *file*, unsaved or its head's; or OSError."""
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
        """Handle an error that shows that the store is deleted."""
        if isinstance(error, NotFound) and errno_of(error) == ESTALE and self.refusal != ESTALE:
            self.on_deleted(error)

    on_deleted: Callable[[HoldfastError], None]
    """Called once when the store turns out to be deleted."""

    def demand_file(self, path: str) -> File:
        """Return the file at *path*, or OSError."""
        node = self.tree.at(path)
        if node is None:
            raise failure(ENOENT)
        if not isinstance(node, File):
            raise failure(EISDIR)
        return node


_NOTHING = (Remove(memory_id="mem_" + "0" * 24),)
"""An edit without effect: no memory has this id."""


class StoreWriter:
    """Send renames and removals. Callers hold the files' locks."""

    def __init__(self, branch: StoreDirectory) -> None:
        self._branch = branch

    def send(
        self,
        files: Sequence[File],
        edits: tuple[Edit, ...],
        commit: Callable[[list[Applied]], None],
        edit_id: str = "",
    ) -> None:
        """Send *edits* of *files*; OSError if they fail, and nothing changed."""
        branch = self._branch
        edit_id = edit_id or branch.context.new_edit_id()
        try:
            branch.apply(edits, edit_id, commit)
        except Exception as error:
            number = errno_of(error)
            branch.noted(error)
            if not isinstance(error, HoldfastError | OSError):
                _log.error("an edit failed", exc_info=error)
            if in_doubt(error):
                for file in files:
                    work_of(file).unsure = EditAttempt(edits, edit_id, branch.absorb)
            branch.status.fail(number)
            raise failure(number) from error

    def answer(self, file: File) -> None:
        """Resolve the edit of *file* in doubt; OSError if that is not possible now.

        Its program already received an error. So the edit's id is used for an edit without
        effect: if the original was not applied yet, it never will be; if it was, writer it again
        returns the result that it had.
        """
        unsure = work_of(file).unsure
        if unsure is None:
            return
        try:
            try:
                self._branch.apply(_NOTHING, unsure.edit_id, lambda _: None)
            except IdempotencyMismatch:
                self._branch.apply(unsure.edits, unsure.edit_id, unsure.commit)
        except HoldfastError as error:
            if passing(error):
                raise failure(errno_of(error)) from error
            _log.info("the result of an edit is unknown: %s", type(error).__name__)
        work_of(file).unsure = None
