"""Watch a directory for file events of the system, some of which may be lost.

Events can be lost: if there are too many, while a watch on a directory is set up, and if a name is
not UTF-8, which stops the watcher. So it also reports when it may have missed some.
"""

import logging
from collections.abc import Callable, Generator
from pathlib import Path
from threading import Event
from typing import Protocol

import watchfiles
from msgspec import Struct
from watchfiles import Change
from watchfiles.main import FileChange

GATHER_MS, STEP_MS, ASK_MS = 60, 20, 100
"""Milliseconds to gather events, of a pause that ends that, and to wait for a first one."""

AGAIN_SECONDS = 0.25
POLL_MS = 300

_log = logging.getLogger(__name__)


class FileEvent(Struct, frozen=True):
    """One event: an absolute path, and whether the name appeared there."""

    path: str
    appeared: bool


class DirectoryWatcher(Protocol):
    """Events below a directory, from the watcher's creation until it is closed."""

    def next(self, stop: Event) -> list[FileEvent] | None:
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

    def next(self, stop: Event) -> list[FileEvent] | None:
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

    def _again(self, stop: Event) -> list[FileEvent] | None:
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
