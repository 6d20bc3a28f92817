"""The change log of entries, and restoring from it."""

from datetime import datetime, timedelta
from typing import Final, TypeVar, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.pages import NEWEST, Page, digest, read_key, write_cursor
from holdfast.ground.validation import check_limit, check_one_of
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.idempotency import EntryAnswer, Replay, entry_again, kept_of
from holdfast.memories.durable.read import EVER, LISTED, MOST_LISTED
from holdfast.memories.durable.records import (
    Cause,
    EntryChange,
    EntryFields,
    Op,
    StoredEntry,
    key_hash,
)
from holdfast.memories.durable.rows import SHARED, EntryLocation, Logged, by_of, scope_of
from holdfast.memories.durable.transaction import AgentTransaction, refusals, write
from holdfast.memories.durable.validation import checked_entry, checked_key, checked_since
from holdfast.memories.durable.write_entry import EntryWrite, needs_shared, store

CHANGE: Final = "change"
"""Kind of object in NotFound."""

_NO_HASH: Final = b""
"""Matches the hash of no key."""

_cause = msgspec.json.Decoder(Cause)


class ChangeRow(Struct, frozen=True, kw_only=True):
    """A change as it is stored."""

    seq: int
    at: int
    op: str
    key: str | None
    category: str | None
    agent: str
    run_id: str
    size_bytes: int
    content: str | None
    content_sha256: str | None
    actor: str
    evicted_for: str | None
    cause: str
    redacted_at: int | None
    key_hash: bytes | None = None

    def record(self) -> EntryChange:
        """Return the row as an `EntryChange`."""
        cause = _cause.decode(self.cause)
        if self.evicted_for is not None:
            cause["evicted_for"] = self.evicted_for
        return EntryChange(
            seq=self.seq,
            at=from_microseconds(self.at),
            op=cast("Op", self.op),
            key=self.key,
            category=self.category,
            scope=scope_of(self.agent, self.run_id),
            size_bytes=self.size_bytes,
            content=self.content,
            content_sha256=self.content_sha256,
            actor=by_of(self.actor),
            cause=cause,
            redacted_at=from_microseconds_or_none(self.redacted_at),
        )


R = TypeVar("R", bound=ChangeRow)


class _Expired(Struct, frozen=True):
    key: str
    seq: int


def history(
    context: AgentContext,
    key: str | None = None,
    *,
    op: Op | None = None,
    since: datetime | timedelta | None = None,
    limit: int | None = LISTED,
    page: str | None = None,
) -> Page[EntryChange]:
    """Return the changes of the agent's, its runs' and workspace entries.

    Newest first. With *key*, only the changes of that key, including those from before it was
    forgotten.
    """
    rows = check_limit(limit, most=MOST_LISTED, default=LISTED)
    if key is not None:
        checked_key(key)
    if op is not None:
        check_one_of("op", op, get_args(Op))
    oldest = checked_since(since, now=context.clock.now())
    stamp = digest(context.workspace, context.agent, key, op, since)
    before = NEWEST if page is None else read_key("durable_changes", stamp, page, int)
    params: dict[str, object] = {
        "before": before,
        "since": EVER if oldest is None else oldest,
        "op": op or "",
        "rows": rows + 1,
    }
    found = context.engine.read(lambda reader: _changes(context, reader, key, params))
    shown = found[:rows]
    more = len(found) > rows
    return Page(
        [row.record() for row in shown],
        write_cursor("durable_changes", stamp, [shown[-1].seq]) if more else None,
        more=lambda page: history(context, key, op=op, since=since, limit=limit, page=page),
    )


def _changes(
    context: AgentContext, reader: Reader, key: str | None, params: dict[str, object]
) -> list[ChangeRow]:
    if key is None:
        return without_expired(
            context, reader, reader.all(ChangeRow, context.sql.history_of_all, **params)
        )
    secret = reader.first(scalar, context.sql.get_secret)
    hashed = _NO_HASH if secret is None else key_hash(secret, key)
    rows = reader.all(ChangeRow, context.sql.history_of_key, key=key, key_hash=hashed, **params)
    return without_expired(context, reader, rows)


def without_expired(context: AgentContext, reader: Reader, rows: list[R]) -> list[R]:
    """Return *rows* without the contents of expired entries.

    Expired entries may still be on disk, as no sweep has run since.
    """
    if all(row.content_sha256 is None for row in rows):
        return rows
    found = reader.all(_Expired, context.sql.expired_entries, now=context.now())
    over: dict[str, int] = {}
    for each in found:
        over[each.key] = max(each.seq, over.get(each.key, 0))
    return [
        replace(row, content=None, content_sha256=None)
        if row.agent == context.agent and row.key is not None and row.seq <= over.get(row.key, 0)
        else row
        for row in rows
    ]


def change_at(context: AgentContext, reader: Reader, seq: object) -> ChangeRow:
    """Return the visible change with the number *seq*; else raise NotFound."""
    if not isinstance(seq, int) or isinstance(seq, bool):
        raise InvalidInput("seq", "must be the number of a change", given=seq)
    known = 0 < seq < NEWEST
    row = reader.first(ChangeRow, context.sql.change_at, seq=seq) if known else None
    if row is None:
        raise NotFound(CHANGE, str(seq), next="Find its number in the history.")
    return without_expired(context, reader, [row])[0]


def redact(context: AgentContext, seq: int) -> EntryChange:
    """Remove content and hash from one change; a repeat changes nothing.

    The change stays in the log with `redacted_at`. The entry itself is not touched. When this
    returns the bytes are in no file of the database, except in the entry itself.
    """

    def work(tx: Transaction) -> tuple[EntryChange, bool]:
        unit = AgentTransaction(context, tx)
        row = change_at(context, tx, seq)
        unit.open(shared=row.agent == SHARED)
        row = change_at(context, tx, seq)
        if row.redacted_at is not None:
            return row.record(), False
        tx.run(unit.sql.redact_change, owner=row.agent, seq=seq, now=unit.now)
        unit.pending.log(
            Logged(
                seq=unit.number(),
                op="redact",
                place=EntryLocation(row.agent, row.run_id),
                key=row.key,
                key_hash=row.key_hash,
                category=row.category,
                size_bytes=row.size_bytes,
                cause={"redacted": str(seq)},
            )
        )
        unit.note("redacted", redacted_seq=seq)
        unit.close()
        return change_at(context, tx, seq).record(), True

    with refusals(context):
        change, redacted = write(context, work)
    if redacted:
        context.engine.scrub()
    return change


def restore(context: AgentContext, key: str, seq: int) -> StoredEntry:
    """Write the content of the change *seq* of *key* again.

    Raises NotFound when the change has no content. A repeat under the same idempotency key also
    raises it once the change was deleted, as its content is stored nowhere else.
    """
    with refusals(context):
        checked_key(key)
        replay = Replay(context.idempotency_key, "restore", key, seq)

    def work(tx: Transaction) -> StoredEntry:
        row = change_at(context, tx, seq)
        if row.key != key or row.content is None or row.category is None:
            raise NotFound(
                CHANGE, str(seq), next="Look at the history of the key for one that holds content."
            )
        request = checked_entry(key, EntryFields(content=row.content, category=row.category))
        unit = AgentTransaction(context, tx)
        unit.open([key], shared=needs_shared(request.category))
        first = replay.answer(unit, EntryAnswer)
        if first is not None:
            return entry_again(unit, request, first)
        entry = store(unit, request, EntryWrite(op="restore", cause={"restored": str(seq)}))
        if replay:
            replay.keep(unit, kept_of(unit, entry))
        unit.close()
        return entry

    return write(context, work)
