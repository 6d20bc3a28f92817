"""State of one synced store: heads, local files, schedule and access."""

from collections.abc import Callable
from datetime import datetime
from errno import EEXIST, ENOSPC, EROFS, ESTALE
from time import monotonic

from holdfast.doors.mount.errors import errno_of
from holdfast.doors.mount.filesystem.store_dir import StoreDirectoryStatus
from holdfast.doors.mount.filesystem.tree import Surroundings
from holdfast.doors.mount.storage.source import StoreSource
from holdfast.doors.mount.sync.agenda import Agenda
from holdfast.doors.mount.sync.files import LocalDirectory
from holdfast.doors.mount.sync.heads import LocalHeads
from holdfast.doors.mount.sync.missing import Missing
from holdfast.doors.mount.sync.notices import Notice, SyncNotices
from holdfast.doors.mount.sync.pace import Pace
from holdfast.doors.mount.sync.state import State
from holdfast.ground.errors import CursorExpired, HoldfastError, NotAuthenticated, NotFound
from holdfast.memories.stores.records import Access


class Replica:
    """State that the parts of one synced store share; one thread changes it.

    `unsaved` are paths with content that no version has yet, `hidden` paths of memories without a
    file (with the errno), `local` directories that were created here.
    """

    def __init__(
        self,
        source: StoreSource,
        access: Access,
        files: LocalDirectory,
        state: State,
        *,
        around: Surroundings,
        pace: Pace,
    ) -> None:
        self.source, self.files, self.state, self.around = source, files, state, around
        self.pace = pace
        self.heads, self.notices, self.agenda = LocalHeads(), SyncNotices(), Agenda()
        self.missing = Missing()
        self.counts = StoreDirectoryStatus(
            around, workspace=source.workspace, ids={"store_id": source.id}
        )
        self.read_only = access == "read_only" or around.options.read_only
        self.archived_at: datetime | None = None
        self.ended = False
        """Whether the session through which the store is reached is archived."""
        self.gone = False
        self.lost: HoldfastError | None = None
        self.unsaved: set[str] = set()
        self.hidden: dict[str, int] = {}
        self.local: set[str] = set()
        self.stuck: dict[str, str] = {}
        """Paths of renamed files by the paths of their memories, which could not be moved."""
        self.blocked: set[str] = set()
        """Files that wait for the deletion of a memory that has their path."""
        self.plain: set[str] = set()
        """Files that become memories even with a scratch or temporary name."""
        self.scan_at = 0.0
        self._published_hidden: set[str] = set()

    @property
    def writable(self) -> bool:
        """Whether local changes are saved."""
        return not (self.read_only or self.ended or self.gone or self.archived_at)

    @property
    def refusal(self) -> int:
        """The errno of a refused change."""
        return ESTALE if self.gone else EROFS

    def soon(self, *paths: str) -> None:
        """Schedule *paths* for the next turn, unless they are already scheduled."""
        now = monotonic()
        for path in paths:
            self.agenda.add(path, now)

    def scan_by(self, at: float) -> None:
        """Schedule a full scan at the time *at* or before."""
        self.scan_at = min(self.scan_at, at)

    def refuse(self, path: str, errno: int, says: str = "") -> None:
        """Leave *path* as it is, and add a notice; count it if that is new."""
        self.unsaved.discard(path)
        self.blocked.discard(path)
        if self.notices.put(path, Notice.of(errno, says)):
            self.counts.refuse(errno)

    def tell_hidden(self) -> None:
        """Publish an event for each memory that cannot be on disk, once."""
        for memory_id in set(self.heads.unfit) - self._published_hidden:
            self._published_hidden.add(memory_id)
            self.counts.tell("refused", memory_id, hidden=True)

    def reconsider(self) -> None:
        """Check again the paths that lacked capacity or a free path, after a deletion."""
        self.soon(*self.notices.of(ENOSPC, EEXIST), *self.hidden)

    def settled(self, path: str) -> None:
        """Clear the problems of *path*, which is in sync."""
        self.unsaved.discard(path)
        self.blocked.discard(path)
        self.hidden.pop(path, None)
        self.notices.clear(path)

    def catch_up(self) -> None:
        """Fetch and apply changes of the store now; raise errors of the source."""
        try:
            changes = self.source.changes(self.heads.seq, 0.0)
        except CursorExpired:
            snapshot = self.source.snapshot()
            self.hear(snapshot.archived_at)
            self.soon(*self.heads.reset(snapshot))
        else:
            self.hear(changes.archived_at)
            self.soon(*self.heads.absorb(changes))

    def hear(self, archived_at: datetime | None) -> None:
        """Record whether the store is archived."""
        self.judge(lambda: setattr(self, "archived_at", archived_at))

    def judge(self, change: Callable[[], None]) -> None:
        """Run *change*; if that changes whether the store is writable, update file modes."""
        before = self.writable
        change()
        if self.writable != before:
            self.files.set_writable(writable=self.writable)
            self.soon(*self.unsaved, *self.notices)

    def failed(self, error: HoldfastError) -> None:
        """Record an *error* that concerns the whole store: it is deleted, or its session."""
        if isinstance(error, NotFound) and errno_of(error) == ESTALE:
            self.gone = True
        elif isinstance(error, NotAuthenticated) and self.around.options.session_id is not None:
            self.judge(lambda: setattr(self, "ended", True))
