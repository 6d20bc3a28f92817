"""Get and list entries and agents."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from msgspec import Struct

from holdfast.engines.base import Reader, Row
from holdfast.ground.clock import from_microseconds_or_none
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Key, Page, checked_limit, digest, read_cursor, write_cursor
from holdfast.ground.text import encoded
from holdfast.memories.durable.context import AgentContext, counts, pass_fence
from holdfast.memories.durable.records import AgentSummary, DurableEntry
from holdfast.memories.durable.rows import (
    AGENT,
    CONTENT,
    EXPIRES_AT,
    KEY,
    SEQ,
    TAGS,
    entry_of,
    tags_of,
)
from holdfast.memories.durable.validation import checked_key, checked_since, checked_tags

MOST_LISTED: Final = 1_000
LISTED: Final = 100
NEWEST: Final = 2**63 - 1
EVER: Final = -(2**63)
SCANNED: Final = 500
"""Rows that are looked through at a time."""


class EntryQuery(Struct, frozen=True, kw_only=True):
    """Which entries are wanted; what is None or "" filters nothing."""

    category: str | None = None
    tags: Iterable[str] | None = None
    since: datetime | timedelta | None = None
    key_prefix: str | None = None
    query: str | None = None


def get(caller: AgentContext, key: str) -> DurableEntry | None:
    """Return the nearest entry under exactly *key*: the run's, the agent's, the workspace's."""
    checked_key(key)
    if caller.run is None:
        sql = caller.engine.queries("holdfast.memories.durable")
        row = _nearest(caller, caller.engine.rows(sql.get_entries, key=key))
    else:
        row = caller.engine.read(partial(_get_in_run, caller, key))
    if row is None:
        counts.misses.tick()
        return None
    counts.hits.tick()
    return entry_of(caller.workspace, row)


def _get_in_run(caller: AgentContext, key: str, reader: Reader) -> Row | None:
    pass_fence(caller, reader)
    sql = caller.engine.queries("holdfast.memories.durable")
    ours = reader.rows(sql.get_entry_of_run, run=caller.run_id, key=key)
    return ours[0] if ours else _nearest(caller, reader.rows(sql.get_entries, key=key))


def _nearest(caller: AgentContext, rows: list[Row]) -> Row | None:
    """Return the agent's own row, or the workspace's, whichever is there and not expired."""
    found: Row | None = None
    for row in rows:
        expires_at: int | None = row[EXPIRES_AT]
        if expires_at is not None and expires_at < caller.now():
            continue
        if found is None or row[AGENT]:
            found = row
    return found


class _Wanted(Struct, frozen=True, kw_only=True):
    """The filters, checked: what the statement asks for, and what is looked at in each row."""

    params: dict[str, Any]
    tags: frozenset[str]
    terms: tuple[str, ...]
    stamp: str

    def takes(self, row: Row) -> bool:
        """Tell whether *row* has the tags and each term, by case folding, somewhere."""
        marks = tags_of(row[TAGS])
        if not self.tags.issubset(marks):
            return False
        if not self.terms:
            return True
        texts = [text.casefold() for text in (row[KEY], row[CONTENT], *marks)]
        return all(any(term in text for text in texts) for term in self.terms)


def list_entries(
    caller: AgentContext, filters: EntryQuery, *, limit: int | None, page: str | None
) -> Page[DurableEntry]:
    """Return the visible entries that pass *filters*, newest first, shadowed ones included."""
    rows = checked_limit(limit, most=MOST_LISTED, default=LISTED)
    wanted = _wanted(caller, filters)
    before = NEWEST if page is None else seq_in(read_cursor("durable", wanted.stamp, page)[0])

    def look(reader: Reader) -> list[Row]:
        pass_fence(caller, reader)
        return _look(caller, reader, wanted, before=before, rows=rows + 1)

    # One statement of its own needs no snapshot: a scan of several, or a run's, does.
    simple = caller.run is None and not (wanted.tags or wanted.terms)
    found = look(caller.engine) if simple else caller.engine.read(look)
    if wanted.terms and page is None:
        counts.add("searches_total", "hit" if found else "empty")
    shown = found[:rows]
    more = write_cursor("durable", wanted.stamp, [shown[-1][SEQ]]) if len(found) > rows else None
    return Page(
        [entry_of(caller.workspace, row) for row in shown],
        more,
        more=lambda page: list_entries(caller, filters, limit=limit, page=page),
    )


def _look(
    caller: AgentContext, reader: Reader, wanted: _Wanted, *, before: int, rows: int
) -> list[Row]:
    sql = caller.engine.queries("holdfast.memories.durable")
    scanning = bool(wanted.tags or wanted.terms)
    asked = SCANNED if scanning else rows
    found: list[Row] = []
    while True:
        batch = reader.rows(sql.list_entries, before=before, rows=asked, **wanted.params)
        found += filter(wanted.takes, batch) if scanning else batch
        if len(found) >= rows or len(batch) < asked:
            return found[:rows]
        before = batch[-1][SEQ]


def _wanted(caller: AgentContext, filters: EntryQuery) -> _Wanted:
    category = text_or_none("category", filters.category) or ""
    prefix = text_or_none("key_prefix", filters.key_prefix) or ""
    tags = frozenset(checked_tags(filters.tags or ()))
    since = checked_since(filters.since, now=caller.clock.now())
    query = text_or_none("query", filters.query) or ""
    terms = tuple(term.casefold() for term in query.split())
    # A span back from now means another instant on each page: the cursor holds the span.
    told = (category, prefix, sorted(tags), filters.since, terms)
    return _Wanted(
        params={
            "run_id": caller.run_id,
            "now": caller.now(),
            "category": category,
            "since": EVER if since is None else since,
            "prefix": prefix,
            "prefix_length": len(prefix),
        },
        tags=tags,
        terms=terms,
        stamp=digest(caller.workspace, caller.agent, caller.run_id, told),
    )


def text_or_none(field: str, given: object) -> str | None:
    """Return *given* if it is text; None for None and ""; InvalidInput for anything else."""
    if given is None:
        return None
    encoded(field, given)
    if "\0" in str(given):
        raise InvalidInput(field, "must not hold the character U+0000")
    return str(given) or None


def seq_in(key: list[str | int]) -> int:
    """Return the number that *key*, read from a cursor, holds; InvalidInput if it was made up."""
    match key:
        case [int(seq)] if abs(seq) < NEWEST:
            return seq
        case _:
            raise InvalidInput(
                "page", "is not a cursor of this list", next="Start again without page."
            )


LIST = "durable_agents"


class _Row(Struct, frozen=True, kw_only=True):
    agent: str
    entries: int
    size_bytes: int
    last_write: int | None

    def record(self) -> AgentSummary:
        return AgentSummary(
            agent=self.agent,
            entries=self.entries,
            size_bytes=self.size_bytes,
            last_write=from_microseconds_or_none(self.last_write),
        )


def list_agents(
    caller: AgentContext, *, limit: int | None = LISTED, page: str | None = None
) -> Page[AgentSummary]:
    """Return the agents of *caller*'s workspace by name; *caller* is of no agent."""
    rows = checked_limit(limit, most=MOST_LISTED, default=LISTED)
    stamp = digest(caller.workspace)
    after = "" if page is None else _name_in(read_cursor(LIST, stamp, page)[0])
    sql = caller.engine.queries("holdfast.memories.durable")
    found = caller.engine.all(_Row, sql.list_agents, after=after, rows=rows + 1)
    shown = found[:rows]
    more = write_cursor(LIST, stamp, [shown[-1].agent]) if len(found) > rows else None
    return Page(
        [row.record() for row in shown],
        more,
        more=lambda page: list_agents(caller, limit=limit, page=page),
    )


def _name_in(key: Key) -> str:
    match key:
        case [str(name)] if "\0" not in name:
            return name
        case _:
            raise InvalidInput(
                "page", "is not a cursor of this list", next="Start again without page."
            )
