"""Entries read: one by its key, many newest first."""

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Page, checked_limit, digest, read_cursor, write_cursor
from holdfast.ground.text import encoded
from holdfast.memories.durable.asked import checked_key, checked_since, checked_tags
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.entry import DurableEntry
from holdfast.memories.durable.fence import pass_fence
from holdfast.memories.durable.rows import EntryRow

MOST_LISTED = 1_000
LISTED = 100
NEWEST = 2**63 - 1
SCANNED = 500
"""Rows that are looked through at a time."""


class Filters(Struct, frozen=True, kw_only=True):
    """Which entries are wanted; what is None or "" filters nothing."""

    category: str | None = None
    tags: tuple[str, ...] = ()
    since: datetime | timedelta | None = None
    key_prefix: str | None = None
    query: str | None = None


def get(caller: Caller, key: str) -> DurableEntry | None:
    """Return the nearest entry under exactly *key*: the run's, the agent's, the workspace's."""
    checked_key(key)
    sql = caller.engine.queries("holdfast.memories.durable")
    now = to_microseconds(caller.now())

    def look(reader: Reader) -> EntryRow | None:
        pass_fence(caller, reader, lock=False)
        return reader.first(EntryRow, sql.get_entry, key=key, run_id=caller.run_id, now=now)

    row = look(caller.engine) if caller.run is None else caller.engine.read(look)
    return None if row is None else row.record(caller.workspace)


def list_entries(
    caller: Caller, filters: Filters, *, limit: int | None, page: str | None
) -> Page[DurableEntry]:
    """Return the visible entries that pass *filters*, newest first, shadowed ones included."""
    rows = checked_limit(limit, most=MOST_LISTED, default=LISTED)
    wanted, told = _test(filters, now=caller.now())
    stamp = digest(caller.workspace, caller.agent, caller.run_id, told)
    before = NEWEST if page is None else _seq_in(read_cursor("durable", stamp, page)[0])

    def look(reader: Reader) -> list[EntryRow]:
        pass_fence(caller, reader, lock=False)
        return _look(caller, reader, wanted, before=before, rows=rows + 1)

    # One statement of its own needs no snapshot: a scan of several, or a run's, does.
    simple = caller.run is None and wanted is None
    found = look(caller.engine) if simple else caller.engine.read(look)
    shown = found[:rows]
    more = write_cursor("durable", stamp, [shown[-1].seq]) if len(found) > rows else None
    return Page(
        [row.record(caller.workspace) for row in shown],
        more,
        more=lambda page: list_entries(caller, filters, limit=limit, page=page),
    )


Wanted = Callable[[EntryRow], bool]


def _look(
    caller: Caller, reader: Reader, wanted: Wanted | None, *, before: int, rows: int
) -> list[EntryRow]:
    sql = caller.engine.queries("holdfast.memories.durable")
    now = to_microseconds(caller.now())
    found: list[EntryRow] = []
    while True:
        asked = rows if wanted is None else SCANNED
        batch = reader.all(
            EntryRow, sql.list_entries, before=before, rows=asked, run_id=caller.run_id, now=now
        )
        found += batch if wanted is None else filter(wanted, batch)
        if len(found) >= rows or len(batch) < asked:
            return found[:rows]
        before = batch[-1].seq


def _test(filters: Filters, *, now: datetime) -> tuple[Wanted | None, str]:
    """Return the test of *filters*, None where there is none, and what stands for them."""
    category, prefix = _given("category", filters.category), _given("prefix", filters.key_prefix)
    tags = frozenset(checked_tags(filters.tags))
    since = checked_since(filters.since, now=now)
    terms = [term.casefold() for term in _given("query", filters.query).split()]
    told = repr((category, prefix, sorted(tags), _stable(filters.since), terms))
    if not (category or prefix or tags or since is not None or terms):
        return None, told

    def wanted(row: EntryRow) -> bool:
        if category and row.category != category:
            return False
        if since is not None and row.updated_at < since:
            return False
        if not row.key.startswith(prefix):
            return False
        marks = msgspec.json.decode(row.tags, type=tuple[str, ...]) if tags or terms else ()
        if not tags.issubset(marks):
            return False
        return all(_holds(row, marks, term) for term in terms)

    return wanted, told


def _holds(row: EntryRow, tags: tuple[str, ...], term: str) -> bool:
    return (
        term in row.key.casefold()
        or term in row.content.casefold()
        or any(term in tag.casefold() for tag in tags)
    )


def _stable(since: datetime | timedelta | None) -> str:
    # A span back from now means another instant on each page: the cursor holds the span.
    return repr(since)


def _given(field: str, given: object) -> str:
    if given is None:
        return ""
    encoded(field, given)
    return str(given)


def _seq_in(key: list[str | int]) -> int:
    match key:
        case [int(seq)]:
            return seq
        case _:
            raise InvalidInput(
                "page", "is not a cursor of this list", next="Start again without page."
            )
