"""What happens in a directory, as the system tells it: soon, but not surely.

Events can be lost: when there are too many, while a directory is being taken into view, and when a
name is no UTF-8, with which the watcher cannot go on. So it also says when it may have missed some.
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
"""How long events are gathered, how long a pause ends that, and how long none are waited for."""

AGAIN_SECONDS = 0.25
POLL_MS = 300

_log = logging.getLogger(__name__)


class Happened(Struct, frozen=True):
    """One event: an absolute path, and whether the name appeared there."""

    path: str
    appeared: bool


class DirectoryWatcher(Protocol):
    """Tells what happens below a directory from when it is made until it is closed."""

    def next(self, stop: Event) -> list[Happened] | None:
        """Return what happened since, soon, perhaps nothing; None when more may have happened."""
        ...

    def close(self) -> None:
        """Watch no more."""
        ...


Watch = Callable[[Path], DirectoryWatcher]


class SystemWatcher:
    """The system's own events; where it gives none, the directory is polled."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._begin()

    def next(self, stop: Event) -> list[Happened] | None:
        """Return what happened since, soon, perhaps nothing; None when more may have happened."""
        if self._batches is None or _identity(self._directory) != self._watched:
            return self._again(stop)
        first, self._first = self._first, None
        try:
            told = next(self._batches) if first is None else first
        except (RuntimeError, OSError) as error:
            _log.info("events were missed: %s", type(error).__name__)
            self.close()
            return None
        return [Happened(path, change is Change.added) for change, path in told]

    def close(self) -> None:
        """Watch no more."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _begin(self) -> None:
        """Take the directory into view; it is when this returns."""
        self._watched = _identity(self._directory)
        self._batches: Batches | None = None
        self._first: set[FileChange] | None = None
        try:
            batches = _batches(self._directory, poll=False)
            self._first = next(batches)
        except OSError as error:
            if not self._directory.is_dir():
                raise
            # A user has only as many watches as the machine gives.
            _log.warning("%s is polled, as it cannot be watched: %s", self._directory, error)
            batches = _batches(self._directory, poll=True)
            self._first = next(batches)
        self._batches = batches

    def _again(self, stop: Event) -> list[Happened] | None:
        """Take the directory into view again; what happened until then was missed."""
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
