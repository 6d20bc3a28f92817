"""Fetch the rows of ranked ids."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from holdfast.engines.base import Reader, Row
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.records import Item, Ranked, Recalled, Turn
from holdfast.memories.longterm.rows import ItemRow, TurnRow, numbers_text

_COLLECTION, _ITEM = 0, 1


class Placed(Struct, frozen=True):
    """A ranked row with its number, and whether it is an item.

    For a turn, `beside` has the numbers of the turns before and after it, 0 for none.
    """

    ranked: Ranked
    number: int
    is_item: bool
    beside: tuple[int, int] = (0, 0)


class Stamp(Struct, frozen=True, kw_only=True):
    """The version of a collection at one moment."""

    number: int
    id: str
    version: int
    marks: int


class Fetched(Struct, frozen=True, kw_only=True):
    """Items and turns by number, with the collection at the time of the read.

    `stamp` is None if there is no collection.
    """

    stamp: Stamp | None
    items: dict[int, Item]
    turns: dict[int, Turn]


def fetch(context: CollectionContext, reader: Reader, placed: Sequence[Placed]) -> Fetched:
    """Return the records of *placed*, and of the turns beside them."""
    sql = context.engine.queries("holdfast.memories.longterm")
    turns = {
        number
        for each in placed
        if not each.is_item
        for number in (each.number, *each.beside)
        if number
    }
    rows = reader.rows(
        sql.recalled,
        items=numbers_text({each.number for each in placed if each.is_item}),
        turns=numbers_text(turns),
        **context.named,
    )
    return _fetched(rows)


def recalled_of(fetched: Fetched, placed: Iterable[Placed]) -> tuple[list[Recalled], list[int]]:
    """Return the results of *placed*, and the numbers of those rows.

    Rows that were forgotten since the postings were read are left out.
    """
    recalled: list[Recalled] = []
    numbers: list[int] = []
    for each in placed:
        item, turn = fetched.items.get(each.number), fetched.turns.get(each.number)
        if item is None and turn is None:
            continue
        ranked, (before, after) = each.ranked, each.beside
        numbers.append(each.number)
        recalled.append(
            Recalled(
                item=item,
                turn=turn,
                score=ranked.score,
                similarity=ranked.similarity,
                relevance=ranked.relevance,
                recency=ranked.recency,
                importance=ranked.importance,
                neighbours=(fetched.turns.get(before), fetched.turns.get(after)) if turn else None,
                why=ranked.why,
            )
        )
    return recalled, numbers


def _fetched(rows: Iterable[Row]) -> Fetched:
    stamp: Stamp | None = None
    items: dict[int, Item] = {}
    turns: dict[int, Turn] = {}
    for what, number, *rest in rows:
        if what == _COLLECTION:
            stamp = _stamp(number, rest)
        elif what == _ITEM:
            items[number] = _item(number, rest)
        else:
            turns[number] = _turn(number, rest)
    return Fetched(stamp=stamp, items=items, turns=turns)


def _stamp(number: int, row: list[Any]) -> Stamp:
    return Stamp(number=number, id=row[0], version=row[-1], marks=row[-2])


def _item(number: int, row: list[Any]) -> Item:
    (
        id,
        text,
        kind,
        importance,
        origin,
        source,
        turns,
        supersedes,
        superseded_by,
        superseded_at,
        created_at,
        updated_at,
        accessed_at,
        access_count,
    ) = row
    return ItemRow(
        number=number,
        id=id,
        text=text,
        kind=kind,
        importance=importance,
        origin=origin,
        source=source,
        turns=turns,
        supersedes=supersedes,
        superseded_by=superseded_by,
        superseded_at=superseded_at,
        created_at=created_at,
        updated_at=updated_at,
        last_accessed_at=accessed_at,
        access_count=access_count,
    ).record()


def _turn(number: int, row: list[Any]) -> Turn:
    id, text, role, _, speaker, session, items, thread_id, caption, at, created_at, *_ = row
    return TurnRow(
        number=number,
        id=id,
        role=role,
        text=text,
        speaker=speaker,
        at=at,
        session=session,
        thread_id=thread_id,
        caption=caption,
        created_at=created_at,
        items=items,
    ).record()
