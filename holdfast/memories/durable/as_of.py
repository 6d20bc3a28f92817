"""Entries as they were at an earlier moment, from the log of changes.

An entry was there at a moment if the last change of its key up to then, in the order of writes,
wrote it and it had not expired. The log is stored for 90 days, and of each key the newest changes.
What was forgotten, redacted or has expired is gone from the log, and so from every moment. Entries
of runs are logged without their contents: no moment shows them.
"""

from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from holdfast.engines.base import Reader, scalar
from holdfast.ground.clock import from_microseconds, to_rfc3339
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import NEWEST, Page, digest, read_key, write_cursor
from holdfast.ground.validation import check_limit, checked_moment
from holdfast.memories.durable.context import AgentContext, pass_fence
from holdfast.memories.durable.history import ChangeRow, without_expired
from holdfast.memories.durable.read import (
    LISTED,
    MOST_LISTED,
    EntryFilters,
    EntryQuery,
    checked_filters,
)
from holdfast.memories.durable.records import CHANGES_KEPT, MILLISECOND, DurableEntry
from holdfast.memories.durable.rows import SHARED, EntryRow, tags_text, written_of
from holdfast.memories.durable.validation import checked_key

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

    entry: str | None
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
