"""Rows as the statements give them, and the records made of them."""

from datetime import timedelta
from functools import lru_cache
from typing import Final, cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Row
from holdfast.ground.clock import EPOCH
from holdfast.ground.scope import Actor, ActorKind
from holdfast.memories.durable.records import By, DurableEntry, EntryScope, Gone

SHARED: Final = ""
"""The agent of workspace entries."""
NO_RUN: Final = ""
"""The run of all but conversation entries."""
NO_TAGS: Final = "[]"
"""No tags, as they are stored."""

_tags = msgspec.json.Decoder(tuple[str, ...])
_by = msgspec.json.Decoder(tuple[str, str, str | None, int | None])


class EntryLocation(Struct, frozen=True):
    """Where an entry is: whose, and of which run; the nearest that a caller sees stands first."""

    owner: str
    run: str = NO_RUN

    @property
    def scope(self) -> EntryScope:
        """Whose it is."""
        return scope_of(self.owner, self.run)

    @property
    def distance(self) -> int:
        """How far it is: 0 the run's, 1 the agent's, 2 the workspace's."""
        if self.run:
            return 0
        return 1 if self.owner else 2


class EntryRow(Struct, frozen=True):
    """An entry as it is stored; `agent` is "" on workspace entries, `run_id` on all but a run's.

    Its fields stand in the order in which every statement gives the columns of an entry.
    """

    agent: str
    run_id: str
    key: str
    id: str
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

    @property
    def place(self) -> EntryLocation:
        """Where it is."""
        return EntryLocation(self.agent, self.run_id)

    @property
    def scope(self) -> EntryScope:
        """Whose it is."""
        return scope_of(self.agent, self.run_id)

    def record(self, workspace: str) -> DurableEntry:
        """Return the entry that this row tells of."""
        return entry_of(workspace, msgspec.structs.astuple(self))

    def gone(self) -> Gone:
        """Return what a caller is told of it when a write took it away."""
        return Gone(
            key=self.key,
            category=self.category,
            scope=self.scope,
            size_bytes=self.size_bytes,
            seq=self.seq,
        )


AGENT, KEY, CONTENT, TAGS, SEQ, EXPIRES_AT = 0, 2, 4, 6, 8, 11
"""Where the row of an entry has them."""


def entry_of(workspace: str, row: Row) -> DurableEntry:
    """Return the entry of *workspace* that *row* tells of."""
    (
        agent,
        run_id,
        key,
        id,
        content,
        category,
        tags,
        size_bytes,
        seq,
        created_at,
        updated_at,
        expires_at,
        created_by,
        updated_by,
    ) = row
    # Most of what a read costs is spent here, so nothing is made twice, and no call is made for
    # what an expression says.
    born, by = EPOCH + timedelta(0, 0, created_at), by_of(created_by)
    return DurableEntry(
        id,
        key,
        content,
        category,
        () if tags == NO_TAGS else tags_of(tags),
        "run" if run_id else "agent" if agent else "workspace",
        workspace,
        agent or None,
        run_id or None,
        seq,
        size_bytes,
        born,
        born if updated_at == created_at else EPOCH + timedelta(0, 0, updated_at),
        None if expires_at is None else EPOCH + timedelta(0, 0, expires_at),
        by,
        by if updated_by == created_by else by_of(updated_by),
    )


def scope_of(agent: str, run_id: str) -> EntryScope:
    """Return whose an entry is, by the columns that say it."""
    if run_id:
        return "run"
    return "agent" if agent else "workspace"


def tags_text(tags: tuple[str, ...]) -> str:
    """Return *tags* as they are stored."""
    return msgspec.json.encode(tags).decode() if tags else NO_TAGS


def tags_of(text: str) -> tuple[str, ...]:
    """Return the tags that *text*, made by `tags_text`, holds."""
    return () if text == NO_TAGS else _tags.decode(text)


@lru_cache(maxsize=4096)
def by_text(by: By) -> str:
    """Return *by* as it is stored: kind, id, run and token."""
    told = (by.actor.kind, by.actor.id, by.run_id, by.run_token)
    return msgspec.json.encode(told).decode()


@lru_cache(maxsize=4096)
def by_of(text: str) -> By:
    """Return who *text*, made by `by_text`, tells of."""
    kind, id, run_id, token = _by.decode(text)
    return By(actor=Actor(cast("ActorKind", kind), id), run_id=run_id, run_token=token)
