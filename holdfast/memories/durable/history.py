"""The change log of entries, and restoring from it."""

from datetime import datetime, timedelta
from typing import Final, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.pages import Page, checked_limit, digest, read_cursor, write_cursor
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.idempotency import EntryAnswer, Replay, entry_again, kept_of
from holdfast.memories.durable.read import EVER, LISTED, MOST_LISTED, NEWEST, seq_in
from holdfast.memories.durable.records import Cause, EntryChange, Op, StoredEntry, key_hash
from holdfast.memories.durable.rows import SHARED, EntryLocation, Logged, by_of, scope_of
from holdfast.memories.durable.transaction import AgentTransaction, refusals, write
from holdfast.memories.durable.validation import checked_entry, checked_key, checked_since
from holdfast.memories.durable.write_entry import EntryWrite, needs_shared, store

CHANGE: Final = "change"
"""What is not found, in words."""

_NOBODYS: Final = b""
"""The hash of no key."""

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
        """Return the change that this row tells of."""
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


class _Secret(Struct, frozen=True):
    secret: bytes


class _Expired(Struct, frozen=True):
    key: str
    seq: int


def history(
    caller: AgentContext,
    key: str | None = None,
    *,
    op: Op | None = None,
    since: datetime | timedelta | None = None,
    limit: int | None = LISTED,
    page: str | None = None,
) -> Page[EntryChange]:
    """Return the changes of the agent's entries, its runs' and the workspace's, newest first.

    Of *key* alone where it is given: then also those from before it was forgotten.
    """
    rows = checked_limit(limit, most=MOST_LISTED, default=LISTED)
    if key is not None:
        checked_key(key)
    if op is not None and op not in get_args(Op):
        raise InvalidInput("op", f"must be one of {', '.join(get_args(Op))}", given=op)
    oldest = checked_since(since, now=caller.clock.now())
    stamp = digest(caller.workspace, caller.agent, key, op, since)
    before = NEWEST if page is None else seq_in(read_cursor("durable_changes", stamp, page)[0])
    params: dict[str, object] = {
        "before": before,
        "since": EVER if oldest is None else oldest,
        "op": op or "",
        "rows": rows + 1,
    }
    found = caller.engine.read(lambda reader: _changes(caller, reader, key, params))
    shown = found[:rows]
    more = len(found) > rows
    return Page(
        [row.record() for row in shown],
        write_cursor("durable_changes", stamp, [shown[-1].seq]) if more else None,
        more=lambda page: history(caller, key, op=op, since=since, limit=limit, page=page),
    )


def _changes(
    caller: AgentContext, reader: Reader, key: str | None, params: dict[str, object]
) -> list[ChangeRow]:
    sql = caller.engine.queries("holdfast.memories.durable")
    if key is None:
        return _without_expired(caller, reader, reader.all(ChangeRow, sql.history_of_all, **params))
    secret = reader.first(_Secret, sql.get_secret)
    hashed = _NOBODYS if secret is None else key_hash(secret.secret, key)
    rows = reader.all(ChangeRow, sql.history_of_key, key=key, key_hash=hashed, **params)
    return _without_expired(caller, reader, rows)


def _without_expired(
    caller: AgentContext, reader: Reader, rows: list[ChangeRow]
) -> list[ChangeRow]:
    """Return *rows* without the contents of entries that expired and are still on disk."""
    if all(row.content_sha256 is None for row in rows):
        return rows
    sql = caller.engine.queries("holdfast.memories.durable")
    found = reader.all(_Expired, sql.expired_entries, now=caller.now())
    over: dict[str, int] = {}
    for each in found:
        over[each.key] = max(each.seq, over.get(each.key, 0))
    return [
        replace(row, content=None, content_sha256=None)
        if row.agent == caller.agent and row.key is not None and row.seq <= over.get(row.key, 0)
        else row
        for row in rows
    ]


def change_at(caller: AgentContext, reader: Reader, seq: object) -> ChangeRow:
    """Return the change with the number *seq* that the caller may see; else NotFound."""
    if not isinstance(seq, int) or isinstance(seq, bool):
        raise InvalidInput("seq", "must be the number of a change", given=seq)
    sql = caller.engine.queries("holdfast.memories.durable")
    known = 0 < seq < NEWEST
    row = reader.first(ChangeRow, sql.change_at, seq=seq) if known else None
    if row is None:
        raise NotFound(CHANGE, str(seq), next="Find its number in the history.")
    return _without_expired(caller, reader, [row])[0]


def redact(caller: AgentContext, seq: int) -> EntryChange:
    """Take content and hash out of one change, which stays and says so; again changes nothing.

    The entry itself is not touched. When this returns the bytes are in no file of the database
    but as the entry's own.
    """

    def work(tx: Transaction) -> tuple[EntryChange, bool]:
        book = AgentTransaction(caller, tx)
        row = change_at(caller, tx, seq)
        book.open(shared=row.agent == SHARED)
        row = change_at(caller, tx, seq)
        if row.redacted_at is not None:
            return row.record(), False
        tx.run(book.sql.redact_change, owner=row.agent, seq=seq, now=book.now)
        book.pending.log(
            Logged(
                seq=book.number(),
                op="redact",
                place=EntryLocation(row.agent, row.run_id),
                key=row.key,
                key_hash=row.key_hash,
                category=row.category,
                size_bytes=row.size_bytes,
                cause={"redacted": str(seq)},
            )
        )
        book.note("redacted", redacted_seq=seq)
        book.close()
        return change_at(caller, tx, seq).record(), True

    with refusals(caller):
        change, redacted = write(caller, work)
    if redacted:
        caller.engine.scrub()
    return change


def restore(
    caller: AgentContext, key: str, seq: int, *, idempotency_key: str | None = None
) -> StoredEntry:
    """Write what the change *seq* of *key* held; NotFound when it holds nothing.

    That is also what a repeat is answered with, if the change was let go meanwhile: what it held
    is nowhere else.
    """
    with refusals(caller):
        checked_key(key)
        replay = Replay.of(idempotency_key, "restore", key, seq)

    def work(tx: Transaction) -> StoredEntry:
        row = change_at(caller, tx, seq)
        if row.key != key or row.content is None or row.category is None:
            raise NotFound(
                CHANGE, str(seq), next="Look at the history of the key for one that holds content."
            )
        asked = checked_entry(key, row.content, row.category, ())
        book = AgentTransaction(caller, tx)
        book.open([key], shared=needs_shared(asked.category))
        first = None if replay is None else replay.answer(book, EntryAnswer)
        if first is not None:
            return entry_again(book, asked, first)
        entry = store(book, asked, EntryWrite(op="restore", cause={"restored": str(seq)}))
        if replay is not None:
            replay.keep(book, kept_of(book, entry))
        book.close()
        return entry

    return write(caller, work)
