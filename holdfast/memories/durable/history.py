"""The change log of entries: list and redact it, restore from it, read the past."""

from datetime import datetime, timedelta
from typing import Final, TypeVar, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_rfc3339
from holdfast.ground.errors import InvalidInput, NotFound, NotPermitted
from holdfast.ground.pages import NEWEST, Page, digest, read_key, write_cursor
from holdfast.ground.trust import Provenance
from holdfast.ground.validation import check_limit, check_one_of, checked_moment
from holdfast.memories.durable.context import AgentContext, pass_fence
from holdfast.memories.durable.forget import forget_proposals
from holdfast.memories.durable.idempotency import EntryAnswer, Replay, entry_again, kept_of
from holdfast.memories.durable.read import (
    EVER,
    LISTED,
    MOST_LISTED,
    EntryFilters,
    EntryQuery,
    checked_filters,
)
from holdfast.memories.durable.records import (
    CHANGES_KEPT,
    MILLISECOND,
    Cause,
    DurableEntry,
    EntryChange,
    EntryFields,
    Op,
    StoredEntry,
    key_hash,
)
from holdfast.memories.durable.rows import (
    SHARED,
    EntryLocation,
    EntryRow,
    Logged,
    by_of,
    scope_of,
    tags_of,
    tags_text,
    written_of,
)
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
    entry: str | None = None

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
        if row.key is not None and not row.run_id:
            # What a model wrote of the content, and what it was sent.
            forget_proposals(unit, row.agent, row.key, having='"text":')
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
        source = None if row.entry is None else written_of(row.entry).provenance
        unit = AgentTransaction(context, tx)
        unit.open([key], shared=needs_shared(request.category))
        first = replay.answer(unit, EntryAnswer)
        if first is not None:
            return entry_again(unit, request, first)
        options = EntryWrite(op="restore", cause={"restored": str(seq)}, source=source)
        entry = store(unit, request, options)
        if replay:
            replay.keep(unit, kept_of(unit, entry))
        unit.close()
        return entry

    return write(context, work)


def accept(context: AgentContext, key: str) -> StoredEntry:
    """Release the held entry under *key*: write it again, as confirmed by a person.

    Raises NotFound, and InvalidInput if none under the key is held.
    """
    with refusals(context):
        checked_key(key)
        if context.run is not None:
            raise NotPermitted(
                "A run accepts no entry.", needed="a person", next="Accept it outside of the run."
            )

    def work(tx: Transaction) -> StoredEntry:
        unit = AgentTransaction(context, tx)
        unit.open([key], shared=True)
        rows = [row for place in context.places if (row := unit.at(place, key)) is not None]
        held = next((row for row in rows if row.held is not None), None)
        if not rows:
            raise NotFound("entry", key)
        if held is None:
            raise InvalidInput("key", "is not of a held entry", given=key)
        fields = EntryFields(content=held.content, category=held.category, tags=tags_of(held.tags))
        source = Provenance("confirmed", held.origin_ref)
        options = EntryWrite(cause={"source": "accept"}, moves=False, source=source)
        entry = store(unit, checked_entry(key, fields), options)
        unit.close()
        return entry

    return write(context, work)


# An entry was there at a moment if the last change of its key up to then, in the order of writes,
# wrote it and it had not expired. What was forgotten, redacted or has expired is gone from the log,
# and so from every moment.

EVERY_KEY: Final = ""
"""Matches all keys: no key is empty."""


class PastEntries(Struct, frozen=True):
    """Entries as they were, newest first, and how many are missing.

    `missing` counts entries that were there, or may have been, and of which the log no longer says
    what they were.
    """

    rows: list[EntryRow]
    missing: int


class _PastRow(ChangeRow, frozen=True, kw_only=True):
    """A change that wrote an entry, and who created that."""

    live_id: str | None
    live_creator: str | None
    creator: str | None

    def row(self) -> EntryRow | None:
        """Return the entry as it was written, or None if that is no longer stored."""
        if self.content is None or self.entry is None or self.key is None:
            return None
        written = written_of(self.entry)
        creator = self.live_creator if self.live_id == written.id else self.creator
        return EntryRow(
            agent=self.agent,
            run_id=self.run_id,
            key=self.key,
            id=written.id,
            content=self.content,
            category=self.category or "",
            tags=tags_text(written.tags),
            size_bytes=self.size_bytes,
            seq=self.seq,
            created_at=written.created_at,
            updated_at=written.updated_at,
            expires_at=written.expires_at,
            created_by=creator or self.actor,
            updated_by=self.actor,
            tier=written.tier,
            origin_ref=written.origin_ref,
            held=written.held,
        )


class _Cut(Struct, frozen=True, kw_only=True):
    """The oldest stored change of a key, before which there were others."""

    agent: str
    key: str
    at: int


def moment_of(context: AgentContext, at: object) -> int:
    """Return *at* in microseconds since 1970, cut to a whole millisecond.

    InvalidInput for the future, and for a moment before the log begins.
    """
    # A moment within this millisecond has been, though the clock of entries is cut.
    moment = checked_moment("at", at, now=context.now() + MILLISECOND - 1)
    begins = context.now() - CHANGES_KEPT
    if moment < begins:
        raise _too_early(begins)
    return moment - moment % MILLISECOND


def _too_early(begins: int) -> InvalidInput:
    return InvalidInput(
        "at",
        f"history begins {to_rfc3339(from_microseconds(begins))}",
        next="Choose a later time.",
    )


def get_at(context: AgentContext, key: str, at: datetime | str) -> DurableEntry | None:
    """Return the entry that was under exactly *key*, the agent's or the workspace's.

    None if there was none, or it was erased since. Raises InvalidInput if the changes of then are
    no longer stored, and StaleRun in a run that is no longer live.
    """
    checked_key(key)
    moment = moment_of(context, at)

    def look(reader: Reader) -> EntryRow | None:
        pass_fence(context, reader)
        return _nearest(context, reader, key, moment)

    row = context.engine.read(look)
    return None if row is None else row.record(context.workspace)


def list_at(
    context: AgentContext,
    filters: EntryQuery,
    at: datetime | str,
    *,
    limit: int | None,
    page: str | None,
) -> Page[DurableEntry]:
    """Return the entries of the moment *at* that pass *filters*, newest first.

    `erased` counts entries of the agent and the workspace, whatever the filters.
    """
    rows = check_limit(limit, most=MOST_LISTED, default=LISTED)
    wanted, moment = checked_filters(context, filters), moment_of(context, at)
    stamp = digest(wanted.stamp, moment)
    before = NEWEST if page is None else read_key("durable", stamp, page, int)

    def look(reader: Reader) -> PastEntries:
        pass_fence(context, reader)
        return _entries(context, reader, moment)

    past = context.engine.read(look)
    found = [row for row in past.rows if row.seq < before and _passes(wanted, row)]
    shown = found[:rows]
    more = write_cursor("durable", stamp, [shown[-1].seq]) if len(found) > rows else None
    return Page(
        [row.record(context.workspace) for row in shown],
        more,
        erased=past.missing,
        more=lambda page: list_at(context, filters, at, limit=limit, page=page),
    )


def _passes(wanted: EntryFilters, row: EntryRow) -> bool:
    params = wanted.params
    return (
        params["category"] in {"", row.category}
        and row.updated_at >= params["since"]
        and row.key.startswith(params["prefix"])
        and wanted.takes(astuple(row))
    )


def entries_then(context: AgentContext, reader: Reader, at: int) -> list[EntryRow]:
    """Return the agent's and the workspace's entries of *at*, newest first."""
    return _rows(context, reader, at, EVERY_KEY).rows


def _nearest(context: AgentContext, reader: Reader, key: str, at: int) -> EntryRow | None:
    """Return the nearest entry that was under *key*; InvalidInput if that is unknown."""
    found = {row.agent: row for row in _rows(context, reader, at, key).rows}
    cut = {each.agent: each.at for each in _cuts(context, reader, at, key)}
    for owner in (context.agent, SHARED):
        if owner in found:
            return found[owner]
        if owner in cut:
            raise _too_early(cut[owner])
    return None


def _entries(context: AgentContext, reader: Reader, at: int) -> PastEntries:
    """Return the agent's and the workspace's entries of that moment, newest first."""
    past = _rows(context, reader, at, EVERY_KEY)
    forgotten = reader.one(scalar, context.sql.forgotten_at, at=at)
    cut = len(_cuts(context, reader, at, EVERY_KEY))
    return PastEntries(past.rows, past.missing + forgotten + cut)


def _rows(context: AgentContext, reader: Reader, at: int, key: str) -> PastEntries:
    changes = reader.all(_PastRow, context.sql.entries_at, at=at, key=key)
    written = [each.row() for each in without_expired(context, reader, changes)]
    sql, now = context.sql, context.now()
    rows = reader.all(EntryRow, sql.unlogged_at, at=at, key=key, now=now)
    rows += [row for row in written if row is not None and _lasted(row, at)]
    rows.sort(key=lambda row: row.seq, reverse=True)
    return PastEntries(rows, written.count(None))


def _cuts(context: AgentContext, reader: Reader, at: int, key: str) -> list[_Cut]:
    return reader.all(_Cut, context.sql.cut_at, at=at, key=key)


def _lasted(row: EntryRow, at: int) -> bool:
    return row.expires_at is None or row.expires_at >= at
