"""Rows as the statements give them, and the records made of them."""

from typing import Final, cast

import msgspec
from msgspec import Struct

from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.scope import Actor, ActorKind
from holdfast.memories.durable.entry import By, DurableEntry, EntryScope, Gone

ENTRY_FIELDS: Final = (
    "id",
    "agent",
    "run_id",
    "key",
    "content",
    "category",
    "tags",
    "size_bytes",
    "seq",
    "created_at",
    "updated_at",
    "expires_at",
    "created_by",
    "updated_by",
    "writes",
)
"""Columns of an entry that a row of it has."""

_tags = msgspec.json.Decoder(tuple[str, ...])
_by = msgspec.json.Decoder(tuple[str, str, str | None, int | None])


class EntryRow(Struct, frozen=True, kw_only=True):
    """An entry as it is stored; `agent` is "" on workspace entries, `run_id` on all but a run's."""

    id: str
    agent: str
    run_id: str
    key: str
    content: str
    category: str
    tags: str
    size_bytes: int
    seq: int
    created_at: int
    updated_at: int
    expires_at: int | None
    created_by: str
    updated_by: str
    writes: int

    @property
    def scope(self) -> EntryScope:
        """Whose it is."""
        return scope_of(self.agent, self.run_id)

    def record(self, workspace: str) -> DurableEntry:
        """Return the entry that this row tells of."""
        created_by = by_of(self.created_by)
        same = self.updated_by == self.created_by
        return DurableEntry(
            id=self.id,
            key=self.key,
            content=self.content,
            category=self.category,
            tags=_tags.decode(self.tags),
            scope=self.scope,
            workspace=workspace,
            agent=self.agent or None,
            run_id=self.run_id or None,
            seq=self.seq,
            size_bytes=self.size_bytes,
            created_at=from_microseconds(self.created_at),
            updated_at=from_microseconds(self.updated_at),
            expires_at=from_microseconds_or_none(self.expires_at),
            created_by=created_by,
            updated_by=created_by if same else by_of(self.updated_by),
        )

    def gone(self) -> Gone:
        """Return what a caller is told of it when a write took it away."""
        return Gone(
            key=self.key,
            category=self.category,
            scope=self.scope,
            size_bytes=self.size_bytes,
            seq=self.seq,
        )


def scope_of(agent: str, run_id: str) -> EntryScope:
    """Return whose an entry is, by the columns that say it."""
    if run_id:
        return "run"
    return "agent" if agent else "workspace"


def tags_text(tags: tuple[str, ...]) -> str:
    """Return *tags* as they are stored."""
    return msgspec.json.encode(tags).decode()


def by_text(by: By) -> str:
    """Return *by* as it is stored: kind, id, run and token."""
    told = (by.actor.kind, by.actor.id, by.run_id, by.run_token)
    return msgspec.json.encode(told).decode()


def by_of(text: str) -> By:
    """Return who *text*, made by `by_text`, tells of."""
    kind, id, run_id, token = _by.decode(text)
    return By(actor=Actor(cast("ActorKind", kind), id), run_id=run_id, run_token=token)
