"""Evict and remove items and turns."""

from typing import Final

from msgspec import Struct

from holdfast.ground.metrics import REGISTRY
from holdfast.ground.trust import HELD_DAYS
from holdfast.memories.longterm.recall.index import DAY
from holdfast.memories.longterm.records import terms_hash
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange

_EVICTED: Final = REGISTRY.counter("ltm_evicted_total", "Items and turns evicted for new ones.")


class GoneItem(Struct, frozen=True, kw_only=True):
    """An item to delete."""

    number: int
    id: str
    body: str
    superseded_at: int | None
    held: str | None


class GoneTurn(Struct, frozen=True, kw_only=True):
    """A turn to delete."""

    number: int
    id: str
    body: str
    fingerprint: bytes
    held: str | None


def remove_item(unit: CollectionTransaction, item: GoneItem) -> None:
    """Delete *item*."""
    tx, sql, place = unit.tx, unit.sql, {"collection": unit.number, "number": item.number}
    tx.send(sql.drop_item, **place)
    tx.send(sql.drop_links_of_item, **place)
    tx.send(sql.drop_states, **place)
    tx.send(sql.drop_successor, collection=unit.number, id=item.id)
    _remove(unit, item.number, item.id)
    if item.held is not None:
        unit.dropped_held()
        return
    superseded = item.superseded_at is not None
    unit.dropped(PostingChange(item.number, item.body), item=True, superseded=superseded)


def remove_turn(unit: CollectionTransaction, turn: GoneTurn) -> None:
    """Delete *turn*; items that came from it lose the link."""
    place = {"collection": unit.number, "number": turn.number}
    unit.tx.send(unit.sql.drop_turn, **place)
    unit.tx.send(unit.sql.drop_links_of_turn, **place)
    _remove(unit, turn.number, turn.id)
    if turn.held is None:
        unit.dropped(PostingChange(turn.number, turn.body), item=False)
    else:
        unit.dropped_held()


def bury(unit: CollectionTransaction, gone: GoneItem | GoneTurn) -> None:
    """Write the tombstone of *gone*, so that it is not extracted again."""
    unit.tx.send(
        unit.sql.bury,
        collection=unit.number,
        id=gone.id,
        now=unit.now,
        terms=terms_hash(unit.secret, gone.body.split()),
        fingerprint=gone.fingerprint if isinstance(gone, GoneTurn) else None,
    )


def _remove(unit: CollectionTransaction, number: int, id: str) -> None:
    unit.tx.send(unit.sql.drop_access, collection=unit.number, number=number)
    unit.vectors.drop(id)
    # A proposal and a logged call to a model may hold its text.
    unit.tx.send(unit.sql.blank_changes, like=f'%"{id}"%')
    unit.tx.send(unit.sql.drop_calls)


_BRIEFEST, _LONGEST = 1.0, 1e18
"""Microseconds of a half-life within which no engine's arithmetic overflows."""


def evict_items(unit: CollectionTransaction, *, keep: int) -> tuple[str, ...]:
    """Delete the items beyond the limit, but not the one numbered *keep*."""
    cap = unit.context.max_items
    over = unit.items - cap if cap else 0
    if over <= 0:
        return ()
    span = unit.context.options.half_life_days * DAY
    going = unit.tx.all(
        GoneItem,
        unit.sql.items_to_evict,
        collection=unit.number,
        keep=keep,
        now=unit.now,
        half_life=min(max(span, _BRIEFEST), _LONGEST),
        rows=over,
    )
    for item in going:
        remove_item(unit, item)
    return _evicted(unit, "item", tuple(item.id for item in going))


def evict_turns(unit: CollectionTransaction) -> tuple[str, ...]:
    """Delete the turns beyond the limit, the oldest first."""
    cap = unit.context.options.max_turns
    over = unit.turns - cap if cap else 0
    if over <= 0:
        return ()
    going = unit.tx.all(GoneTurn, unit.sql.oldest_turns, collection=unit.number, rows=over)
    for turn in going:
        remove_turn(unit, turn)
    return _evicted(unit, "turn", tuple(turn.id for turn in going))


MOST_HELD: Final = 500
"""Held items of a collection; beyond them the oldest are forgotten."""


def expire_held(unit: CollectionTransaction) -> None:
    """Forget held rows that waited too long, or are too many, with tombstones."""
    if not unit.found or unit.held <= 0:
        return
    place = {"collection": unit.number, "before": unit.now - HELD_DAYS * DAY}
    items = unit.tx.all(GoneItem, unit.sql.held_items_over, most=MOST_HELD, **place)
    turns = unit.tx.all(GoneTurn, unit.sql.held_turns_over, **place)
    for item in items:
        remove_item(unit, item)
        bury(unit, item)
    for turn in turns:
        remove_turn(unit, turn)
        bury(unit, turn)
    if items or turns:
        ids = {"item": [each.id for each in items], "turn": [each.id for each in turns]}
        unit.note("forgotten", ids, items=len(items), turns=len(turns), held=True)


def _evicted(unit: CollectionTransaction, kind: str, ids: tuple[str, ...]) -> tuple[str, ...]:
    if ids:
        unit.note("evicted", {kind: ids}, **{f"{kind}s": len(ids)})
        unit.tx.after_commit(lambda: _EVICTED.add(by=len(ids)))
    return ids
