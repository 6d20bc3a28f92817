"""Evict and remove items and turns."""

from heapq import nsmallest
from typing import Final

from msgspec import Struct

from holdfast.ground.metrics import REGISTRY
from holdfast.memories.longterm.recall.index import DAY
from holdfast.memories.longterm.records import terms_hash
from holdfast.memories.longterm.rows import numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange

_EVICTED: Final = REGISTRY.counter("ltm_evicted_total", "Items and turns evicted for new ones.")


class GoneItem(Struct, frozen=True, kw_only=True):
    """An item to delete."""

    number: int
    id: str
    body: str
    superseded_at: int | None


class GoneTurn(Struct, frozen=True, kw_only=True):
    """A turn to delete."""

    number: int
    id: str
    body: str
    fingerprint: bytes


def remove_item(book: CollectionTransaction, item: GoneItem) -> None:
    """Delete *item*."""
    tx, sql, place = book.tx, book.sql, {"collection": book.number, "number": item.number}
    tx.send(sql.drop_item, **place)
    tx.send(sql.drop_links_of_item, **place)
    tx.send(sql.drop_successor, collection=book.number, id=item.id)
    _remove(book, item.number, item.id)
    superseded = item.superseded_at is not None
    book.dropped(PostingChange(item.number, item.body), item=True, superseded=superseded)


def remove_turn(book: CollectionTransaction, turn: GoneTurn) -> None:
    """Delete *turn*; items that came from it lose the link."""
    place = {"collection": book.number, "number": turn.number}
    book.vectors.drop_after(turn.number)
    book.tx.send(book.sql.drop_turn, **place)
    book.tx.send(book.sql.drop_links_of_turn, **place)
    _remove(book, turn.number, turn.id)
    book.dropped(PostingChange(turn.number, turn.body), item=False)


def bury(book: CollectionTransaction, gone: GoneItem | GoneTurn) -> None:
    """Write the tombstone of *gone*, so that it is not extracted again."""
    book.tx.send(
        book.sql.bury,
        collection=book.number,
        id=gone.id,
        now=book.now,
        terms=terms_hash(book.secret, gone.body.split()),
        fingerprint=gone.fingerprint if isinstance(gone, GoneTurn) else None,
    )


def _remove(book: CollectionTransaction, number: int, id: str) -> None:
    book.tx.send(book.sql.drop_access, collection=book.number, number=number)
    book.vectors.drop(id)


_RECENCY, _IMPORTANCE = 0.2, 0.1


class ItemWeight(Struct, frozen=True):
    """An item with the values that decide on its eviction."""

    number: int
    importance: float
    created_at: int
    superseded_at: int | None
    last_accessed_at: int | None


def retention(item: ItemWeight, *, now: int, half_life_days: float) -> float:
    """Return the retention value of *item*, 0 to 1."""
    seen = max(item.created_at, item.last_accessed_at or item.created_at)
    fresh = 2.0 ** (-max(0, now - seen) / (DAY * half_life_days))
    return (_RECENCY * fresh + _IMPORTANCE * item.importance) / (_RECENCY + _IMPORTANCE)


def order(item: ItemWeight, *, now: int, half_life_days: float) -> tuple[int, float, int]:
    """Return the sort key of *item* for eviction: superseded first, then least value."""
    if item.superseded_at is not None:
        return 0, 0.0, item.number
    return 1, retention(item, now=now, half_life_days=half_life_days), item.number


def evict_items(book: CollectionTransaction, *, keep: int) -> tuple[str, ...]:
    """Delete the items beyond the limit, but not the one numbered *keep*."""
    cap = book.context.max_items
    over = book.items - cap if cap else 0
    if over <= 0:
        return ()
    half_life = book.context.options.half_life_days
    rows = book.tx.rows(book.sql.items_to_weigh, collection=book.number)
    there = (ItemWeight(*row) for row in rows if row[0] != keep)
    going = nsmallest(
        over, there, key=lambda item: order(item, now=book.now, half_life_days=half_life)
    )
    gone = book.tx.all(
        GoneItem,
        book.sql.items_to_bury,
        collection=book.number,
        numbers=numbers_text([item.number for item in going]),
    )
    for item in gone:
        remove_item(book, item)
    by_number = {item.number: item.id for item in gone}
    ids = tuple(by_number[item.number] for item in going)
    return _evicted(book, "item", ids)


def evict_turns(book: CollectionTransaction) -> tuple[str, ...]:
    """Delete the turns beyond the limit, the oldest first."""
    cap = book.context.options.max_turns
    over = book.turns - cap if cap else 0
    if over <= 0:
        return ()
    going = book.tx.all(GoneTurn, book.sql.oldest_turns, collection=book.number, rows=over)
    for turn in going:
        remove_turn(book, turn)
    return _evicted(book, "turn", tuple(turn.id for turn in going))


def _evicted(book: CollectionTransaction, kind: str, ids: tuple[str, ...]) -> tuple[str, ...]:
    if ids:
        book.note("evicted", {kind: ids}, **{f"{kind}s": len(ids)})
        book.tx.after_commit(lambda: _EVICTED.add(by=len(ids)))
    return ids
