"""Get and list items and turns, status, retry of jobs, users with a memory."""

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from itertools import islice, product
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.clock import from_microseconds_or_none
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.pages import (
    NEWEST,
    Key,
    Page,
    digest,
    no_cursor,
    read_cursor,
    read_key,
    write_cursor,
)
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.ground.text import to_nfc
from holdfast.ground.validation import check_bytes, check_limit
from holdfast.memories.longterm.background.jobs import AGAIN
from holdfast.memories.longterm.background.wishes import state_of, uncovered
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.as_of import (
    erased_since,
    items_of,
    moment_of,
    states,
    turns_of,
)
from holdfast.memories.longterm.records import Item, LongTermStatus, Mode, Person, Turn
from holdfast.memories.longterm.rows import (
    EVER,
    Collection,
    ItemRow,
    ItemState,
    Moment,
    NumberedRow,
    TurnRow,
    numbers_text,
)
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.validation import NAME_BYTES, checked_kinds, checked_query, is_id
from holdfast.memories.longterm.vectors.compare import EmbeddingState, compared, fits

MOST_LISTED: Final = 1_000
LISTED: Final = 100
_SCANNED: Final = 500
"""Rows that are read at a time when filtering by text."""

_JOB_KINDS: Final = ("extract", "embed", "reembed")
_JOB_STATES: Final = ("queued", "running", "failed")


class ItemFilter(Struct, frozen=True, kw_only=True):
    """The filters of a list."""

    what: str = "items"
    kinds: Iterable[str] | None = None
    query: str | None = None
    include_superseded: bool = False
    held: bool = False
    at: datetime | str | None = None
    valid_at: datetime | str | None = None


class _Wanted(Struct, frozen=True, kw_only=True):
    """The validated filters of a list."""

    items: bool
    kinds: str
    terms: tuple[str, ...]
    superseded: bool
    held: bool
    stamp: str
    moment: Moment | None = None

    @property
    def filters(self) -> bool:
        """Check whether `takes` may reject a row."""
        return bool(self.terms or self.moment)

    def takes(self, row: ItemRow | TurnRow) -> bool:
        """Check whether *row* was there then, and holds each term, by case folding."""
        if self.moment is not None and isinstance(row, TurnRow):
            at, valid_at = self.moment.at, self.moment.valid_at
            if row.created_at > (EVER if at is None else at):
                return False
            if row.at > (EVER if valid_at is None else valid_at):
                return False
        texts = [row.text.casefold()]
        if isinstance(row, TurnRow):
            texts += [row.caption.casefold(), row.speaker.casefold()]
        return all(any(term in text for text in texts) for term in self.terms)

    def fits(self, state: ItemState) -> bool:
        """Check whether the item passes as it was at that moment."""
        text = state.text.casefold()
        kinds = not self.kinds or f",{state.kind}," in self.kinds
        return kinds and all(term in text for term in self.terms)


def get(
    context: CollectionContext, id: str, *, at: datetime | str | None = None
) -> Item | Turn | None:
    """Return the item or turn called *id*, as it was *at* that time, or None."""
    if at is not None:
        return _get_past(context, id, moment_of(context, at, None) or Moment())
    prefix = next((each for each in ("item", "turn") if is_id(each, id)), None)
    if prefix is None:
        return None
    sql = context.sql
    look, fetch, make = (
        (sql.item_number, sql.items_numbered, ItemRow)
        if prefix == "item"
        else (sql.turn_number, sql.turns_numbered, TurnRow)
    )

    def work(reader: Reader) -> Item | Turn | None:
        found = collection_of(context, reader)
        if found is None:
            return None
        row = reader.first(NumberedRow, look, collection=found.number, id=id)
        if row is None:
            return None
        numbers = numbers_text([row.number])
        return reader.one(make, fetch, collection=found.number, numbers=numbers).record()

    return context.engine.read(work)


def _get_past(context: CollectionContext, id: str, moment: Moment) -> Item | Turn | None:
    at = context.now() if moment.at is None else moment.at

    def work(reader: Reader) -> Item | Turn | None:
        collection = collection_of(context, reader)
        if collection is None:
            return None
        place = collection.number
        if is_id("turn", id):
            row = reader.first(NumberedRow, context.sql.turn_number, collection=place, id=id)
            numbers = set[int]() if row is None else {row.number}
            return next(iter(turns_of(context, reader, place, numbers, at).values()), None)
        found = [each for each in states(context, reader, place, moment) if each.id == id]
        return next(iter(items_of(context, reader, place, found, at).values()), None)

    return context.engine.read(work)


_numbers: Final = msgspec.json.Decoder(list[int]).decode


def neighbours(context: CollectionContext, id: str) -> tuple[Turn | None, Turn | None]:
    """Return the turns before and after the turn *id* in its session; raise NotFound."""

    def work(reader: Reader) -> tuple[Turn | None, Turn | None]:
        found, sql = collection_of(context, reader), context.sql
        row = None
        if found is not None and is_id("turn", id):
            row = reader.first(NumberedRow, sql.turn_number, collection=found.number, id=id)
        if found is None or row is None:
            raise NotFound("turn", id, next="Check the id, or list the turns.")
        place = {"collection": found.number}
        ((_, earlier, later),) = reader.rows(
            sql.around, numbers=numbers_text([row.number]), **place
        )
        beside = [next(iter(_numbers(each)), None) for each in (earlier, later)]
        numbers = numbers_text([each for each in beside if each is not None])
        rows = reader.all(TurnRow, sql.turns_numbered, numbers=numbers, **place)
        turns = {each.number: each.record() for each in rows}
        before, after = (None if each is None else turns.get(each) for each in beside)
        return before, after

    return context.engine.read(work)


def list_rows(
    context: CollectionContext, filters: ItemFilter, *, limit: int | None, page: str | None
) -> Page[Item | Turn]:
    """Return the rows that pass *filters*, newest first; *limit* is 1 to 1,000."""
    rows = check_limit(limit, most=MOST_LISTED, default=LISTED)
    wanted = _wanted(context, filters)
    before = NEWEST if page is None else read_key("longterm", wanted.stamp, page, int)
    if wanted.moment is not None:
        return _list_past(context, filters, wanted, before, rows)
    found = context.engine.read(partial(_look, context, wanted, before, rows + 1))
    shown = found[:rows]
    more = write_cursor("longterm", wanted.stamp, [shown[-1].number]) if len(found) > rows else None
    records = [row.record() for row in shown]
    return Page(
        records, more, more=lambda page: list_rows(context, filters, limit=limit, page=page)
    )


def _list_past(
    context: CollectionContext, filters: ItemFilter, wanted: _Wanted, before: int, limit: int
) -> Page[Item | Turn]:
    """Return the rows of an earlier moment that pass *filters*, newest first."""
    moment = wanted.moment or Moment()
    at = context.now() if moment.at is None else moment.at

    def work(reader: Reader) -> tuple[list[tuple[int, Item | Turn]], int]:
        collection = collection_of(context, reader)
        if collection is None:
            return [], 0
        place = collection.number
        kind = "item" if wanted.items else "turn"
        erased = erased_since(context, reader, place, kind, at)
        if not wanted.items:
            rows = _look(context, wanted, before, limit + 1, reader)
            turns = turns_of(context, reader, place, {row.number for row in rows}, at)
            return sorted(turns.items(), reverse=True), erased
        fit = (
            each
            for each in reversed(states(context, reader, place, moment))
            if each.number < before and wanted.fits(each)
        )
        items = items_of(context, reader, place, islice(fit, limit + 1), at)
        return sorted(items.items(), reverse=True), erased

    found, erased = context.engine.read(work)
    shown = found[:limit]
    more = write_cursor("longterm", wanted.stamp, [shown[-1][0]]) if len(found) > limit else None
    return Page(
        [record for _, record in shown],
        more,
        erased=erased,
        more=lambda page: list_rows(context, filters, limit=limit, page=page),
    )


def collection_of(context: CollectionContext, reader: Reader) -> Collection | None:
    """Return the caller's collection, or None before its first write."""
    return reader.first(Collection, context.sql.find_collection, **context.named)


def collection_id(context: CollectionContext) -> str | None:
    """Return the id of the caller's collection, or None before its first write."""
    found = context.engine.read(lambda reader: collection_of(context, reader))
    return None if found is None else found.id


def _look(
    context: CollectionContext, wanted: _Wanted, before: int, rows: int, reader: Reader
) -> list[ItemRow | TurnRow]:
    collection = collection_of(context, reader)
    if collection is None:
        return []
    scanned = max(rows, _SCANNED) if wanted.filters else rows
    found: list[ItemRow | TurnRow] = []
    while True:
        batch = _batch(context, reader, collection.number, wanted, (before, scanned))
        found += filter(wanted.takes, batch) if wanted.filters else batch
        if len(found) >= rows or len(batch) < scanned:
            return found[:rows]
        before = batch[-1].number


def _batch(
    context: CollectionContext,
    reader: Reader,
    collection: int,
    wanted: _Wanted,
    span: tuple[int, int],
) -> list[ItemRow | TurnRow]:
    sql = context.sql
    before, rows = span
    place = {"collection": collection, "before": before, "rows": rows}
    if wanted.items:
        chosen = reader.all(
            NumberedRow,
            sql.item_numbers,
            kinds=wanted.kinds,
            superseded=int(wanted.superseded),
            held=int(wanted.held),
            **place,
        )
    else:
        chosen = reader.all(NumberedRow, sql.turn_numbers, held=int(wanted.held), **place)
    if not chosen:
        return []
    numbers = numbers_text([each.number for each in chosen])
    found: list[ItemRow | TurnRow] = (
        [*reader.all(ItemRow, sql.items_numbered, collection=collection, numbers=numbers)]
        if wanted.items
        else [*reader.all(TurnRow, sql.turns_numbered, collection=collection, numbers=numbers)]
    )
    return sorted(found, key=lambda row: row.number, reverse=True)


def _wanted(context: CollectionContext, filters: ItemFilter) -> _Wanted:
    if filters.what not in {"items", "turns"}:
        raise InvalidInput("what", "must be items or turns", given=filters.what)
    kinds = checked_kinds(filters.kinds)
    items = filters.what == "items"
    if kinds is not None and not items:
        raise InvalidInput("kinds", "are of items alone", next="Leave it out for turns.")
    query = "" if filters.query is None else checked_query(filters.query)
    terms = tuple(term.casefold() for term in query.split())
    named = sorted(kinds) if kinds is not None else None
    moment = moment_of(context, filters.at, filters.valid_at)
    if moment is not None and filters.include_superseded:
        raise InvalidInput("include_superseded", "does not go with at or valid_at")
    collection = (context.workspace, context.user, *context.named.values())
    return _Wanted(
        items=items,
        kinds="" if named is None else f",{','.join(named)},",
        terms=terms,
        superseded=bool(filters.include_superseded),
        held=bool(filters.held),
        moment=moment,
        stamp=digest(
            collection,
            items,
            named,
            terms,
            bool(filters.include_superseded),
            bool(filters.held),
            moment,
        ),
    )


EXTRACT, FAILED = "extract", "failed"


class JobStatus(Struct, frozen=True, kw_only=True):
    """Number of jobs of one kind in one state."""

    kind: str
    state: str
    jobs: int


def status(context: CollectionContext) -> LongTermStatus:
    """Return the status of the caller's collection."""

    def work(reader: Reader) -> LongTermStatus:
        collection = collection_of(context, reader)
        jobs = _jobs(context, reader)
        mining = state_of(context, reader, collection)
        waiting = [each for each in jobs if each.state != FAILED]
        return LongTermStatus(
            mode=_mode(context, reader),
            reason=context.degraded or reason_of(context),
            embedding_model=context.embedding_model
            or (collection.embedding_model if collection else None),
            vector_provider=collection.vector_provider if collection else None,
            items=collection.items - collection.superseded if collection else 0,
            superseded=collection.superseded if collection else 0,
            turns=collection.turns if collection else 0,
            pending_extraction=sum(each.jobs for each in waiting if each.kind == EXTRACT),
            pending_embedding=sum(each.jobs for each in waiting if each.kind != EXTRACT),
            failed=sum(each.jobs for each in jobs if each.state == FAILED),
            max_items=context.max_items,
            extractor=mining.extractor,
            extractor_state=mining.state,
            extractor_reason=mining.reason,
            mined_at=from_microseconds_or_none(collection.mined_at if collection else None),
            held=collection.held if collection else 0,
            unmined=uncovered(context, reader, collection) if collection else 0,
        )

    return context.engine.read(work)


def _mode(context: CollectionContext, reader: Reader) -> Mode:
    """Return the mode of recall."""
    by = compared(context)
    if by is None:
        return "lexical"
    found = reader.first(EmbeddingState, context.job_sql.standing, **context.named)
    if found is None or (fits(by, found) and not found.reembedding):
        return "hybrid"
    return "re-embedding"


def reason_of(context: CollectionContext) -> str | None:
    """Return the embedder's last error; None while it works."""
    model = context.embedder.model if context.embedder else ""
    return context.shared.troubles.get(model) if context.embedder else None


def jobs_of(context: CollectionContext) -> list[JobStatus]:
    """Return the numbers of jobs of the caller's collection by kind and state."""
    return context.engine.read(partial(_jobs, context))


def _jobs(context: CollectionContext, reader: Reader) -> list[JobStatus]:
    collection = collection_of(context, reader)
    if collection is None:
        return []
    return reader.all(
        JobStatus,
        context.sql.count_jobs,
        collection=collection.number,
        quick=len(AGAIN),
        now=context.now(),
    )


def retry(context: CollectionContext) -> int:
    """Queue failed jobs again; return how many."""

    def work(tx: Transaction) -> int:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None:
            return 0
        return tx.run(unit.sql.retry_jobs, collection=unit.number, now=unit.now)

    return context.engine.write(work)


class _CollectionSize(Struct, frozen=True, kw_only=True):
    items: int
    turns: int
    held: int


def gauges(engine: Engine) -> dict[str, float]:
    """Return the numbers of items, turns and jobs in *engine*'s scope, by sample name."""
    sql = engine.queries("holdfast.memories.longterm")
    size = engine.one(_CollectionSize, sql.held_by_all)
    jobs = dict.fromkeys(product(_JOB_KINDS, _JOB_STATES), 0)
    jobs |= {(each.kind, each.state): each.jobs for each in engine.all(JobStatus, sql.jobs_of_all)}
    named = {f'jobs{{kind="{kind}",state="{state}"}}': jobs[kind, state] for kind, state in jobs}
    return {"items": size.items, "turns": size.turns, "held": size.held, **named}


PEOPLE: Final = 50
_PEOPLE: Final = "longterm_people"
_END: Final = "\U0010ffff" * (NAME_BYTES // 4 + 1)
"""After every name: the last character, more often than a name has room for."""


class _PersonRow(Struct, frozen=True, kw_only=True):
    user_id: str
    namespace: str
    workspace_id: str
    items: int
    turns: int
    item_at: int | None
    turn_at: int | None

    def record(self) -> Person:
        at = max((at for at in (self.item_at, self.turn_at) if at is not None), default=None)
        return Person(
            user=self.user_id,
            namespace=self.namespace,
            workspace_id=self.workspace_id or None,
            items=self.items,
            turns=self.turns,
            last_at=from_microseconds_or_none(at),
        )


def list_people(
    engine: Engine, workspace: str, prefix: str, *, limit: int | None, page: str | None
) -> Page[Person]:
    """Return the collections of *workspace* that hold anything, by user.

    Only those of users with a name that begins with *prefix*. *engine* need not be scoped.
    """
    rows = check_limit(limit, most=MOST_LISTED, default=PEOPLE)
    start = to_nfc(check_bytes("prefix", prefix, most=NAME_BYTES))
    stamp = digest(workspace, start)
    after = [start, "", ""] if page is None else _names_in(read_cursor(_PEOPLE, stamp, page)[0])
    own = engine.scoped(Scope(workspace=workspace, user=EVERYBODY.user))
    found = own.all(
        _PersonRow,
        own.queries("holdfast.memories.longterm").list_people,
        after_user=after[0],
        after_namespace=after[1],
        after_id=after[2],
        end=start + _END,
        rows=rows + 1,
    )
    shown = found[:rows]
    key: Key = [shown[-1].user_id, shown[-1].namespace, shown[-1].workspace_id] if shown else []
    return Page(
        [row.record() for row in shown],
        write_cursor(_PEOPLE, stamp, key) if len(found) > rows else None,
        more=lambda page: list_people(engine, workspace, prefix, limit=limit, page=page),
    )


def _names_in(key: Key) -> list[str]:
    match key:
        case [str(), str(), str()] if not any("\0" in str(name) for name in key):
            return [str(name) for name in key]
        case _:
            raise no_cursor()
