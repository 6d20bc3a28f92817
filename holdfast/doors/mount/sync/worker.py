"""The thread that syncs one store: it processes events of both sides one by one."""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from time import monotonic

from holdfast.doors.mount.filesystem.store_dir import StoreStatus
from holdfast.doors.mount.storage.feed import StoreFeed
from holdfast.doors.mount.sync import own
from holdfast.doors.mount.sync.inward import Inward
from holdfast.doors.mount.sync.outward import Outward
from holdfast.doors.mount.sync.replica import Replica
from holdfast.doors.mount.sync.scan import Scan
from holdfast.doors.mount.sync.settling import Settling
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import HoldfastError
from holdfast.memories.stores.records import ChangesPage, Snapshot

AT_ONCE = 200
"""Limit of paths in one turn; each may hold a content in memory."""

AFTER_FAULT = 1.0
SHOWN = 20
"""Limit of notices of one store in the status."""

_log = logging.getLogger(__name__)


class SyncWorker:
    """Sync the files and memories of one store, in both directions."""

    def __init__(self, slug: str, replica: Replica) -> None:
        self.slug, self.replica = slug, replica
        self._inward, self._outward = Inward(replica), Outward(replica)
        self._settling = Settling(replica, self._inward, self._outward)
        self._scan = Scan(replica)
        self._queue: deque[Callable[[], None]] = deque()
        self._wake = Condition()
        self._thread = Thread(target=self._run, name=f"holdfast-sync-{slug}", daemon=True)
        self._until: float | None = None
        """Deadline of the worker after `end`; None before."""
        self._errors: bytes | None = None
        """The content of the errors file; None if unknown."""
        self._cleared = False
        self.feed: StoreFeed | None = None

    def begin(self) -> None:
        """Run the first sync of files and memories, as far as possible now."""
        replica = self.replica
        snapshot = replica.source.snapshot()
        replica.archived_at = snapshot.archived_at
        replica.files.writable = replica.writable
        if replica.files.make_root():
            # The directory was removed while no sync ran: that must not delete memories.
            for known in replica.state:
                replica.state.forget(known.path)
        replica.files.set_writable(writable=replica.writable)
        replica.state.open()
        replica.heads.reset(snapshot)
        self._scan.run()
        now = monotonic()
        with self._outward.together(len(replica.agenda)):
            while paths := replica.agenda.take(now, AT_ONCE):
                self._settling.settle(paths)
        self._write_errors()
        self.feed = StoreFeed(
            replica.source,
            seq=snapshot.seq,
            changed=lambda changes: self.tell(lambda: self._changed(changes)),
            resynced=lambda snapshot: self.tell(lambda: self._resynced(snapshot)),
            lost=lambda error: self.tell(lambda: self._lost(error)),
            back=lambda: self.tell(self._back),
        )

    def start(self) -> None:
        """Start the thread; it first scans for local changes since `begin`."""
        if self.feed is not None:
            self.feed.start()
        self.tell(lambda: self._scan.run(quick=True))
        self._thread.start()

    def tell(self, what: Callable[[], None]) -> None:
        """Queue *what* for the worker."""
        with self._wake:
            self._queue.append(what)
            self._wake.notify()

    def touched(self, path: str, *, appeared: bool) -> None:
        """Queue an event of the file at *path*."""
        self.tell(lambda: self._touched(path, appeared=appeared))

    def missed(self) -> None:
        """Queue a full scan: events may have been lost."""
        self.tell(lambda: self.replica.scan_by(monotonic()))

    def end(self, until: float) -> None:
        """Let the worker save unsaved files by the time *until*, and end."""
        if self.feed is not None:
            self.feed.close()
        with self._wake:
            self._until = until if self._until is None else min(self._until, until)
            self._wake.notify()

    def join(self, seconds: float) -> int:
        """Wait for the worker to end; return how many files are not saved."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, seconds))
        return len(self.replica.unsaved | self._inward.held)

    def errors(self) -> list[str]:
        """Return the first lines of the store's notices."""
        return [f"/{self.slug}: {line}" for line in self.replica.notices.lines(SHOWN)]

    def status(self) -> StoreStatus:
        """Return the status of the store."""
        replica, counts = self.replica, self.replica.counts
        archived_at = replica.archived_at
        return StoreStatus(
            id=replica.source.id,
            name=replica.source.name,
            slug=self.slug,
            access="read_only" if replica.read_only else "read_write",
            archived_at=None if archived_at is None else to_rfc3339(archived_at),
            memories=len(replica.heads),
            cap=replica.heads.cap,
            unsaved=len(replica.unsaved),
            retrying=self._inward.retrying,
            spooled=replica.around.spool.count(replica.source.id),
            hidden=len(replica.hidden) + len(replica.heads.unfit),
            saves=counts.saves,
            refused=dict(counts.refused),
            failed=dict(counts.failed),
            promoted=counts.promoted,
            conflicts=counts.conflicts,
            retried=counts.retried,
        )

    def _run(self) -> None:
        while True:
            queued, until = self._await()
            for what in queued:
                self._safely(what)
            if until is not None:
                self._safely(self._finish)
                return
            self._safely(self._turn)

    def _await(self) -> tuple[list[Callable[[], None]], float | None]:
        """Wait for work; return the queued calls, and the deadline if it is to end."""
        replica = self.replica
        with self._wake:
            while not self._queue and self._until is None:
                due = [replica.agenda.next, self._inward.next, replica.scan_at]
                pause = min(each for each in due if each is not None) - monotonic()
                if replica.gone:
                    pause = replica.pace.scan
                elif pause <= 0:
                    break
                self._wake.wait(pause)
            queued = list(self._queue)
            self._queue.clear()
            return queued, self._until

    def _turn(self) -> None:
        """Process what is due now."""
        replica, now = self.replica, monotonic()
        if replica.gone:
            self._clear()
            return
        if now >= replica.scan_at:
            self._scan.run()
        self._inward.resend(now)
        paths = replica.agenda.take(monotonic(), AT_ONCE)
        try:
            self._settling.settle(paths)
        except BaseException:
            for path in paths:
                replica.agenda.add(path, monotonic() + AFTER_FAULT)
            raise
        self._scan.judge()
        self._write_errors()

    def _finish(self) -> None:
        """Save unsaved files, temporary ones too, and close the sync state."""
        replica, until = self.replica, self._until or 0.0
        if replica.gone:
            self._clear()
            return
        self._scan.run()
        due = float("inf")
        while True:
            while paths := replica.agenda.take(due, AT_ONCE):
                self._settling.settle(paths, final=True)
                due = monotonic()
            times = [each for each in (replica.agenda.next, self._inward.next) if each is not None]
            pause = min(times, default=until) - monotonic()
            if monotonic() >= until or not times or monotonic() + pause >= until:
                break
            with self._wake:
                self._wake.wait(max(0.0, pause))
                until = self._until or 0.0
            self._inward.resend(monotonic())
            due = monotonic()
        self._write_errors()
        replica.state.close()

    def _touched(self, path: str, *, appeared: bool) -> None:
        if path == "/":
            self.replica.scan_by(monotonic() + self.replica.pace.quiet)
        elif path == own.ERRORS:
            self._check_errors()
        elif not own.is_own(path):
            self._settling.touch(path, appeared=appeared)

    def _changed(self, changes: ChangesPage) -> None:
        self.replica.hear(changes.archived_at)
        self.replica.soon(*self.replica.heads.absorb(changes))

    def _resynced(self, snapshot: Snapshot) -> None:
        self.replica.hear(snapshot.archived_at)
        self.replica.soon(*self.replica.heads.reset(snapshot))

    def _lost(self, error: HoldfastError) -> None:
        replica = self.replica
        replica.failed(error)
        if not replica.gone:
            replica.lost = error
            replica.counts.tell("degraded", reason=getattr(error, "reason", type(error).__name__))

    def _back(self) -> None:
        replica = self.replica
        replica.lost = None
        replica.judge(lambda: setattr(replica, "ended", False))
        replica.soon(*replica.unsaved)

    def _clear(self) -> None:
        """Remove the files, state and spool of a deleted store."""
        replica = self.replica
        if self._cleared:
            return
        self._cleared = True
        dropped = len(replica.unsaved)
        for path in {*(each.path for each in replica.state), own.ERRORS}:
            with suppress(OSError):
                replica.files.drop(path)
            self._outward.prune(path)
        for path in replica.heads.clear():
            replica.settled(path)
        replica.unsaved.clear()
        replica.state.remove()
        replica.files.set_writable(writable=False)
        replica.around.spool.forget(replica.source.id)
        for _ in range(dropped):
            replica.counts.fail(replica.refusal)

    def _check_errors(self) -> None:
        """Check whether the errors file is unchanged; if not, it is rewritten."""
        expected = self._errors or b""
        try:
            there = self.replica.files.read(own.ERRORS, len(expected))
        except OSError:
            there = b""
        if there != expected:
            self._errors = None

    def _write_errors(self) -> None:
        """Write the notices to the errors file."""
        text = self.replica.notices.text()
        if text == self._errors:
            return
        try:
            if text:
                self.replica.files.put_own(own.ERRORS, text)
            else:
                self.replica.files.drop(own.ERRORS)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("the problems cannot be recorded: %s", error.strerror)
        self._errors = text

    def _safely(self, what: Callable[[], None]) -> None:
        """Run *what*; log an exception and schedule a full scan to repair its effects."""
        try:
            what()
        except Exception:  # noqa: BLE001 - the thread must survive for later events
            _log.exception("something was not done in %s", self.slug)
            self.replica.scan_by(monotonic() + AFTER_FAULT)
