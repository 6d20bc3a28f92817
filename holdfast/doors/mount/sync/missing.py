"""Files that are gone, and when that is believed to be a deletion."""

from collections.abc import Iterable

from msgspec import Struct


class _Gone(Struct):
    """A file that is not there: since when, and from when on it was deleted, if that is sure."""

    since: float
    due: float | None
    held: float


class Missing:
    """Known files that are not on disk, by path."""

    def __init__(self) -> None:
        self._gone: dict[str, _Gone] = {}
        self._told: set[str] = set()

    def __contains__(self, path: str) -> bool:
        return path in self._gone

    def __len__(self) -> int:
        return len(self._gone)

    def tell(self, paths: Iterable[str]) -> None:
        """Take in that something happened at *paths*: what is gone there was seen to go."""
        self._told.update(paths)

    def told(self, path: str) -> bool:
        """Tell whether something happened at *path* since the file was there."""
        return path in self._told

    def note(self, path: str, now: float, wait: float) -> None:
        """Take in that the file is not there *now*; was it seen to go, it is due after *wait*."""
        gone = self._gone.setdefault(path, _Gone(now, None, 0.0))
        if path in self._told and gone.due is None:
            gone.due = now + wait

    def hold(self, path: str, now: float, until: float) -> None:
        """Believe in no deletion before *until*: the file may only have been put aside."""
        self._gone.setdefault(path, _Gone(now, None, 0.0)).held = until

    def since(self, path: str, now: float) -> float:
        """Return since when the file has been missing, which it is *now*."""
        return self._gone[path].since if path in self._gone else now

    def due(self, path: str) -> float | None:
        """Return when the file counts as deleted; None while nobody saw that it went."""
        gone = self._gone[path]
        return None if gone.due is None else max(gone.due, gone.held)

    def believe(self, paths: Iterable[str], now: float) -> None:
        """Take in that it is sure *now* that *paths* were deleted."""
        for path in paths:
            if path in self._gone:
                self._gone[path].due = now

    def found(self, path: str) -> None:
        """Take in that the file is there, or need not be."""
        self._gone.pop(path, None)
        self._told.discard(path)

    def unseen(self) -> dict[str, float]:
        """Return since when each has been missing whose deletion nobody saw."""
        return {path: gone.since for path, gone in self._gone.items() if gone.due is None}
