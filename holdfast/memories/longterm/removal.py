"""What goes when a cap is passed: the least worth keeping, in the write that passed it."""

from heapq import nsmallest

from msgspec import Struct

from holdfast.memories.longterm.recall.index import DAY
from holdfast.memories.longterm.removing import GoneItem, GoneTurn, remove_item, remove_turn
from holdfast.memories.longterm.rows import numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction

_RECENCY, _IMPORTANCE = 0.2, 0.1


class ItemWeight(Struct, frozen=True):
    """An item, by what it is kept for."""

    number: int
    importance: float
    created_at: int
    superseded_at: int | None
    last_accessed_at: int | None


def retention(item: ItemWeight, *, now: int, half_life_days: float) -> float:
    """Return how much *item* is worth keeping, 0 to 1."""
    seen = max(item.created_at, item.last_accessed_at or item.created_at)
    fresh = 2.0 ** (-max(0, now - seen) / (DAY * half_life_days))
    return (_RECENCY * fresh + _IMPORTANCE * item.importance) / (_RECENCY + _IMPORTANCE)


def order(item: ItemWeight, *, now: int, half_life_days: float) -> tuple[int, float, int]:
    """Return the place of *item* among those that go: superseded first, then the least worth."""
    if item.superseded_at is not None:
        return 0, 0.0, item.number
    return 1, retention(item, now=now, half_life_days=half_life_days), item.number


def evict_items(book: CollectionTransaction, *, keep: int) -> tuple[str, ...]:
    """Take away as many items as are over the cap, but not the one numbered *keep*."""
    cap = book.caller.max_items
    over = book.items - cap if cap else 0
    if over <= 0:
        return ()
    half_life = book.caller.options.half_life_days
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
    return _told(book, "item", ids)


def evict_turns(book: CollectionTransaction) -> tuple[str, ...]:
    """Take away as many turns as are over the cap, those said first."""
    cap = book.caller.options.max_turns
    over = book.turns - cap if cap else 0
    if over <= 0:
        return ()
    going = book.tx.all(GoneTurn, book.sql.oldest_turns, collection=book.number, rows=over)
    for turn in going:
        remove_turn(book, turn)
    return _told(book, "turn", tuple(turn.id for turn in going))


def _told(book: CollectionTransaction, kind: str, ids: tuple[str, ...]) -> tuple[str, ...]:
    if ids:
        book.note("evicted", {kind: ids}, **{f"{kind}s": len(ids)})
        counts = book.caller.shared.counts
        book.tx.after_commit(lambda: counts.add("evicted_total", by=len(ids)))
    return ids
