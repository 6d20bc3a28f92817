"""Synced directory: stores as plain files, synchronized while this runs.

Events of files can be lost: if there are too many, while a watch on a directory is set up, and if
a name is not UTF-8, which stops the watcher. So it also reports when it may have missed some.
"""

import logging
import os
from collections.abc import Callable, Generator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import Protocol

import watchfiles
from msgspec import Struct
from watchfiles import Change
from watchfiles.main import FileChange

from holdfast.doors.mount.filesystem.store_dir import MountStatus
from holdfast.doors.mount.process.registry import state_directory
from holdfast.doors.mount.process.setup import MountDependencies
from holdfast.doors.mount.sync.files import LocalDirectory
from holdfast.doors.mount.sync.replica import Pace, Replica
from holdfast.doors.mount.sync.state import (
    Header,
    State,
    check_directory,
    rename_directories,
    state_file,
)
from holdfast.doors.mount.sync.worker import SyncWorker
from holdfast.ground.errors import InvalidInput

_log = logging.getLogger(__name__)

GATHER_MS, STEP_MS, ASK_MS = 60, 20, 100
"""Milliseconds to gather events, of a pause that ends that, and to wait for a first one."""

AGAIN_SECONDS = 0.25
POLL_MS = 300


class FileEvent(Struct, frozen=True):
    """One event: an absolute path, and whether the name appeared there."""

    path: str
    appeared: bool


class DirectoryWatcher(Protocol):
    """Events below a directory, from the watcher's creation until it is closed."""

    def next(self, stop: Flag) -> list[FileEvent] | None:
        """Return new events, soon, perhaps none; None if events may have been lost."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


Watch = Callable[[Path], DirectoryWatcher]


class SystemWatcher:
    """Watcher on the system's events; it polls the directory if there are none."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._begin()

    def next(self, stop: Flag) -> list[FileEvent] | None:
        """Return new events, soon, perhaps none; None if events may have been lost."""
        if self._batches is None or _identity(self._directory) != self._watched:
            return self._again(stop)
        first, self._first = self._first, None
        try:
            changes = next(self._batches) if first is None else first
        except (RuntimeError, OSError) as error:
            _log.info("events were missed: %s", type(error).__name__)
            self.close()
            return None
        return [FileEvent(path, change is Change.added) for change, path in changes]

    def close(self) -> None:
        """Stop watching."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _begin(self) -> None:
        """Start to watch the directory; events count from when this returns."""
        self._watched = _identity(self._directory)
        self._batches: Batches | None = None
        self._first: set[FileChange] | None = None
        try:
            batches = _batches(self._directory, poll=False)
            self._first = next(batches)
        except OSError as error:
            if not self._directory.is_dir():
                raise
            # The system limits the number of watches of a user.
            _log.warning("%s is polled, as it cannot be watched: %s", self._directory, error)
            batches = _batches(self._directory, poll=True)
            self._first = next(batches)
        self._batches = batches

    def _again(self, stop: Flag) -> list[FileEvent] | None:
        """Watch the directory again; earlier events were lost."""
        self.close()
        if stop.wait(AGAIN_SECONDS):
            return []
        try:
            self._begin()
        except (RuntimeError, OSError):
            return []
        return None


Batches = Generator[set[FileChange], None, None]


def _batches(directory: Path, *, poll: bool) -> Batches:
    return watchfiles.watch(
        directory,
        watch_filter=None,
        debounce=GATHER_MS,
        step=STEP_MS,
        rust_timeout=ASK_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        force_polling=poll,
        poll_delay_ms=POLL_MS,
        ignore_permission_denied=True,
    )


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        found = directory.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


PACE = Pace()
MARGIN = 1.0
"""Seconds that the last action may take beyond the time to end."""

_NAME = 32
_ROOT_MODE = 0o555


class SyncedStatus(MountStatus, frozen=True, kw_only=True):
    """Status of a synced directory; `errors` are the first lines of its notices."""

    errors: tuple[str, ...]


class SyncedDirectory:
    """The stores of *assembled* as files below *directory*, an absolute real path.

    The sync state is stored below *state*, so that the next run on this directory continues from
    it.
    """

    def __init__(
        self,
        assembled: MountDependencies,
        directory: Path,
        *,
        state: Path | None = None,
        pace: Pace = PACE,
        watch: Watch = SystemWatcher,
    ) -> None:
        self._directory, self._watch, self._pace = directory, watch, pace
        self._folder = folder_of(directory, state)
        self._sources = assembled.sources
        self._context = assembled.context
        self._workers: dict[str, SyncWorker] = {}
        self._watcher: DirectoryWatcher | None = None
        self._thread: Thread | None = None
        self._stop = Flag()
        self._mode: int | None = None

    def start(self) -> None:
        """Write all heads, save all changes and start to follow; return once in sync.

        Raise InvalidInput if the directory has unknown files, and errors of the stores.
        """
        states = {
            slug: State(state_file(self._folder, source.id), Header(store_id=source.id, slug=slug))
            for slug, source, _ in self._sources
        }
        check_directory(self._directory, states, known=self._folder.is_dir())
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._mode = self._directory.stat().st_mode & 0o7777 | 0o200
        self._directory.chmod(self._mode)
        rename_directories(self._directory, states)
        for slug, source, access in self._sources:
            files, context = LocalDirectory(self._directory / slug), self._context
            replica = Replica(source, access, files, states[slug], context=context, pace=self._pace)
            self._workers[slug] = SyncWorker(slug, replica)
        try:
            self._begin()
        except BaseException:
            self.stop(0.0)
            raise
        self._emit("started")

    def _begin(self) -> None:
        for worker in self._workers.values():
            try:
                worker.begin()
            except NotADirectoryError:
                reason = f"holds {worker.slug!r}, which is no directory"
                raise InvalidInput("DIR", reason, given=self._directory) from None
        self._directory.chmod(_ROOT_MODE)
        self._watcher = self._watch(self._directory)
        for worker in self._workers.values():
            worker.start()
        self._thread = Thread(target=self._follow, name="holdfast-watch", daemon=True)
        self._thread.start()

    def stop(self, seconds: float) -> int:
        """Save unsaved files within *seconds*; return how many remain unsaved on disk.

        Another thread may call it again meanwhile, with fewer seconds.
        """
        again = self._stop.is_set()
        self._stop.set()
        self._context.stopping = True
        until = monotonic() + seconds
        for worker in self._workers.values():
            worker.end(until)
        unsaved = sum(
            worker.join(until + MARGIN - monotonic()) for worker in self._workers.values()
        )
        if self._thread is not None:
            self._thread.join(MARGIN)
        if self._mode is not None:
            with suppress(OSError):
                self._directory.chmod(self._mode)
        if not again:
            self._emit("stopped", unsaved=unsaved)
        return unsaved

    def status(self) -> SyncedStatus:
        """Return the status of the stores, as for a FUSE mount, with notices."""
        replicas = [worker.replica for worker in self._workers.values()]
        if self._context.stopping:
            state = "stopping"
        elif any(replica.state.failed for replica in replicas):
            state = "unsafe"
        else:
            state = "degraded" if any(replica.status.disconnected for replica in replicas) else "ok"
        feeds = [worker.feed for worker in self._workers.values() if worker.feed is not None]
        return SyncedStatus(
            state=state,
            feed_lag_seconds=round(max((feed.lag_seconds for feed in feeds), default=0.0), 3),
            stores=tuple(worker.status() for worker in self._workers.values()),
            errors=tuple(line for worker in self._workers.values() for line in worker.errors()),
        )

    def _follow(self) -> None:
        """Pass file events to the workers until the stop."""
        watcher = self._watcher
        if watcher is None:
            return
        prefix = f"{self._directory}{os.sep}"
        while not self._stop.is_set():
            events = watcher.next(self._stop)
            if events is None:
                for worker in self._workers.values():
                    worker.missed()
            for each in events or ():
                slug, _, path = each.path.removeprefix(prefix).partition(os.sep)
                if slug in self._workers:
                    self._workers[slug].touched(f"/{path}", appeared=each.appeared)
        watcher.close()

    def _emit(self, what: str, **data: int) -> None:
        workspace = self._sources[0][1].workspace
        self._context.emit(what, workspace, stores=len(self._workers), **data)


def folder_of(directory: Path, state: Path | None = None) -> Path:
    """Return the folder of the sync state of *directory*."""
    root = state_directory() / "sync" if state is None else state
    return root / sha256(os.fsencode(directory)).hexdigest()[:_NAME]
