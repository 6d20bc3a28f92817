"""From stored rows to the postings that recall works on."""

from collections.abc import Iterable

from msgspec import Struct

from holdfast.engines.base import Engine, Reader
from holdfast.engines.base import Row as EngineRow
from holdfast.memories.longterm.recall.cache import CachedPostings
from holdfast.memories.longterm.recall.index import Postings, Row
from holdfast.memories.longterm.rows import FIRST_PERSON, QUESTION, TIME, Collection


class ItemSource(Struct):
    """What an item came from: the turns' ids and speakers, and where and when the first was."""

    ids: tuple[str, ...] = ()
    speakers: tuple[str, ...] = ()
    at: int | None = None
    thread: str | None = None
    session: str | None = None


class Accessed(Struct, frozen=True):
    """When a row was last recalled."""

    number: int
    last_accessed_at: int


def bring_up(entry: CachedPostings, engine: Engine, reader: Reader, collection: Collection) -> bool:
    """Let *entry* hold the postings of *collection* as *reader* sees it; tell whether they grew.

    Rows recorded since are added; where others changed or went, all is read anew.
    """
    postings, grown = entry.postings, False
    if postings is None or entry.version < collection.redone:
        postings = entry.postings = Postings(rows_after(engine, reader, collection.number, 0))
        _as_of(entry, collection, postings)
        entry.grown()
        return True
    if entry.version < collection.version:
        postings.add(rows_after(engine, reader, collection.number, entry.last))
        entry.grown()
        grown = True
    if entry.marks < collection.marks:
        sql = engine.queries("holdfast.memories.longterm")
        numbers = {row.seq: row.id for row in postings.rows}
        for each in reader.all(Accessed, sql.access_rows, collection=collection.number):
            if (id := numbers.get(each.number)) is not None:
                postings.touch(id, each.last_accessed_at)
    if entry.version < collection.version or entry.marks < collection.marks:
        _as_of(entry, collection, postings)
    return grown


def rows_after(engine: Engine, reader: Reader, collection: int, after: int) -> list[Row]:
    """Return the rows of a collection recorded after the number *after*."""
    sql = engine.queries("holdfast.memories.longterm")
    place = {"collection": collection, "after": after}
    turns = [turn_row(each) for each in reader.rows(sql.turn_rows, **place)]
    items = reader.rows(sql.item_rows, **place)
    if not items:
        return turns
    sources = sources_of(reader.rows(sql.link_rows, **place))
    return [*turns, *(item_row(each, sources.get(each[1], ItemSource())) for each in items)]


def turn_row(row: EngineRow) -> Row:
    """Return a turn as recall sees it; *row* is of `turn_rows`."""
    id, number, body, at, role, speaker, thread, session, flags, accessed, *rest = row
    apart, context = rest or (False, False)
    return Row(
        id=id,
        seq=number,
        body=body,
        at=at,
        role=role,
        speaker=speaker or None,
        thread=thread or None,
        session=session or None,
        last_accessed=accessed,
        question=bool(flags & QUESTION),
        first_person=bool(flags & FIRST_PERSON),
        time=bool(flags & TIME),
        apart=apart,
        context=context,
    )


def item_row(row: EngineRow, source: ItemSource) -> Row:
    """Return an item as recall sees it; *row* is of `item_rows`."""
    id, number, body, created_at, kind, importance, flags, text, accessed = row
    return Row(
        id=id,
        seq=number,
        body=body,
        at=created_at,
        kind=kind,
        speakers=source.speakers,
        thread=source.thread,
        session=source.session,
        dated=source.at,
        last_accessed=accessed,
        importance=importance,
        question=bool(flags & QUESTION),
        first_person=bool(flags & FIRST_PERSON),
        time=bool(flags & TIME),
        cites=source.ids,
        text=text,
    )


def sources_of(rows: Iterable[EngineRow]) -> dict[int, ItemSource]:
    """Return what items came from, by their numbers; *rows* are of `link_rows`."""
    found: dict[int, ItemSource] = {}
    for item, id, at, thread, session, speaker in rows:
        source = found.get(item)
        if source is None:
            source = found[item] = ItemSource(at=at, thread=thread or None, session=session or None)
        source.ids += (id,)
        source.at = min(source.at, at)
        if speaker and speaker not in source.speakers:
            source.speakers += (speaker,)
    return found


def _as_of(entry: CachedPostings, collection: Collection, postings: Postings) -> None:
    entry.version, entry.marks = collection.version, collection.marks
    entry.last = postings.rows[-1].seq if postings.rows else 0
