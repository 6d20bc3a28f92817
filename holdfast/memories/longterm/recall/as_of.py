"""Items and turns as they were at an earlier moment, and postings of them.

An item that never changed has no history; its row is its state since it was created. The first
change writes that state to the history, and each change the state after it. What was forgotten is
gone from the history too.

The postings are made of the rows of one moment alone, so that statistics and scores are those that
a recall then would have had, but for access: when rows were recalled does not count.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader
from holdfast.ground.errors import InvalidInput
from holdfast.ground.ids import TIME, base62
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.analyze import analyze, flags_of
from holdfast.memories.longterm.recall.cache import (
    CachedPostings,
    ItemSource,
    PastPostings,
    sources_of,
    turn_row,
)
from holdfast.memories.longterm.recall.index import Postings, Row
from holdfast.memories.longterm.records import Item, Turn
from holdfast.memories.longterm.rows import (
    EVER,
    Collection,
    ItemRow,
    ItemState,
    Moment,
    TurnRow,
    numbers_text,
    was_there,
)
from holdfast.memories.longterm.validation import checked_instant, microseconds
from holdfast.memories.longterm.vectors.table import among


def moment_of(context: CollectionContext, at: object, valid_at: object) -> Moment | None:
    """Validate the times of an answer: aware datetimes or RFC 3339, not in the future.

    None if both are None: the present.
    """
    if at is None and valid_at is None:
        return None
    return Moment(
        at=_past(context, "at", checked_instant("at", at)),
        valid_at=_past(context, "valid_at", checked_instant("valid_at", valid_at)),
    )


def _past(context: CollectionContext, field: str, instant: datetime | None) -> int | None:
    if instant is None:
        return None
    found = microseconds(instant, 0)
    if found > context.now():
        raise InvalidInput(field, "is in the future", given=instant)
    return found


def states(
    context: CollectionContext, reader: Reader, collection: int, moment: Moment
) -> list[ItemState]:
    """Return the items as they were, in order of recording."""
    at = context.now() if moment.at is None else moment.at
    found = reader.all(ItemState, context.sql.states_at, collection=collection, at=at)
    return [each for each in found if moment.holds(each.valid_from, each.valid_to)]


def items_of(
    context: CollectionContext,
    reader: Reader,
    collection: int,
    wanted: Iterable[ItemState],
    at: int,
) -> dict[int, Item]:
    """Return the items of the states *wanted* by number, as they were."""
    by_number = {each.number: each for each in wanted}
    if not by_number:
        return {}
    rows = reader.all(
        ItemRow,
        context.sql.items_numbered,
        collection=collection,
        numbers=numbers_text(set(by_number)),
    )
    return {row.number: by_number[row.number].of(row.record(), at) for row in rows}


def turns_of(
    context: CollectionContext, reader: Reader, collection: int, numbers: set[int], at: int
) -> dict[int, Turn]:
    """Return the turns called *numbers* that were recorded by then."""
    if not numbers:
        return {}
    rows = reader.all(
        TurnRow,
        context.sql.turns_numbered,
        collection=collection,
        numbers=numbers_text(numbers),
    )
    return {row.number: _as_of(row.record(), at) for row in rows if row.created_at <= at}


def erased_since(
    context: CollectionContext, reader: Reader, collection: int, kind: str, at: int
) -> int:
    """Count the rows of *kind* of that instant that were forgotten since."""
    rows = reader.rows(
        context.sql.erased_since,
        collection=collection,
        at=at,
        first=f"{kind}_",
        last=f"{kind}_{base62(at + 1, TIME)}",
    )
    return rows[0][0]


def _as_of(turn: Turn, at: int) -> Turn:
    return replace(turn, items=tuple(id for id in turn.items if was_there(id, at)))


class AdjacentChanges(Struct, frozen=True):
    """The last change of a collection by an instant, and the next; None for none."""

    last: int | None
    next: int | None


class Past(Struct, frozen=True, kw_only=True):
    """The postings of one moment, with the states of its items by number."""

    entry: CachedPostings
    states: Mapping[int, ItemState]
    at: int

    def known(self, cosines: Mapping[str, float]) -> dict[str, float]:
        """Return *cosines* without those of items with another text then than today."""
        others = {each.id for each in self.states.values() if each.changed}
        postings = self.entry.postings
        cosines = among(cosines, [row.id for row in postings.rows] if postings else ())
        return {id: each for id, each in cosines.items() if id not in others}

    def items(
        self, context: CollectionContext, reader: Reader, numbers: set[int]
    ) -> dict[int, Item]:
        """Return the items called *numbers* as they were."""
        wanted = [self.states[number] for number in numbers if number in self.states]
        return items_of(context, reader, self.entry.collection, wanted, self.at)

    def turns(
        self, context: CollectionContext, reader: Reader, numbers: set[int]
    ) -> dict[int, Turn]:
        """Return the turns called *numbers* that were recorded by then."""
        return turns_of(context, reader, self.entry.collection, numbers, self.at)


def past_of(
    context: CollectionContext, reader: Reader, collection: Collection, moment: Moment
) -> Past:
    """Return the postings of *collection* at *moment*.

    The last ones are cached; they are also those of other moments if nothing changed between.
    """
    cached = context.shared.kept.entry(collection.number, context.place)
    at = context.now() if moment.at is None else moment.at
    with cached.lock:
        past = cached.past
    if past is None or not past.holds(collection.version, moment, at):
        found = {each.number: each for each in states(context, reader, collection.number, moment)}
        entry = CachedPostings(collection.number, context.place)
        entry.postings = Postings(_rows(context, reader, entry, moment, found))
        place = {"collection": collection.number, "at": at}
        around = reader.one(AdjacentChanges, context.sql.changes_around, **place)
        past = PastPostings(
            version=collection.version,
            valid_at=moment.valid_at,
            since=at if around.last is None else around.last,
            until=EVER if around.next is None else around.next,
            entry=entry,
            states=found,
        )
        with cached.lock:
            cached.past = past
        context.shared.kept.weigh(collection.number, cached)
    return Past(entry=past.entry, states=past.states, at=at)


def _rows(
    context: CollectionContext,
    reader: Reader,
    entry: CachedPostings,
    moment: Moment,
    items: Mapping[int, ItemState],
) -> list[Row]:
    at = context.now() if moment.at is None else moment.at
    sql, place = context.sql, {"collection": entry.collection, "at": at}
    turns = [turn_row(each) for each in reader.rows(sql.turns_at, **place)]
    if moment.valid_at is not None:
        turns = [each for each in turns if each.at <= moment.valid_at]
    if not items:
        return turns
    sources = sources_of(reader.rows(sql.links_at, **place))
    none = ItemSource()
    return [*turns, *(_row(each, sources.get(each.number, none)) for each in items.values())]


def _row(state: ItemState, source: ItemSource) -> Row:
    flags = flags_of(state.text, None)
    return Row(
        id=state.id,
        seq=state.number,
        body=" ".join(analyze(state.text)),
        at=state.created_at,
        kind=state.kind,
        speakers=source.speakers,
        thread=source.thread,
        session=source.session,
        dated=source.at,
        importance=state.importance,
        question=flags.question,
        first_person=flags.first_person,
        time=flags.time,
        cites=source.ids,
        text=state.text,
        tier=state.tier,
    )
