"""Get and list entries and agents."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from msgspec import Struct

from holdfast.engines.base import Reader, Row
from holdfast.ground.clock import from_microseconds_or_none
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.pages import NEWEST, Page, digest, read_key, write_cursor
from holdfast.ground.text import encoded
from holdfast.ground.validation import check_limit, check_no_nul
from holdfast.memories.durable.context import AgentContext, pass_fence
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

_SEARCHES: Final = REGISTRY.counter(
    "durable_searches_total", "Lists with a query.", result=("hit", "empty")
)
_RECALLS: Final = REGISTRY.counter(
    "durable_recalls_total", "Reads of one entry by key.", result=("hit", "miss")
)
_hit, _miss = _RECALLS.ticker("hit"), _RECALLS.ticker("miss")


MOST_LISTED: Final = 1_000
LISTED: Final = 100
EVER: Final = -(2**63)
SCANNED: Final = 500
"""Rows that are filtered at a time."""


class EntryQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of entries; None or "" does not filter."""

    category: str | None = None
    tags: Iterable[str] | None = None
    since: datetime | timedelta | None = None
    key_prefix: str | None = None
    query: str | None = None


def get(context: AgentContext, key: str) -> DurableEntry | None:
    """Return the nearest entry under exactly *key*, or None.

    The run's entry is nearest, then the agent's, then the workspace's. Counts a hit or a miss.
    Raises StaleRun in a run that is no longer live.
    """
    checked_key(key)
    if context.run is None:
        row = _nearest(context, context.engine.rows(context.sql.get_entries, key=key))
    else:
        row = context.engine.read(partial(_get_in_run, context, key))
    if row is None:
        _miss()
        return None
    _hit()
    return entry_of(context.workspace, row)


def _get_in_run(context: AgentContext, key: str, reader: Reader) -> Row | None:
    pass_fence(context, reader)
    ours = reader.rows(context.sql.get_entry_of_run, run=context.run_id, key=key)
    return ours[0] if ours else _nearest(context, reader.rows(context.sql.get_entries, key=key))


def _nearest(context: AgentContext, rows: list[Row]) -> Row | None:
    """Return the agent's own row, else the workspace's; skip expired rows."""
    found: Row | None = None
    for row in rows:
        expires_at: int | None = row[EXPIRES_AT]
        if expires_at is not None and expires_at < context.now():
            continue
        if found is None or row[AGENT]:
            found = row
    return found


class EntryFilters(Struct, frozen=True, kw_only=True):
    """Checked filters: parameters of the statement, tests of each row."""

    params: dict[str, Any]
    tags: frozenset[str]
    terms: tuple[str, ...]
    stamp: str

    def takes(self, row: Row) -> bool:
        """Return whether *row* has all tags, and each term, case-folded, in a field."""
        tags = tags_of(row[TAGS])
        if not self.tags.issubset(tags):
            return False
        if not self.terms:
            return True
        texts = [text.casefold() for text in (row[KEY], row[CONTENT], *tags)]
        return all(any(term in text for text in texts) for term in self.terms)


def list_entries(
    context: AgentContext, filters: EntryQuery, *, limit: int | None, page: str | None
) -> Page[DurableEntry]:
    """Return the visible entries that pass *filters*, newest first.

    Shadowed entries are included.
    """
    rows = check_limit(limit, most=MOST_LISTED, default=LISTED)
    wanted = checked_filters(context, filters)
    before = NEWEST if page is None else read_key("durable", wanted.stamp, page, int)

    def look(reader: Reader) -> list[Row]:
        pass_fence(context, reader)
        return _matching_rows(context, reader, wanted, before=before, rows=rows + 1)

    # A single statement needs no snapshot; a scan of several, or a check of the run, does.
    simple = context.run is None and not (wanted.tags or wanted.terms)
    found = look(context.engine) if simple else context.engine.read(look)
    if wanted.terms and page is None:
        _SEARCHES.add("hit" if found else "empty")
    shown = found[:rows]
    more = write_cursor("durable", wanted.stamp, [shown[-1][SEQ]]) if len(found) > rows else None
    return Page(
        [entry_of(context.workspace, row) for row in shown],
        more,
        more=lambda page: list_entries(context, filters, limit=limit, page=page),
    )


def _matching_rows(
    context: AgentContext, reader: Reader, wanted: EntryFilters, *, before: int, rows: int
) -> list[Row]:
    scanning = bool(wanted.tags or wanted.terms)
    size = SCANNED if scanning else rows
    found: list[Row] = []
    while True:
        batch = reader.rows(context.sql.list_entries, before=before, rows=size, **wanted.params)
        found += filter(wanted.takes, batch) if scanning else batch
        if len(found) >= rows or len(batch) < size:
            return found[:rows]
        before = batch[-1][SEQ]


def checked_filters(context: AgentContext, filters: EntryQuery) -> EntryFilters:
    """Check *filters*; InvalidInput names the invalid one."""
    category = text_or_none("category", filters.category) or ""
    prefix = text_or_none("key_prefix", filters.key_prefix) or ""
    tags = frozenset(checked_tags(filters.tags or ()))
    since = checked_since(filters.since, now=context.clock.now())
    query = text_or_none("query", filters.query) or ""
    terms = tuple(term.casefold() for term in query.split())
    # A span back from now means another instant on each page: the cursor holds the span.
    params = (category, prefix, sorted(tags), filters.since, terms)
    return EntryFilters(
        params={
            "run_id": context.run_id,
            "now": context.now(),
            "category": category,
            "since": EVER if since is None else since,
            "prefix": prefix,
            "prefix_length": len(prefix),
        },
        tags=tags,
        terms=terms,
        stamp=digest(context.workspace, context.agent, context.run_id, params),
    )


def text_or_none(field: str, given: object) -> str | None:
    """Return *given* if it is text, or None for None and "".

    Raises InvalidInput for any other type, and for U+0000.
    """
    if given is None:
        return None
    encoded(field, given)
    return check_no_nul(field, str(given)) or None


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
    context: AgentContext, *, limit: int | None = LISTED, page: str | None = None
) -> Page[AgentSummary]:
    """Return the agents of the workspace by name; *context* is of no agent."""
    rows = check_limit(limit, most=MOST_LISTED, default=LISTED)
    stamp = digest(context.workspace)
    after = "" if page is None else read_key(LIST, stamp, page, str)
    found = context.engine.all(_Row, context.sql.list_agents, after=after, rows=rows + 1)
    shown = found[:rows]
    more = write_cursor(LIST, stamp, [shown[-1].agent]) if len(found) > rows else None
    return Page(
        [row.record() for row in shown],
        more,
        more=lambda page: list_agents(context, limit=limit, page=page),
    )
