"""One thing an agent remembers between runs, and what became of writing it."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from holdfast.ground.errors import HoldfastError
from holdfast.ground.scope import Actor

EntryScope = Literal["agent", "workspace", "run"]
Outcome = Literal["created", "replaced", "refreshed", "unchanged"]

CORE, DAILY, CONVERSATION, WORKSPACE = "core", "daily", "conversation", "workspace"
CATEGORIES = (CORE, DAILY, CONVERSATION, WORKSPACE)
"""The four with a lifetime of their own; any other is the caller's, windowed and kept."""
CUSTOM = "custom"
LABELS = (*CATEGORIES, CUSTOM)
"""What events and metrics call a category: a label of the caller's is told to nobody."""


def label_of(category: str) -> str:
    """Return what events and metrics call *category*."""
    return category if category in CATEGORIES else CUSTOM


class By(Struct, frozen=True, kw_only=True, gc=False):
    """Who wrote, and in which run."""

    actor: Actor
    run_id: str | None = None
    run_token: int | None = None

    def __str__(self) -> str:
        """Return it as a rendering shows it: `agent:agent_7 run:run_41`."""
        who = f"{self.actor.kind}:{self.actor.id}"
        return f"{who} run:{self.run_id}" if self.run_id else who


class DurableEntry(Struct, frozen=True, gc=False):
    """What is kept under one key.

    `seq` is the write that made it so, `size_bytes` its UTF-8 bytes of key, content, category
    and tags. `agent` is None on workspace entries; `run_id` is set on conversation entries
    alone; `expires_at` on daily ones. Times have whole milliseconds.
    """

    # A hydration makes a thousand: by position in half the time, and nothing in them can be part
    # of a cycle.
    id: str
    key: str
    content: str
    category: str
    tags: tuple[str, ...]
    scope: EntryScope
    workspace: str
    agent: str | None
    run_id: str | None
    seq: int
    size_bytes: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    created_by: By
    updated_by: By


class Gone(Struct, frozen=True, kw_only=True, gc=False):
    """An entry that a write or a sweep took away."""

    key: str
    category: str
    scope: EntryScope
    size_bytes: int
    seq: int


class StoredEntry(DurableEntry, frozen=True, kw_only=True, gc=False):
    """An entry as a write left it, with all that the write brought about."""

    outcome: Outcome
    evicted: tuple[Gone, ...] = ()
    expired: tuple[Gone, ...] = ()
    shadows: Literal["workspace", "agent"] | None = None
    notices: tuple[str, ...] = ()


class NewEntry(Struct, frozen=True, kw_only=True):
    """What `set_many` is given for one entry."""

    key: str
    content: str
    category: str
    tags: tuple[str, ...] = ()


class NotStored(Struct, frozen=True):
    """An item of `set_many` that was refused."""

    index: int
    key: str
    error: HoldfastError


class StoredMany(Struct, frozen=True, kw_only=True):
    """What became of many writes in one transaction."""

    stored: tuple[StoredEntry, ...]
    refused: tuple[NotStored, ...] = ()


class Swept(Struct, frozen=True, kw_only=True):
    """What a sweep removed: expired entries, runs that lapsed, and their conversation entries."""

    expired: tuple[Gone, ...]
    ended_runs: int
    removed: int


class AgentSummary(Struct, frozen=True, kw_only=True):
    """One agent of a workspace that has durable memory; `last_write` is None before the first."""

    agent: str
    entries: int
    size_bytes: int
    last_write: datetime | None
