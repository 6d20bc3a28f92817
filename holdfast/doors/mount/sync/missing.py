"""Missing files, and when each counts as deleted."""

from collections.abc import Iterable

from msgspec import Struct


class _Gone(Struct):
    """A missing file: since when, and from when on it counts as deleted, if known.

    `held` is a time before which it does not.
    """

    since: float
    due: float | None
    held: float


class Missing:
    """Known files that are not on disk, by path."""

    def __init__(self) -> None:
        self._gone: dict[str, _Gone] = {}
        self._notified: set[str] = set()

    def __contains__(self, path: str) -> bool:
        return path in self._gone

    def __len__(self) -> int:
        return len(self._gone)

    def tell(self, paths: Iterable[str]) -> None:
        """Record events at *paths*: a file missing there was deleted or renamed."""
        self._notified.update(paths)

    def told(self, path: str) -> bool:
        """Check whether *path* had an event since the file was last found."""
        return path in self._notified

    def note(self, path: str, now: float, wait: float) -> None:
        """Record that the file is missing *now*; after an event it is due after *wait*."""
        gone = self._gone.setdefault(path, _Gone(now, None, 0.0))
        if path in self._notified and gone.due is None:
            gone.due = now + wait

    def hold(self, path: str, now: float, until: float) -> None:
        """Do not count it as deleted before *until*: it may have become a backup."""
        self._gone.setdefault(path, _Gone(now, None, 0.0)).held = until

    def since(self, path: str, now: float) -> float:
        """Return since when the file has been missing; *now* if not recorded."""
        return self._gone[path].since if path in self._gone else now

    def due(self, path: str) -> float | None:
        """Return when the file counts as deleted; None without an event."""
        gone = self._gone[path]
        return None if gone.due is None else max(gone.due, gone.held)

    def believe(self, paths: Iterable[str], now: float) -> None:
        """Record that *paths* count as deleted from *now* on."""
        for path in paths:
            if path in self._gone:
                self._gone[path].due = now

    def found(self, path: str) -> None:
        """Record that the file exists, or need not exist."""
        self._gone.pop(path, None)
        self._notified.discard(path)

    def unseen(self) -> dict[str, float]:
        """Return since when each file without an event has been missing."""
        return {path: gone.since for path, gone in self._gone.items() if gone.due is None}
