"""Rows of durable memory to records, and writes not yet committed."""

from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from types import SimpleNamespace
from typing import Final, cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Row, Transaction
from holdfast.ground.clock import EPOCH
from holdfast.ground.scope import Actor, ActorKind
from holdfast.memories.durable.records import CORE, By, Cause, DurableEntry, EntryScope, Gone, Op

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


# So a batch costs a few statements, and what is refused half-way has written nothing.

_WITHOUT_CONTENT: Final = frozenset({"move", "expire", "end", "forget", "redact"})
"""What is logged without content: it is let go, or stands in an earlier row."""

Spot = tuple[EntryLocation, str]
"""A place, and a key there."""


class Logged(Struct, frozen=True, kw_only=True):
    """One row of the log to be: what happened to which entry, and what brought it about.

    A *key_hash* stands in the place of a key, and of its category, that is forgotten. An entry
    that was evicted keeps its `expires_at`: until then its content can be brought back.
    """

    seq: int
    op: Op
    place: EntryLocation
    key: str | None
    category: str | None
    size_bytes: int
    content: str | None = None
    cause: Cause = msgspec.field(default_factory=dict[str, str])
    evicted_for: str | None = None
    key_hash: bytes | None = None
    expires_at: int | None = None

    @classmethod
    def of(
        cls,
        row: EntryRow,
        op: Op,
        *,
        seq: int,
        cause: Cause | None = None,
        evicted_for: str | None = None,
        key_hash: bytes | None = None,
    ) -> "Logged":
        """Return what is logged when *op* happens to *row*."""
        return cls(
            seq=seq,
            op=op,
            place=row.place,
            key=row.key if key_hash is None else None,
            category=row.category if key_hash is None else None,
            size_bytes=row.size_bytes,
            content=None if op in _WITHOUT_CONTENT or row.run_id else row.content,
            cause=cause or {},
            evicted_for=evicted_for,
            key_hash=key_hash,
            expires_at=row.expires_at if op == "evict" else None,
        )


class Pending:
    """Entries to be put and removed, and the rows of the log that tell of it."""

    def __init__(self, sql: SimpleNamespace, *, batched: bool) -> None:
        self._sql, self._batched = sql, batched
        self._puts: dict[Spot, EntryRow] = {}
        self._removed: set[Spot] = set()
        self._kept: set[Spot] = set()
        self._log: list[Logged] = []

    def found(self, row: EntryRow) -> None:
        """Know that *row* is in the database."""
        self._kept.add((row.place, row.key))

    def put(self, row: EntryRow) -> None:
        """Have *row* stand where it says."""
        spot = (row.place, row.key)
        self._puts[spot] = row
        self._removed.discard(spot)

    def remove(self, row: EntryRow) -> None:
        """Have nothing stand where *row* does."""
        spot = (row.place, row.key)
        self._puts.pop(spot, None)
        if spot in self._kept:
            self._removed.add(spot)

    def log(self, logged: Logged) -> None:
        """Have the log tell of it."""
        self._log.append(logged)

    def coldest_put(self, place: EntryLocation, *, pinned: bool) -> EntryRow | None:
        """Return the coldest of what is to be put into one tier of *place*, or None."""
        rows = [
            row
            for row in self._puts.values()
            if row.place == place and (row.category == CORE) == pinned
        ]
        return min(rows, key=lambda row: row.seq, default=None)

    def untouched(self, row: EntryRow) -> bool:
        """Tell whether *row*, which is in the database, is to stay as it is."""
        spot = (row.place, row.key)
        return spot not in self._puts and spot not in self._removed

    def write(self, tx: Transaction, *, by: str, at: int) -> None:
        """Write it all, for whom *by* tells of, at *at*; nothing is pending after that."""
        removed: list[dict[str, object]] = [
            {"owner": place.owner, "run": place.run, "key": key}
            for place, key in sorted(self._removed, key=_spot_order)
        ]
        puts = [_columns(row) for _, row in sorted(self._puts.items(), key=_order)]
        self._send(tx, "remove_entry", removed)
        self._send(tx, "put_entry", puts)
        self._send(tx, "log_change", [_told(each, by, at) for each in self._log])
        self._kept |= self._puts.keys()
        self._puts, self._removed, self._log = {}, set(), []

    def _send(self, tx: Transaction, name: str, rows: list[dict[str, object]]) -> None:
        statement = getattr(self._sql, name)
        if not rows:
            return
        if self._batched:
            tx.send(statement, rows=msgspec.json.encode(rows).decode())
        elif len(rows) == 1:
            tx.send(statement, **rows[0])
        else:
            tx.run_many(statement, rows)


def _spot_order(spot: Spot) -> tuple[str, str, str]:
    place, key = spot
    return place.owner, place.run, key


def _order(item: tuple[Spot, EntryRow]) -> tuple[str, str, str]:
    return _spot_order(item[0])


def _columns(row: EntryRow) -> dict[str, object]:
    return {
        "owner": row.agent,
        "run": row.run_id,
        "key": row.key,
        "id": row.id,
        "category": row.category,
        "pinned": int(row.category == CORE),
        "tags": row.tags,
        "size_bytes": row.size_bytes,
        "seq": row.seq,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "expires_at": row.expires_at,
        "created_by": row.created_by,
        "updated_by": row.updated_by,
        "content": row.content,
    }


def _told(logged: Logged, by: str, at: int) -> dict[str, object]:
    content = logged.content
    return {
        "seq": logged.seq,
        "owner": logged.place.owner,
        "run": logged.place.run,
        "at": at,
        "op": logged.op,
        "key": logged.key,
        "key_hash": logged.key_hash.hex() if logged.key_hash else None,
        "category": logged.category,
        "size_bytes": logged.size_bytes,
        "content": content,
        "content_sha256": None if content is None else sha256(content.encode()).hexdigest(),
        "actor": by,
        "evicted_for": logged.evicted_for,
        "expires_at": logged.expires_at,
        "cause": msgspec.json.encode(logged.cause).decode() if logged.cause else "{}",
    }
