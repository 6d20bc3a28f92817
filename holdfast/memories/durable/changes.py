"""The change log: one row for each mutation of an entry."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from holdfast.memories.durable.records import By, EntryScope

Op = Literal[
    "create",
    "replace",
    "refresh",
    "move",
    "evict",
    "expire",
    "forget",
    "end",
    "redact",
    "restore",
]
Cause = dict[str, str]
"""What brought a change about, such as `{"evicted_for": key}` or `{"source": "sweep"}`."""


class EntryChange(Struct, frozen=True, kw_only=True):
    """One mutation: `key` is None once it was forgotten, `content` once it was let go."""

    seq: int
    at: datetime
    op: Op
    key: str | None
    category: str | None
    scope: EntryScope
    size_bytes: int
    content: str | None
    content_sha256: str | None
    actor: By
    cause: Cause
    redacted_at: datetime | None

    @property
    def run_id(self) -> str | None:
        """The run it was made in, if it was made in one."""
        return self.actor.run_id

    @property
    def run_token(self) -> int | None:
        """The token of that run."""
        return self.actor.run_token
