"""One synced store: its state, and the edits that are sent to it.

Edits in doubt are sent again unchanged, under the same id, until a response comes; meanwhile no
other edit of their files is sent.
"""

from collections.abc import Iterable, Sequence
from errno import EEXIST, ESTALE
from time import monotonic

from msgspec import Struct

from holdfast.doors.mount.errors import errno_of, passing
from holdfast.doors.mount.filesystem.store_dir import StoreDirectoryStatus
from holdfast.doors.mount.filesystem.tree import MountContext
from holdfast.doors.mount.names import Kind
from holdfast.doors.mount.storage.source import StoreSource
from holdfast.doors.mount.sync.files import LocalDirectory
from holdfast.doors.mount.sync.merge import Case, SyncAction, kind_at
from holdfast.doors.mount.sync.state import (
    Agreed,
    Known,
    LocalHeads,
    Missing,
    Notice,
    State,
    SyncNotices,
)
from holdfast.ground.errors import (
    CursorExpired,
    HoldfastError,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    PathTaken,
    PreconditionFailed,
    StoreArchived,
    Unavailable,
)
from holdfast.memories.stores.edits import Edit, Move, Moved, Remove, Save
from holdfast.memories.stores.records import Access, Applied, ChangesPage, Memory, Snapshot

EDITS_AT_ONCE, BYTES_AT_ONCE = 100, 1024 * 1024
"""Limits of one transaction: files, and characters of content."""


class Pace(Struct, frozen=True, kw_only=True):
    """Intervals in seconds; tests use shorter ones."""

    quiet: float = 0.05
    """A file is read after this time without a change."""
    begun: float = 0.25
    """The same for an empty file: most are about to be written."""
    patience: float = 30.0
    """A file that changes all the time is read after this time."""
    rename: float = 1.0
    """A deletion and a new file of equal content within this time are a rename."""
    scan: float = 30.0
    """Between two full scans, as events can be lost."""
    confirm: float = 5.0
    """Between the two scans that must find a file missing without an event."""
    again: float = 1.0
    """Between tries to read a memory's content."""
    pauses: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 5.0)
    """Between retries of a failed save; the last value repeats."""

    def pause(self, tries: int) -> float:
        """Return the seconds to wait after *tries* tries."""
        return self.pauses[min(tries, len(self.pauses)) - 1]


class Agenda(dict[str, float]):
    """The due time of each path to check, in seconds of one clock."""

    @property
    def next(self) -> float | None:
        """The due time of the first path, or None."""
        return min(self.values(), default=None)

    def take(self, now: float, most: int) -> list[str]:
        """Remove and return at most *most* due paths, the earliest first."""
        due = sorted((at, path) for path, at in self.items() if at <= now)[:most]
        for _, path in due:
            del self[path]
        return [path for _, path in due]


class Replica:
    """State that the parts of one synced store share; one thread changes it.

    `unsaved` are paths with content that no version has yet.
    """

    def __init__(
        self,
        source: StoreSource,
        access: Access,
        files: LocalDirectory,
        state: State,
        *,
        context: MountContext,
        pace: Pace,
    ) -> None:
        self.source, self.files, self.state, self.context = source, files, state, context
        self.pace = pace
        self.heads, self.notices, self.agenda = LocalHeads(), SyncNotices(), Agenda()
        self.missing = Missing()
        self.status = StoreDirectoryStatus(context, source, files.root.name, access)
        self.unsaved: set[str] = set()
        self.stuck: dict[str, str] = {}
        """Paths of renamed files by the paths of their memories, which could not be moved."""
        self.blocked: set[str] = set()
        """Files that wait for the deletion of a memory that has their path."""
        self.scan_at = 0.0

    @property
    def writable(self) -> bool:
        """Whether local changes are saved."""
        return not self.status.refusal

    def soon(self, *paths: str) -> None:
        """Schedule *paths* for the next turn, unless they are already scheduled."""
        now = monotonic()
        for path in paths:
            self.agenda.setdefault(path, now)

    def scan_by(self, at: float) -> None:
        """Schedule a full scan at the time *at* or before."""
        self.scan_at = min(self.scan_at, at)

    def refuse(self, path: str, errno: int, advice: str = "") -> None:
        """Leave *path* as it is, and add a notice; count it if that is new."""
        self.unsaved.discard(path)
        self.blocked.discard(path)
        if self.notices.put(path, Notice.of(errno, advice)):
            self.status.refuse(errno)

    def settled(self, path: str) -> None:
        """Clear the problems of *path*, which is in sync."""
        self.unsaved.discard(path)
        self.blocked.discard(path)
        self.notices.clear(path)

    def catch_up(self) -> None:
        """Fetch and apply changes of the store now; raise errors of the source."""
        try:
            self.absorb(self.source.changes(self.heads.seq, 0.0))
        except CursorExpired:
            self.absorb(self.source.snapshot())

    def absorb(self, found: ChangesPage | Snapshot) -> None:
        """Apply changes of the store, or all its heads."""
        whole = isinstance(found, Snapshot)
        self.soon(*(self.heads.reset(found) if whole else self.heads.absorb(found)))
        self.status.archived_at = found.archived_at
        self.update_modes()

    def update_modes(self) -> None:
        """Update the modes of the files if the store became writable or read-only."""
        if self.files.writable != self.writable:
            self.files.set_writable(writable=self.writable)
            self.soon(*self.unsaved, *self.notices)

    def failed(self, error: HoldfastError) -> None:
        """Record an *error* that concerns the whole store: it is deleted, or its session."""
        if isinstance(error, NotFound) and errno_of(error) == ESTALE:
            self.status.deleted = True
        elif isinstance(error, NotAuthenticated) and self.context.options.session_id is not None:
            self.status.ended = True
            self.update_modes()


class SyncTask(Struct, frozen=True, kw_only=True):
    """The edits of one file; with *old* they move its memory from there."""

    case: Case
    edits: tuple[Edit, ...]
    old: Known | None = None

    @property
    def size(self) -> int:
        """Characters of content to send."""
        return sum(len(edit.content) for edit in self.edits if isinstance(edit, Save))

    @property
    def paths(self) -> list[str]:
        """The paths that other edits must not concern meanwhile."""
        return [self.case.path] if self.old is None else [self.case.path, self.old.path]


class SyncBatch(Struct, kw_only=True):
    """Tasks of one transaction, and when it is due to be sent again if in doubt."""

    tasks: list[SyncTask]
    edit_id: str
    due: float = 0.0
    tries: int = 0

    @property
    def paths(self) -> list[str]:
        """The paths of all tasks."""
        return [path for task in self.tasks for path in task.paths]


class Uploads:
    """Apply the local changes of one store to its heads: saves, moves and deletions."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._in_doubt: list[SyncBatch] = []
        self._tries: dict[str, int] = {}

    @property
    def held(self) -> set[str]:
        """The paths with an edit in doubt, of which no other edit may be sent."""
        return {path for batch in self._in_doubt for path in batch.paths}

    @property
    def retrying(self) -> int:
        """How many files wait for a retry."""
        return len(self.held | set(self._tries))

    @property
    def next(self) -> float | None:
        """When the next edits in doubt are due to be sent again."""
        return min((batch.due for batch in self._in_doubt), default=None)

    def save(self, case: Case) -> SyncTask:
        """Return the task to save the file of *case*."""
        self._replica.unsaved.add(case.path)
        base = case.base if case.head is not None else None
        edit = Save(
            path=case.path,
            content=(case.file.content or b"").decode(),
            memory_id=base and base.memory_id,
            base_sha256=base and base.sha256,
            new=base is None,
        )
        return SyncTask(case=case, edits=(edit,))

    def move(self, case: Case, old: Known) -> SyncTask:
        """Return the task to move the memory of *old* to the path of its file."""
        move = Move(moves=(Moved(memory_id=old.memory_id, path=case.path),))
        return SyncTask(case=case, edits=(move,), old=old)

    def delete(self, case: Case, memory: Memory) -> SyncTask:
        """Return the task to delete *memory* if it still has the content of its file."""
        # A save of the same content changes nothing, and fails if the head is another.
        guard = Save(
            path=case.path,
            content=memory.content or "",
            memory_id=memory.id,
            base_sha256=memory.content_sha256,
        )
        return SyncTask(case=case, edits=(guard, Remove(memory_id=memory.id)))

    def send(self, tasks: Sequence[SyncTask]) -> None:
        """Send *tasks* in as few transactions as their limits allow."""
        batch: list[SyncTask] = []
        size = 0
        for task in tasks:
            if batch and (len(batch) >= EDITS_AT_ONCE or size + task.size > BYTES_AT_ONCE):
                self._send_new(batch)
                batch, size = [], 0
            batch.append(task)
            size += task.size
        if batch:
            self._send_new(batch)

    def resend(self, now: float) -> None:
        """Resend the edits in doubt that are due."""
        for batch in [each for each in self._in_doubt if each.due <= now]:
            self._in_doubt.remove(batch)
            self._replica.status.retried += 1
            self._send(batch)

    def forget(self, path: str) -> None:
        """Reset the retries of *path*, which needs no action any more."""
        self._tries.pop(path, None)

    def retry(self, paths: Iterable[str], error: HoldfastError) -> None:
        """Count a failure of *paths* and check them again later."""
        replica = self._replica
        replica.failed(error)
        for path in paths:
            if path not in self._tries:
                replica.status.fail(errno_of(error))
            self._later(path)

    def _later(self, path: str) -> None:
        tries = self._tries[path] = self._tries.get(path, 0) + 1
        self._replica.agenda[path] = monotonic() + self._replica.pace.pause(tries)

    def _send_new(self, tasks: list[SyncTask]) -> None:
        self._send(SyncBatch(tasks=tasks, edit_id=self._replica.context.new_edit_id()))

    def _send(self, batch: SyncBatch) -> None:
        edits = [edit for task in batch.tasks for edit in task.edits]
        try:
            applied = self._replica.source.apply(edits, batch.edit_id)
        except HoldfastError as error:
            if isinstance(error, Unavailable) and error.written is not False:
                self._wait(batch, error)
            elif passing(error):
                self.retry(batch.paths, error)
            elif len(batch.tasks) == 1:
                self._refused(batch.tasks[0], error)
            else:
                for task in batch.tasks:
                    self._send_new([task])
        else:
            at = 0
            for task in batch.tasks:
                self._done(task, applied[at : at + len(task.edits)])
                at += len(task.edits)
            # Older changes that the feed is about to deliver must not undo the results.
            self._catch_up()

    def _wait(self, batch: SyncBatch, error: HoldfastError) -> None:
        """Schedule the same edits again: they are in doubt."""
        batch.tries += 1
        batch.due = monotonic() + self._replica.pace.pause(batch.tries)
        self._in_doubt.append(batch)
        if batch.tries == 1:
            for _ in batch.tasks:
                self._replica.status.fail(errno_of(error))

    def _catch_up(self) -> None:
        try:
            self._replica.catch_up()
        except HoldfastError as error:
            self._replica.failed(error)

    def _done(self, task: SyncTask, results: Sequence[Applied]) -> None:
        """Record the *results* of *task* as the new base."""
        replica, case, old = self._replica, task.case, task.old
        for each in results:
            replica.heads.put(each)
        self.forget(case.path)
        replica.settled(case.path)
        replica.missing.found(case.path)
        if case.act is SyncAction.DELETE_THERE:
            replica.state.forget(case.path)
            replica.soon(*replica.notices)
        else:
            replica.status.saves += results[0].changed
            if old is not None:
                self._moved(case, old)
            else:
                (saved,) = results[0].memories
                agreed = Agreed(saved.id, saved.content_sha256)
                replica.state.put(Known.of(case.path, agreed, case.file))
                if case.is_new and kind_at(case.path) is Kind.TRANSIENT:
                    replica.status.materialise(saved.id)
        # The file may have changed since it was read.
        replica.soon(case.path)

    def _moved(self, case: Case, old: Known) -> None:
        replica = self._replica
        same = case.file.sha256 == old.sha256
        mark = case.file.mark if same else None
        replica.state.put(Known(case.path, old.memory_id, old.sha256, mark, case.file.born))
        replica.state.forget(old.path)
        replica.missing.found(old.path)
        replica.stuck.pop(old.path, None)
        replica.settled(old.path)
        replica.soon(old.path)

    def _refused(self, task: SyncTask, error: HoldfastError) -> None:
        """Handle the refusal of *task*, which was sent alone."""
        replica, path = self._replica, task.case.path
        replica.failed(error)
        match error:
            case PathTaken() if error.conflicting_path != path:
                if error.conflicting_path in replica.missing:
                    replica.blocked.add(path)
                    self._later(path)
                else:
                    replica.refuse(path, EEXIST)
                    if task.old is not None:
                        replica.stuck[task.old.path] = path
            case PreconditionFailed() | PathTaken() | NotFound():
                # The store has changed: the next check decides from its current heads.
                self._catch_up()
                self._later(path)
            case StoreArchived() | NotPermitted():
                replica.status.read_only = True
                replica.update_modes()
                replica.soon(path)
            case _:
                replica.refuse(path, errno_of(error))
