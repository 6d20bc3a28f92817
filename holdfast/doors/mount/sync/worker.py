"""The thread that syncs one store: it processes events of both sides one by one."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread
from time import monotonic

from holdfast.doors.mount.filesystem.store_dir import StoreStatus
from holdfast.doors.mount.storage.feed import StoreFeed
from holdfast.doors.mount.sync.files import ERRORS, FileType, LocalEntry, is_reserved, is_unfinished
from holdfast.doors.mount.sync.merge import believed
from holdfast.doors.mount.sync.reconcile import Reconciler, is_entered
from holdfast.doors.mount.sync.replica import Replica
from holdfast.doors.mount.sync.state import Agreed
from holdfast.ground.errors import HoldfastError

PATHS_AT_ONCE = 200
"""Limit of paths in one turn; each may hold a content in memory."""

AFTER_FAULT = 1.0
SHOWN = 20
"""Limit of notices of one store in the status."""

RECOVERED = "recovered"

_log = logging.getLogger(__name__)


class Scan:
    """Full scans of the directory of one store, for changes without events."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._new: list[str] | None = None
        """New files of the last scan, which may be missing files under other names."""
        self._published: set[str] = set()

    def run(self, *, quick: bool = False) -> None:
        """Schedule a check of all paths that differ from their base.

        *quick* also trusts the marks of files that changed within the last two seconds.
        """
        replica = self._replica
        replica.scan_at = monotonic() + replica.pace.scan
        if replica.files.make_root():
            self._restore("the directory itself was missing", [each.path for each in replica.state])
        present: set[str] = set()
        for entry in replica.files.walk(into=is_entered):
            if entry.type not in (FileType.DIRECTORY, FileType.ABSENT):
                present.add(entry.path)
                self._check(entry, quick=quick)
        bases = {each.path: each.agreed for each in replica.state}
        self._new = sorted(present - bases.keys())
        unequal = [
            path
            for path in (*replica.heads.paths(), *bases)
            if Agreed.of(replica.heads.at(path)) != bases.get(path)
        ]
        replica.soon(*(bases.keys() - present), *unequal, *replica.notices)
        for memory_id in set(replica.heads.unfit) - self._published:
            self._published.add(memory_id)
            replica.status.emit("refused", memory_id, hidden=True)
        replica.state.tidy()

    def _check(self, entry: LocalEntry, *, quick: bool) -> None:
        """Check *entry*, which is no directory, against its base by its mark."""
        replica, path = self._replica, entry.path
        if is_reserved(path):
            if path != ERRORS:
                self._recover(path)
            return
        known = replica.state.get(path)
        if known is not None and entry.mark is not None:
            same = entry.mark.resembles if quick else entry.mark.proves
            if same(known.mark):
                replica.missing.found(path)
                return
        replica.soon(path)

    def _recover(self, path: str) -> None:
        """Remove a temporary file of a killed process; keep unknown content as a file."""
        replica = self._replica
        sha256 = replica.files.look(path).sha256
        heads = (replica.heads.at(each) for each in replica.heads.paths())
        versions = {each.content_sha256 for each in heads if each}
        if is_unfinished(path) or sha256 in versions | {each.sha256 for each in replica.state}:
            replica.files.take(path, None)
            return
        stamp = replica.context.clock.now().strftime("%Y%m%dT%H%M%SZ")
        found = f"{path.rpartition('/')[0]}/{RECOVERED}.conflict-{stamp}"
        if replica.files.move(path, found):
            _log.warning("found a file that was cut off from its name, and kept it")
            replica.soon(found)

    def confirm(self) -> None:
        """Count files missing in two scans as deleted, unless too many are missing.

        This acts once after each scan, when the new files of the scan are processed: until then a
        missing file may turn out to be renamed.
        """
        replica, now = self._replica, monotonic()
        if self._new is None:
            return
        if any(path in replica.agenda and path not in replica.blocked for path in self._new):
            return
        self._new = None
        missing = {
            path: since
            for path, since in replica.missing.without_event().items()
            if replica.files.look(path).type in (FileType.ABSENT, FileType.DIRECTORY)
        }
        if not believed(len(missing), len(replica.state)):
            self._restore("too much of it is missing at once", list(missing))
            return
        sure = [path for path, since in missing.items() if now - since >= replica.pace.confirm]
        replica.missing.confirm(sure, now)
        replica.soon(*sure)
        waiting = [since for path, since in missing.items() if path not in sure]
        if waiting:
            replica.scan_by(min(waiting) + replica.pace.confirm)

    def _restore(self, why: str, paths: Sequence[str]) -> None:
        """Write the missing files *paths* to disk again."""
        replica = self._replica
        for path in paths:
            replica.state.forget(path)
            replica.missing.found(path)
        if paths:
            _log.error("%d files are written out again: %s", len(paths), why)
            replica.status.emit("refused", missing=len(paths), known=len(replica.heads))
        replica.soon(*paths)


class SyncWorker:
    """Sync the files and memories of one store, in both directions."""

    def __init__(self, slug: str, replica: Replica) -> None:
        self.slug, self.replica = slug, replica
        self._reconciler, self._scan = Reconciler(replica), Scan(replica)
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
        replica.status.archived_at = snapshot.archived_at
        replica.files.writable = replica.writable
        if replica.files.make_root():
            # The directory was removed while no sync ran: that must not delete memories.
            for known in replica.state:
                replica.state.forget(known.path)
        replica.files.set_writable(writable=replica.writable)
        replica.state.open()
        replica.heads.reset(snapshot)
        for path in (*replica.heads.paths(), *(each.path for each in replica.state)):
            while path := path.rpartition("/")[0]:
                replica.files.made.add(path)
        self._scan.run()
        now = monotonic()
        while paths := replica.agenda.take(now, PATHS_AT_ONCE):
            self._reconciler.reconcile(paths)
        self._write_errors()
        self.feed = StoreFeed(
            replica.source,
            seq=snapshot.seq,
            changed=lambda changes: self._put(lambda: replica.absorb(changes)),
            resynced=lambda snapshot: self._put(lambda: replica.absorb(snapshot)),
            disconnected=lambda error: self._put(lambda: self._disconnected(error)),
            reconnected=lambda: self._put(self._reconnected),
        )

    def start(self) -> None:
        """Start the thread; it first scans for local changes since `begin`."""
        if self.feed is not None:
            self.feed.start()
        self._put(lambda: self._scan.run(quick=True))
        self._thread.start()

    def touched(self, path: str, *, appeared: bool) -> None:
        """Queue an event of the file at *path*."""
        self._put(lambda: self._touched(path, appeared=appeared))

    def missed(self) -> None:
        """Queue a full scan: events may have been lost."""
        self._put(lambda: self.replica.scan_by(monotonic()))

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
        return len(self.replica.unsaved | self._reconciler.uploads.held)

    def errors(self) -> list[str]:
        """Return the first lines of the store's notices."""
        return [f"/{self.slug}: {line}" for line in self.replica.notices.lines(SHOWN)]

    def status(self) -> StoreStatus:
        """Return the status of the store."""
        replica = self.replica
        replica.status.cap = replica.heads.cap
        return replica.status.report(
            memories=len(replica.heads),
            unsaved=len(replica.unsaved),
            retrying=self._reconciler.uploads.retrying,
            hidden=len(replica.notices.hidden) + len(replica.heads.unfit),
        )

    def _put(self, call: Callable[[], None]) -> None:
        """Queue *call* for the worker."""
        with self._wake:
            self._queue.append(call)
            self._wake.notify()

    def _run(self) -> None:
        while True:
            queued, until = self._await()
            for call in queued:
                self._safely(call)
            if until is not None:
                self._safely(self._finish)
                return
            self._safely(self._turn)

    def _await(self) -> tuple[list[Callable[[], None]], float | None]:
        """Wait for work; return the queued calls, and the deadline if it is to end."""
        replica = self.replica
        with self._wake:
            while not self._queue and self._until is None:
                due = [replica.agenda.next, self._reconciler.uploads.next, replica.scan_at]
                pause = min(each for each in due if each is not None) - monotonic()
                if replica.status.deleted:
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
        if replica.status.deleted:
            self._clear()
            return
        if now >= replica.scan_at:
            self._scan.run()
        self._reconciler.uploads.resend(now)
        paths = replica.agenda.take(monotonic(), PATHS_AT_ONCE)
        try:
            self._reconciler.reconcile(paths)
        except BaseException:
            for path in paths:
                replica.agenda.setdefault(path, monotonic() + AFTER_FAULT)
            raise
        self._scan.confirm()
        self._write_errors()

    def _finish(self) -> None:
        """Save unsaved files, temporary ones too, and close the sync state."""
        replica, uploads, until = self.replica, self._reconciler.uploads, self._until or 0.0
        if replica.status.deleted:
            self._clear()
            return
        self._scan.run()
        due = float("inf")
        while True:
            while paths := replica.agenda.take(due, PATHS_AT_ONCE):
                self._reconciler.reconcile(paths, final=True)
                due = monotonic()
            times = [each for each in (replica.agenda.next, uploads.next) if each is not None]
            pause = min(times, default=until) - monotonic()
            if not times or monotonic() + max(0.0, pause) >= until:
                break
            with self._wake:
                self._wake.wait(max(0.0, pause))
                until = self._until or 0.0
            uploads.resend(monotonic())
            due = monotonic()
        self._write_errors()
        replica.state.close()

    def _touched(self, path: str, *, appeared: bool) -> None:
        if path == "/":
            self.replica.scan_by(monotonic() + self.replica.pace.quiet)
        elif path == ERRORS:
            self._check_errors()
        elif not is_reserved(path):
            self._reconciler.touch(path, appeared=appeared)

    def _disconnected(self, error: HoldfastError) -> None:
        replica = self.replica
        replica.failed(error)
        if not replica.status.deleted:
            replica.status.disconnected = error
            replica.status.emit("degraded", reason=getattr(error, "reason", type(error).__name__))

    def _reconnected(self) -> None:
        replica = self.replica
        replica.status.disconnected, replica.status.ended = None, False
        replica.update_modes()
        replica.soon(*replica.unsaved)

    def _clear(self) -> None:
        """Remove the files, state and spool of a deleted store."""
        replica = self.replica
        if self._cleared:
            return
        self._cleared = True
        dropped = len(replica.unsaved)
        for path in {*(each.path for each in replica.state), ERRORS}:
            with suppress(OSError):
                replica.files.take(path, None)
            replica.files.prune(path)
        for path in replica.heads.clear():
            replica.settled(path)
        replica.unsaved.clear()
        replica.state.remove()
        replica.files.set_writable(writable=False)
        replica.context.spool.forget(replica.source.id)
        for _ in range(dropped):
            replica.status.fail(replica.status.refusal)

    def _check_errors(self) -> None:
        """Check whether the errors file is unchanged; if not, it is rewritten."""
        expected = self._errors or b""
        try:
            found = self.replica.files.read(ERRORS, len(expected))
        except OSError:
            found = b""
        if found != expected:
            self._errors = None

    def _write_errors(self) -> None:
        """Write the notices to the errors file."""
        text = self.replica.notices.text()
        if text == self._errors:
            return
        try:
            if text:
                self.replica.files.put_errors(text)
            else:
                self.replica.files.take(ERRORS, None)
        except OSError as error:
            _log.warning("the problems cannot be recorded: %s", error.strerror)
        self._errors = text

    def _safely(self, call: Callable[[], None]) -> None:
        """Run *call*; log an exception and schedule a full scan to repair its effects."""
        try:
            call()
        except Exception:  # noqa: BLE001 - the thread must survive for later events
            _log.exception("something was not done in %s", self.slug)
            self.replica.scan_by(monotonic() + AFTER_FAULT)
