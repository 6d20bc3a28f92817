"""What recalls from a large collection have read of it, kept for the next as long as it is true.

A turn is the same until rows were changed or went; the turns after it are known for good once
there are as many as are ever asked for; how many rows hold a term is true of one version alone.
When a row was last recalled is never kept: that changes with no version.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.memories.longterm.recall.index import Row

WINDOW: Final = 3
"""Turns before a turn that lend it weight."""
FOLLOWING: Final = 2
"""Turns after a turn that lend it weight."""
MOST_ROWS: Final = 200_000
MOST_TERMS: Final = 200_000
_ROW_BYTES: Final = 900
_BESIDE_BYTES: Final = 400
_TERM_BYTES: Final = 150

Beside = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of the turns before a turn and after it in its sitting, nearest first."""


class Speaking(Struct, frozen=True):
    """Who speaks in the collection, and as what."""

    speaker: str
    role: str


class Gathered:
    """Turns, what stands beside them, and counts of terms, as of one version of a collection."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.df: dict[str, int] = {}
        """In how many rows a term is."""
        self.speakers: list[Speaking] | None = None
        """Who speaks, as far as that was asked."""
        self._rows: dict[int, Row] = {}
        self._settled: dict[int, Beside] = {}
        self._open: dict[int, Beside] = {}

    def grown_to(self, version: int) -> "Gathered":
        """Return what of this still holds when rows were added, and none changed or went."""
        if version == self.version and len(self.df) < MOST_TERMS:
            return self
        found = Gathered(version)
        if len(self._rows) < MOST_ROWS:
            found._rows, found._settled = self._rows, self._settled
        return found

    @property
    def size_bytes(self) -> int:
        """About how much memory this takes."""
        beside = len(self._settled) + len(self._open)
        rows, terms = len(self._rows), len(self.df)
        return _ROW_BYTES * rows + _BESIDE_BYTES * beside + _TERM_BYTES * terms

    def __contains__(self, number: int) -> bool:
        """Tell whether the turn *number* is known."""
        return number << 2 in self._rows

    def keep(self, row: Row) -> None:
        """Keep a turn, as it is among all others."""
        self._rows[row.seq << 2] = row

    def turn(self, number: int, *, apart: bool, context: bool) -> Row:
        """Return the turn *number*, which is known, as it stands among those at hand."""
        key = number << 2 | apart << 1 | context
        found = self._rows.get(key)
        if found is None:
            whole = self._rows[number << 2]
            found = self._rows[key] = replace(whole, apart=apart, context=context)
        return found

    def beside(self, number: int) -> Beside | None:
        """Return what stands beside the turn *number*, if that is known."""
        return self._settled.get(number) or self._open.get(number)

    def stand(self, number: int, beside: Beside) -> None:
        """Keep what stands beside the turn *number*."""
        settled = len(beside[1]) == FOLLOWING
        (self._settled if settled else self._open)[number] = beside
