"""Rows of durable memory to records, and writes not yet committed."""

from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from types import SimpleNamespace
from typing import Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, astuple

from holdfast.engines.base import Row, Transaction
from holdfast.ground.clock import EPOCH
from holdfast.ground.scope import Actor, ActorKind
from holdfast.ground.trust import HeldFor, Provenance, Tier
from holdfast.memories.durable.records import CORE, By, Cause, DurableEntry, EntryScope, Gone, Op
from holdfast.memories.durable.validation import CheckedEntry

SHARED: Final = ""
"""Agent column of workspace entries."""
NO_RUN: Final = ""
"""Run column of all entries except conversation entries."""
NO_TAGS: Final = "[]"
"""Stored form of no tags."""

_tags = msgspec.json.Decoder(tuple[str, ...])
_by = msgspec.json.Decoder(tuple[str, str, str | None, int | None])


class EntryLocation(Struct, frozen=True):
    """Location of an entry: owner and run."""

    owner: str
    run: str = NO_RUN

    @property
    def scope(self) -> EntryScope:
        """Whose it is."""
        return scope_of(self.owner, self.run)

    @property
    def distance(self) -> int:
        """Rank of the scope, nearest first: 0 the run's, 1 the agent's, 2 the workspace's."""
        if self.run:
            return 0
        return 1 if self.owner else 2


class RowStamp(Struct, frozen=True, kw_only=True):
    """What a write adds to the fields of an entry in its row."""

    id: str
    seq: int
    created_at: int
    updated_at: int
    expires_at: int | None
    created_by: str
    updated_by: str
    tier: Tier = "said"
    origin_ref: str | None = None
    held: HeldFor | None = None


class EntryRow(Struct, frozen=True):
    """A row of an entry, with the columns in the order of every statement.

    `agent` is "" on workspace entries, `run_id` is "" on all but conversation entries.
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
    tier: Tier = "said"
    origin_ref: str | None = None
    held: HeldFor | None = None

    @classmethod
    def of(cls, place: EntryLocation, entry: CheckedEntry, stamp: RowStamp) -> "EntryRow":
        """Return the row of *entry* at *place*."""
        return cls(
            agent=place.owner,
            run_id=place.run,
            key=entry.key,
            id=stamp.id,
            content=entry.content,
            category=entry.category,
            tags=tags_text(entry.tags),
            size_bytes=entry.size_bytes,
            seq=stamp.seq,
            created_at=stamp.created_at,
            updated_at=stamp.updated_at,
            expires_at=stamp.expires_at,
            created_by=stamp.created_by,
            updated_by=stamp.updated_by,
            tier=stamp.tier,
            origin_ref=stamp.origin_ref,
            held=stamp.held,
        )

    def holds(self, entry: CheckedEntry) -> bool:
        """Return whether the row has the same fields as *entry*."""
        given = (entry.content, entry.category, tags_text(entry.tags))
        return (self.content, self.category, self.tags) == given

    @property
    def provenance(self) -> Provenance:
        """Where the content came from."""
        return Provenance(self.tier, self.origin_ref, self.held)

    @property
    def place(self) -> EntryLocation:
        """The location of the entry."""
        return EntryLocation(self.agent, self.run_id)

    @property
    def scope(self) -> EntryScope:
        """Whose it is."""
        return scope_of(self.agent, self.run_id)

    def record(self, workspace: str) -> DurableEntry:
        """Return the row as a `DurableEntry`."""
        return entry_of(workspace, astuple(self))

    def gone(self) -> Gone:
        """Return the report of its deletion."""
        return Gone(
            key=self.key,
            category=self.category,
            scope=self.scope,
            size_bytes=self.size_bytes,
            seq=self.seq,
        )


AGENT, KEY, CONTENT, TAGS, SEQ, EXPIRES_AT = 0, 2, 4, 6, 8, 11
"""Indices of columns in the row of an entry."""


def entry_of(workspace: str, row: Row) -> DurableEntry:
    """Return *row* as an entry of *workspace*."""
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
        tier,
        origin_ref,
        held,
    ) = row
    # A read spends most of its time here, so values are shared and calls avoided.
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
        tier,
        origin_ref,
        held,
    )


def scope_of(agent: str, run_id: str) -> EntryScope:
    """Return the scope of an entry by its agent and run columns."""
    if run_id:
        return "run"
    return "agent" if agent else "workspace"


def tags_text(tags: tuple[str, ...]) -> str:
    """Return the stored form of *tags*."""
    return msgspec.json.encode(tags).decode() if tags else NO_TAGS


def tags_of(text: str) -> tuple[str, ...]:
    """Return the tags of *text*, which `tags_text` produced."""
    return () if text == NO_TAGS else _tags.decode(text)


class WrittenEntry(Struct, frozen=True, array_like=True):
    """What the log keeps of a written entry beside its content, to show it as it was."""

    id: str
    tags: tuple[str, ...]
    created_at: int
    updated_at: int
    expires_at: int | None
    tier: Tier = "said"
    origin_ref: str | None = None
    held: HeldFor | None = None

    @property
    def provenance(self) -> Provenance:
        """Where the content came from."""
        return Provenance(self.tier, self.origin_ref, self.held)


_written = msgspec.json.Decoder(WrittenEntry)


def written_text(row: EntryRow) -> str:
    """Return the stored form of the `WrittenEntry` of *row*."""
    written = WrittenEntry(
        row.id,
        tags_of(row.tags),
        row.created_at,
        row.updated_at,
        row.expires_at,
        row.tier,
        row.origin_ref,
        row.held,
    )
    return msgspec.json.encode(written).decode()


def written_of(text: str) -> WrittenEntry:
    """Return the value of *text*, which `written_text` produced."""
    return _written.decode(text)


@lru_cache(maxsize=4096)
def by_text(by: By) -> str:
    """Return the stored form of *by*: kind, id, run and token."""
    fields = (by.actor.kind, by.actor.id, by.run_id, by.run_token)
    return msgspec.json.encode(fields).decode()


@lru_cache(maxsize=4096)
def by_of(text: str) -> By:
    """Return the author of *text*, which `by_text` produced."""
    kind, id, run_id, token = _by.decode(text)
    return By(actor=Actor(cast("ActorKind", kind), id), run_id=run_id, run_token=token)


# Pending writes: a batch costs a few statements, and a write that is refused half-way writes
# nothing.

_WITHOUT_CONTENT: Final = frozenset({"move", "expire", "end", "forget", "redact"})
"""Operations logged without content: it is erased, or in an earlier row of the log."""

Spot = tuple[EntryLocation, str]
"""A location and a key."""


class Logged(Struct, frozen=True, kw_only=True):
    """One pending row of the log: an operation on an entry and its cause.

    A *key_hash* replaces the key and the category of a forgotten entry. An evicted entry keeps its
    `expires_at`: until then its content can be restored. `entry` is what `written_text` returns for
    an entry that was written or evicted.
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
    entry: str | None = None

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
        """Return the row of the log for *op* on *row*."""
        content = None if op in _WITHOUT_CONTENT or row.run_id else row.content
        return cls(
            seq=seq,
            op=op,
            place=row.place,
            key=row.key if key_hash is None else None,
            category=row.category if key_hash is None else None,
            size_bytes=row.size_bytes,
            content=content,
            cause=cause or {},
            evicted_for=evicted_for,
            key_hash=key_hash,
            expires_at=row.expires_at if op == "evict" else None,
            entry=None if content is None else written_text(row),
        )


class Pending:
    """Pending writes: entries to put and to remove, and rows of the log."""

    def __init__(self, sql: SimpleNamespace, *, batched: bool) -> None:
        self._sql, self._batched = sql, batched
        self._puts: dict[Spot, EntryRow] = {}
        self._removed: set[Spot] = set()
        self._kept: set[Spot] = set()
        self._log: list[Logged] = []

    def found(self, row: EntryRow) -> None:
        """Record that *row* is in the database."""
        self._kept.add((row.place, row.key))

    def put(self, row: EntryRow) -> None:
        """Schedule *row* to be written to its location."""
        spot = (row.place, row.key)
        self._puts[spot] = row
        self._removed.discard(spot)

    def remove(self, row: EntryRow) -> None:
        """Schedule the row at the location of *row* to be deleted."""
        spot = (row.place, row.key)
        self._puts.pop(spot, None)
        if spot in self._kept:
            self._removed.add(spot)

    def log(self, logged: Logged) -> None:
        """Schedule a row of the log."""
        self._log.append(logged)

    def coldest_put(self, place: EntryLocation, *, pinned: bool) -> EntryRow | None:
        """Return the coldest pending entry of one tier of *place*, or None."""
        rows = [
            row
            for row in self._puts.values()
            if row.place == place and (row.category == CORE) == pinned
        ]
        return min(rows, key=lambda row: row.seq, default=None)

    def untouched(self, row: EntryRow) -> bool:
        """Return whether no pending write changes *row*, which is in the database."""
        spot = (row.place, row.key)
        return spot not in self._puts and spot not in self._removed

    def write(self, tx: Transaction, *, by: str, at: int) -> None:
        """Write and clear all pending writes, with the author *by* at the time *at*."""
        removed: list[dict[str, object]] = [
            {"owner": place.owner, "run": place.run, "key": key}
            for place, key in sorted(self._removed, key=_spot_order)
        ]
        puts = [_columns(row) for _, row in sorted(self._puts.items(), key=_order)]
        self._send(tx, "remove_entry", removed)
        self._send(tx, "put_entry", puts)
        self._send(tx, "log_change", [_log_columns(each, by, at) for each in self._log])
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
    fields = asdict(row)
    owner, run = fields.pop("agent"), fields.pop("run_id")
    return {"owner": owner, "run": run, "pinned": int(row.category == CORE), **fields}


def _log_columns(logged: Logged, by: str, at: int) -> dict[str, object]:
    fields, content = asdict(logged), logged.content
    place = fields.pop("place")
    return {
        **fields,
        "owner": place.owner,
        "run": place.run,
        "at": at,
        "actor": by,
        "key_hash": logged.key_hash.hex() if logged.key_hash else None,
        "content_sha256": None if content is None else sha256(content.encode()).hexdigest(),
        "cause": msgspec.json.encode(logged.cause).decode() if logged.cause else "{}",
    }
