"""One page of the sessions, which can be turned over in both directions."""

from collections.abc import Iterable
from datetime import datetime
from types import SimpleNamespace
from typing import Literal

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Key, checked_limit, digest, read_cursor, write_cursor
from holdfast.ground.text import within
from holdfast.memories.stores.records import SessionRecord
from holdfast.memories.stores.rows import SessionRow, as_records
from holdfast.memories.stores.session_input import (
    MOST_ID,
    Status,
    checked_statuses,
    checked_version,
)
from holdfast.memories.stores.validation import BEGINNING, END, LAST_ID, bounds, checked_age

Order = Literal["asc", "desc"]

_LIST = "sessions"


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which sessions are listed, and in which order of age; None filters nothing out."""

    agent_id: str | None = None
    agent_version: int | None = None
    created_at_gt: datetime | None = None
    created_at_gte: datetime | None = None
    created_at_lt: datetime | None = None
    created_at_lte: datetime | None = None
    include_archived: bool = False
    memory_store_id: str | None = None
    order: Order | None = None
    statuses: Iterable[Status] | None = None


class SessionListFilter(Struct, frozen=True, kw_only=True):
    """A filter as the statements take it, with a place to stand and a way to look."""

    since: int
    until: int
    idle: int
    terminated: int
    agent_id: str | None
    agent_version: int | None
    store_id: str | None
    ascending: bool
    mark: str
    """The digest of the filter, which a cursor is held against."""

    def rows(
        self, reader: Reader, sql: SimpleNamespace, key: Key | None, *, ahead: bool, rows: int
    ) -> list[SessionRow]:
        """Return the nearest sessions beyond *key*, ahead or back in the list's own order."""
        upward = self.ascending == ahead
        at, after = key or ([BEGINNING - 1, ""] if upward else [END, LAST_ID])
        found = reader.all(
            SessionRow,
            sql.sessions_after if upward else sql.sessions_before,
            since=self.since,
            until=self.until,
            idle=self.idle,
            terminated=self.terminated,
            agent_id=self.agent_id,
            agent_version=self.agent_version,
            store_id=self.store_id,
            at=at,
            id=after,
            rows=rows,
        )
        return found if ahead else found[::-1]


def window(asked: SessionFilter, workspace: str) -> SessionListFilter:
    """Return *asked* of *workspace* as the statements take it; InvalidInput names what is wrong."""
    if asked.order not in (None, "asc", "desc"):
        raise InvalidInput("order", "must be asc or desc", given=asked.order)
    if asked.agent_version is not None:
        checked_version("agent_version", asked.agent_version)
    for field in ("agent_id", "memory_store_id"):
        within(field, getattr(asked, field) or "", most=MOST_ID)
    since, until = bounds(
        gt=asked.created_at_gt,
        gte=asked.created_at_gte,
        lt=asked.created_at_lt,
        lte=asked.created_at_lte,
    )
    statuses = checked_statuses(asked.statuses or ())
    ascending = asked.order == "asc"
    return SessionListFilter(
        since=since,
        until=until,
        idle=int(not statuses or "idle" in statuses),
        terminated=int(asked.include_archived and (not statuses or "terminated" in statuses)),
        agent_id=asked.agent_id,
        agent_version=asked.agent_version,
        store_id=asked.memory_store_id,
        ascending=ascending,
        mark=digest(
            workspace,
            since,
            until,
            sorted(statuses),
            asked.include_archived,
            asked.agent_id,
            asked.agent_version,
            asked.memory_store_id,
            ascending,
        ),
    )


class SessionsPage(Struct, frozen=True):
    """Sessions, with the cursors of the pages beside them."""

    data: list[SessionRecord]
    next_page: str | None
    prev_page: str | None


def session_page(
    reader: Reader,
    sql: SimpleNamespace,
    asked: SessionListFilter,
    *,
    limit: int | None,
    page: str | None,
) -> SessionsPage:
    """Return the page of *asked* that the cursor *page* leads to, or the first."""
    most = checked_limit(limit)
    key, backward = (None, False) if page is None else read_cursor(_LIST, asked.mark, page)
    if key is not None:
        checked_age(key)
    rows = asked.rows(reader, sql, key, ahead=not backward, rows=most + 1)
    more = len(rows) > most
    rows = rows[-most:] if backward else rows[:most]
    if not rows:
        return SessionsPage([], None, None)
    first, last = ([row.created_at, row.id] for row in (rows[0], rows[-1]))
    # Where the cursor came from there was a session, which may be gone by now.
    beyond = key is not None and bool(
        asked.rows(reader, sql, last if backward else first, ahead=backward, rows=1)
    )
    has_next, has_prev = (beyond, more) if backward else (more, beyond)
    return SessionsPage(
        as_records(reader, sql, rows),
        write_cursor(_LIST, asked.mark, last) if has_next else None,
        write_cursor(_LIST, asked.mark, first, backward=True) if has_prev else None,
    )
