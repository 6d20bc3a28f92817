"""Postings cached by the version of their collection.

Each write raises the collection's version, so the next recall sees it.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader
from holdfast.engines.base import Row as EngineRow
from holdfast.memories.longterm.cache_budget import POSTINGS, ByteBudget, Tenant
from holdfast.memories.longterm.recall.index import ROLE_WORDS, Postings, Row
from holdfast.memories.longterm.rows import (
    FIRST_PERSON,
    NO_STATEMENT,
    QUESTION,
    TIME,
    Collection,
    ItemState,
    Moment,
)

# A turn stays valid until rows are changed or deleted; the turns after it are final once there are
# FOLLOWING of them; document frequencies are valid for one version alone. The time of the last
# recall is never cached: it changes without a new version.

WINDOW: Final = 3
"""Turns before a turn that lend it weight."""
FOLLOWING: Final = 2
"""Turns after a turn that lend it weight."""
MOST_ROWS: Final = 200_000
MOST_TERMS: Final = 200_000
_ROW_BYTES: Final = 900
_BESIDE_BYTES: Final = 400
_TERM_BYTES: Final = 150

Beside = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of the turns before a turn and after it in its session, nearest first."""


class Speaker(Struct, frozen=True):
    """A speaker in the collection, and the role."""

    speaker: str
    role: str


def participants_of(speaking: Iterable[Speaker]) -> tuple[str, ...]:
    """Return the names of *speaking*, without those of roles."""
    names = dict.fromkeys(each.speaker for each in speaking if each.speaker)
    return tuple(name for name in names if name.casefold() not in ROLE_WORDS)


class RowCache:
    """Turns, their neighbours and document frequencies of one collection version."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.df: dict[str, int] = {}
        """Document frequency by term."""
        self.speakers: list[Speaker] | None = None
        """The speakers; None until they are loaded."""
        self._rows: dict[int, Row] = {}
        self._settled: dict[int, Beside] = {}
        self._open: dict[int, Beside] = {}

    def grown_to(self, version: int) -> "RowCache":
        """Return the part that is valid if rows were only added since."""
        if version == self.version and len(self.df) < MOST_TERMS:
            return self
        found = RowCache(version)
        if len(self._rows) < MOST_ROWS:
            found._rows, found._settled = self._rows, self._settled
        return found

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        beside = len(self._settled) + len(self._open)
        rows, terms = len(self._rows), len(self.df)
        return _ROW_BYTES * rows + _BESIDE_BYTES * beside + _TERM_BYTES * terms

    def __contains__(self, number: int) -> bool:
        """Check whether the turn *number* is cached."""
        return number << 2 in self._rows

    def keep(self, row: Row) -> None:
        """Cache a turn."""
        self._rows[row.seq << 2] = row

    def turn(self, number: int, *, apart: bool, context: bool) -> Row:
        """Return the cached turn *number* with its flags for the rows at hand."""
        key = number << 2 | apart << 1 | context
        found = self._rows.get(key)
        if found is None:
            whole = self._rows[number << 2]
            found = self._rows[key] = replace(whole, apart=apart, context=context)
        return found

    def beside(self, number: int) -> Beside | None:
        """Return the neighbours of the turn *number*, or None if they are not cached."""
        return self._settled.get(number) or self._open.get(number)

    def stand(self, number: int, beside: Beside) -> None:
        """Cache the neighbours of the turn *number*."""
        settled = len(beside[1]) == FOLLOWING
        (self._settled if settled else self._open)[number] = beside


Place = tuple[str, str, str, str]
"""The name of a collection: its workspace, user, namespace and workspace_id."""


class CachedPostings:
    """The postings of one collection as of one version; used with `lock` held."""

    def __init__(self, collection: int, place: Place) -> None:
        self.collection, self.place = collection, place
        self.lock = threading.Lock()
        self.postings: Postings | None = None
        self.version = -1
        self.marks = -1
        self.last = 0
        """The number of the last row that is in the postings."""
        self.past: PastPostings | None = None
        self._before: dict[int, int] | None = None
        self._row_cache: RowCache | None = None

    def grown(self) -> None:
        """Drop values computed from the earlier rows."""
        self._before = self._row_cache = None

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        past = self.past.entry.postings if self.past else None
        found = (self.postings, self._row_cache, past)
        return sum(each.size_bytes for each in found if each is not None)

    def row_cache(self, collection: Collection) -> RowCache:
        """Return the cached rows of *collection*, which is too large for full postings."""
        self.postings = self._before = None
        found = self._row_cache
        if found is None or found.version < collection.redone:
            found = RowCache(collection.version)
        elif found.version > collection.version:
            return RowCache(collection.version)
        self._row_cache = found.grown_to(collection.version)
        return self._row_cache

    def participants(self, version: int) -> tuple[str, ...] | None:
        """Return the cached participants as of *version*; None if there are none."""
        if self.postings is not None:
            return self.postings.participants if self.version == version else None
        known = self._row_cache
        if known is None or known.version != version or known.speakers is None:
            return None
        return participants_of(known.speakers)

    def beside(self, number: int) -> tuple[int, int]:
        """Return the neighbours of the row *number* of the postings in its session.

        They are the recording numbers of the turn before and the turn after it, 0 for none.
        """
        postings = self.postings
        if postings is None:
            return 0, 0
        following = postings.next[0]
        if self._before is None:
            self._before = {after: at for at, after in enumerate(following) if after >= 0}
        earlier, later = self._before.get(number, -1), following[number]
        rows = postings.rows
        return (
            rows[earlier].seq if earlier >= 0 else 0,
            rows[later].seq if later >= 0 else 0,
        )


class PastPostings(Struct, frozen=True, kw_only=True):
    """The postings of an earlier moment, and the states of its items by number.

    They are those of every instant from *since* until before *until*, as nothing changed between,
    in *version* of the collection and for *valid_at* of the moment.
    """

    version: int
    valid_at: int | None
    since: int
    until: int
    entry: CachedPostings
    states: Mapping[int, ItemState]

    def holds(self, version: int, moment: Moment, at: int) -> bool:
        """Check whether these are the postings of *moment*, which is the instant *at*."""
        same = self.version == version and self.valid_at == moment.valid_at
        return same and self.since <= at < self.until


class PostingsCache:
    """LRU cache of postings by collection, within a shared byte budget."""

    def __init__(self, room: ByteBudget) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._entries: dict[int, CachedPostings] = {}
        self._places: dict[Place, int] = {}

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return self._room.sizes()[POSTINGS]

    def entry(self, collection: int, place: Place) -> CachedPostings:
        """Return the entry of *collection*, which *place* names; create it if needed."""
        with self._lock:
            entry = self._entries.get(collection)
            if entry is None:
                entry = self._entries[collection] = CachedPostings(collection, place)
                self._places[place] = collection
        self._room.used(Tenant(POSTINGS, collection))
        return entry

    def at(self, place: Place) -> CachedPostings | None:
        """Return the cached entry of the collection that *place* names, or None."""
        with self._lock:
            collection = self._places.get(place)
            if collection is None:
                return None
            entry = self._entries[collection]
        self._room.used(Tenant(POSTINGS, collection))
        return entry

    def weigh(self, collection: int, entry: CachedPostings) -> None:
        """Record the size of *entry*, and evict others beyond the budget."""
        if self._entries.get(collection) is entry:
            self._room.take(
                Tenant(POSTINGS, collection), entry.size_bytes, lambda: self.drop(collection)
            )

    def drop(self, collection: int) -> None:
        """Evict the entry of *collection*."""
        with self._lock:
            entry = self._entries.pop(collection, None)
            if entry is not None and self._places.get(entry.place) == collection:
                del self._places[entry.place]
        self._room.left(Tenant(POSTINGS, collection))

    def clear(self) -> None:
        """Evict all entries."""
        for collection in list(self._entries):
            self.drop(collection)


class ItemSource(Struct):
    """Sources of an item: turn ids, speakers, and time and place of the first turn."""

    ids: tuple[str, ...] = ()
    speakers: tuple[str, ...] = ()
    at: int | None = None
    thread: str | None = None
    session: str | None = None


class AccessTime(Struct, frozen=True):
    """When a row was last recalled."""

    number: int
    last_accessed_at: int


def bring_up(entry: CachedPostings, engine: Engine, reader: Reader, collection: Collection) -> bool:
    """Update *entry* to *collection* as *reader* sees it; return whether it grew.

    New rows are added; if others changed or were deleted, all rows are read again.
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
        for each in reader.all(AccessTime, sql.access_rows, collection=collection.number):
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
    """Convert a row of `turn_rows`."""
    id, number, body, at, role, speaker, thread, session, flags, accessed, tier = row
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
        noise=bool(flags & NO_STATEMENT),
        tier=tier,
    )


def item_row(row: EngineRow, source: ItemSource) -> Row:
    """Convert a row of `item_rows` and its *source*."""
    id, number, body, created_at, kind, importance, flags, text, accessed, tier, until = row
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
        tier=tier,
        until=until,
    )


def sources_of(rows: Iterable[EngineRow]) -> dict[int, ItemSource]:
    """Return the sources of items by number; *rows* are of `link_rows`."""
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
