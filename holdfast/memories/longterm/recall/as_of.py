"""Postings of a collection as it was at an earlier moment, or of what was true then.

They are made of the rows of that moment alone, so that statistics and scores are those that a
recall then would have had, but for access: when rows were recalled does not count.
"""

from collections.abc import Mapping

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.history import items_of, states, turns_of
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
from holdfast.memories.longterm.rows import Collection, ItemState, Moment


class Past(Struct, frozen=True, kw_only=True):
    """The postings of one moment, with the states of its items by number."""

    entry: CachedPostings
    states: Mapping[int, ItemState]
    at: int

    def known(self, cosines: Mapping[str, float]) -> dict[str, float]:
        """Return *cosines* without those of items with another text then than today."""
        others = {each.id for each in self.states.values() if each.changed}
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
    """Return the postings of *collection* at *moment*; the last ones are cached."""
    cached = context.shared.kept.entry(collection.number, context.place)
    at = context.now() if moment.at is None else moment.at
    key = (collection.version, moment.at, moment.valid_at)
    with cached.lock:
        if cached.past is not None and cached.past.key == key and moment.at is not None:
            return Past(entry=cached.past.entry, states=cached.past.states, at=at)
    found = {each.number: each for each in states(context, reader, collection.number, moment)}
    entry = CachedPostings(collection.number, context.place)
    entry.postings = Postings(_rows(context, reader, entry, moment, found))
    with cached.lock:
        cached.past = PastPostings(key=key, entry=entry, states=found)
    context.shared.kept.weigh(collection.number, cached)
    return Past(entry=entry, states=found, at=at)


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
