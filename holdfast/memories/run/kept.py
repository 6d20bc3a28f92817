"""The entries of one run as they are kept: their order, their size, and how much there may be.

Nothing here locks, tells or reads a clock: whoever calls holds the memory's lock.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import UNSET, UnsetType

from holdfast.ground.errors import LimitExceeded, PreconditionFailed
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.filters import EntryFilter
from holdfast.memories.run.keys import KINDS
from holdfast.memories.run.limits import RunLimits

ABSENT: Final = RunEntry(
    key="", kind="shared", value_json=b"", created_at=0, updated_at=0, version=0
)
"""What is under a key that nothing is under: version 0 of it."""


class Kept:
    """The entries by key, in the order of their first write, and the keys by their last."""

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self.entries: dict[str, RunEntry] = {}
        self.size_bytes = 0
        # The number of each key's last write, the latest last, unless a clock went back.
        self._written: dict[str, int] = {}
        self._writes = self._latest = 0
        self._in_order = True

    def put(  # noqa: PLR0917 - a call by name costs a tenth of a write
        self,
        key: str,
        value_json: bytes,
        source: str | None,
        title: str | UnsetType | None,
        description: str | UnsetType | None,
        created_at: int | None,
        failed: bool,
        expected_version: int | None,
        now: int,
    ) -> tuple[RunEntry, RunEntry]:
        """Put an entry under *key*; return it, and what was there, which may be `ABSENT`."""
        limits, size = self.limits, len(value_json)
        before = self.entries.get(key, ABSENT)
        if expected_version is not None and expected_version != before.version:
            current = before if before.version else None
            raise PreconditionFailed(key, expected=expected_version, current=current)
        total = self.size_bytes + size - len(before.value_json)
        count = len(self.entries) + (not before.version)
        if size > limits.value_bytes or total > limits.total_bytes or count > limits.entries:
            raise self._full(key, size, count, total)
        if created_at is None:
            created_at = before.created_at if before.version else now
        entry = RunEntry(
            key=key,
            kind=before.kind if before.version else KINDS[key[: key.index(":")]],
            value_json=value_json,
            source=source,
            title=before.title if title is UNSET else title,
            description=before.description if description is UNSET else description,
            created_at=created_at,
            updated_at=now,
            version=before.version + 1,
            failed=failed,
        )
        self.entries[key], self.size_bytes = entry, total
        self._stand_last(key, now)
        return entry, before

    def put_back(self, given: Iterable[RunEntry], *, replace: bool) -> int:
        """Put *given* as they are, all or none; return how many others went."""
        left = {} if replace else dict(self.entries)
        left.update((each.key, each) for each in given)
        total = sum(len(each.value_json) for each in left.values())
        largest = max(left.values(), key=lambda each: len(each.value_json), default=ABSENT)
        size = len(largest.value_json)
        limits = self.limits
        if size > limits.value_bytes or total > limits.total_bytes or len(left) > limits.entries:
            raise self._full(largest.key, size, len(left), total)
        gone = len(self.entries.keys() - left.keys())
        self.entries, self.size_bytes = left, total
        if replace:
            self._written = {}
        for each in given:
            self._stand_last(each.key, each.updated_at)
        return gone

    def remove(self, key: str) -> bool:
        """Remove what is under *key*; tell whether there was anything."""
        found = self.entries.pop(key, None)
        if found is None:
            return False
        del self._written[key]
        self.size_bytes -= len(found.value_json)
        return True

    def remove_all(self, among: EntryFilter) -> int:
        """Remove what *among* means; return how many there were."""
        gone = among.chosen(self.entries.values())
        for each in gone:
            self.remove(each.key)
        return len(gone)

    def by_last_write(self) -> tuple[list[RunEntry], list[int]]:
        """Return all entries, the one written last at the end, and the number of each write."""
        entries = self.entries
        if not self._in_order:
            by_time = sorted(
                (entries[key].updated_at, number, key) for key, number in self._written.items()
            )
            self._written = {key: number for _, number, key in by_time}
            self._latest = by_time[-1][0] if by_time else 0
            self._in_order = True
        return [entries[key] for key in self._written], [*self._written.values()]

    def _stand_last(self, key: str, at: int) -> None:
        """Note that *key* was written after all others, at *at*."""
        self._writes += 1
        self._written.pop(key, None)
        self._written[key] = self._writes
        if at < self._latest:
            self._in_order = False
        else:
            self._latest = at

    def _full(self, key: str, size: int, count: int, total: int) -> LimitExceeded:
        """Return the error of the first limit that is passed."""
        for limit, actual in (("value_bytes", size), ("entries", count), ("total_bytes", total)):
            if actual > (allowed := getattr(self.limits, limit)):
                break
        else:  # pragma: no cover - whoever asks has compared them already
            raise AssertionError(limit)
        return over(limit, allowed, actual, key if limit == "value_bytes" else "")


def over(limit: str, allowed: int, actual: int, key: str = "") -> LimitExceeded:
    """Return the error that *actual* passes *limit*, and what to do about it."""
    return LimitExceeded(
        limit,
        allowed=allowed,
        actual=actual,
        what=key,
        next=f"Store a reference or a summary instead, or raise RunLimits({limit}=…).",
    )
