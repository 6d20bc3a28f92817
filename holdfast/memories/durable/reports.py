"""What hydrating, explaining, ending a run, exporting and importing come to."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from holdfast.memories.durable.records import By, EntryScope

Verdict = Literal[
    "core",
    "window",
    "too_big",
    "over_budget",
    "shadowed",
    "expired",
    "evicted",
    "forgotten",
    "run_ended",
    "never_stored",
]


class Explanation(Struct, frozen=True, kw_only=True):
    """Why an entry is hydrated, or is not; `text` says it in one sentence for a person.

    `rank` counts from 1 in the order considered, `left_before` is the budget left at that point.
    What does not apply to an absent key is None; `at` and `by` tell of one that is gone.
    """

    key: str
    hydrated: bool
    reason: Verdict
    text: str
    budget: int
    category: str | None = None
    scope: EntryScope | None = None
    tier: Literal["pinned", "windowed"] | None = None
    rank: int | None = None
    size_bytes: int | None = None
    left_before: int | None = None
    at: datetime | None = None
    by: By | None = None


class RunEnded(Struct, frozen=True, kw_only=True):
    """A run that ended, and how many conversation entries went with it."""

    ended: bool
    removed: int


class RejectedFile(Struct, frozen=True, kw_only=True):
    """A file that was not imported: where, which code, and why."""

    path: str
    code: str
    reason: str


class ExportReport(Struct, frozen=True, kw_only=True):
    """What an export wrote, and what it removed of an earlier one, by path."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


class ImportReport(Struct, frozen=True, kw_only=True):
    """What an import did, or with `dry_run` would do, by key; `ignored` counts unknown fields."""

    created: tuple[str, ...]
    replaced: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    rejected: tuple[RejectedFile, ...]
    ignored: int
    dry_run: bool
