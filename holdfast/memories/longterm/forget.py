"""Forget items, clear collections, leave tombstones.

When one of these returns, the bytes are in no file of the database, as far as the engine knows.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Final, LiteralString, TypeVar

from msgspec import Struct

from holdfast.engines.base import Make, Transaction, scalar
from holdfast.ground.scope import user_hash
from holdfast.memories.longterm.context import CollectionContext, event_of
from holdfast.memories.longterm.records import Cleared, ForgetResult, new_secret
from holdfast.memories.longterm.remember import Grave
from holdfast.memories.longterm.removal import (
    GoneItem,
    GoneTurn,
    bury,
    remove_item,
    remove_turn,
)
from holdfast.memories.longterm.rows import Locked, NumberedRow, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction, follow, unindex_all
from holdfast.memories.longterm.validation import is_id

T = TypeVar("T")

_TABLES: Final = (
    "items",
    "turns",
    "links",
    "item_history",
    "access",
    "cursors",
    "tombstones",
    "jobs",
    "vectors",
    "vector_sets",
)


class Owned(Struct, frozen=True, kw_only=True):
    """A collection of a user."""

    number: int
    id: str
    namespace: str
    workspace_id: str


def forget(context: CollectionContext, id: str) -> ForgetResult:
    """Forget the item or turn *id*; return the ids of all deleted rows.

    With an item its turns are deleted; with a turn the items that came from it alone.
    """
    if not (is_id("item", id) or is_id("turn", id)):
        return ForgetResult()

    def work(tx: Transaction) -> ForgetResult:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None:
            return ForgetResult()
        items, turns = _going(unit, id)
        _remove(unit, items, turns)
        done = ForgetResult(
            items=tuple(item.id for item in items), turns=tuple(turn.id for turn in turns)
        )
        if done:
            unit.note(
                "forgotten",
                {"item": done.items, "turn": done.turns},
                items=len(items),
                turns=len(turns),
            )
            tx.after_commit(lambda: context.shared.kept.drop(unit.number))
        unit.close()
        return done

    done = context.engine.write(work)
    if done:
        context.engine.scrub()
    return done


def forget_items_again(
    context: CollectionContext, collection: str, grave: Grave, *, secret: bytes
) -> bool:
    """Forget the row of *grave* in that collection; return whether it existed.

    The tombstone itself is stored if the collection hashes with the same *secret*. The caller must
    scrub the engine.
    """

    def work(tx: Transaction) -> bool:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None or unit.found.id != collection:
            return False
        items, turns = _named(unit, grave.id)
        _remove(unit, items, turns)
        if unit.secret == secret:
            tx.send(
                unit.sql.bury,
                collection=unit.number,
                id=grave.id,
                now=grave.at,
                terms=grave.terms,
                fingerprint=grave.fingerprint,
            )
        unit.close()
        return bool(items or turns)

    return context.engine.write(work)


def clear_again(context: CollectionContext, collection: str, seq: int) -> bool:
    """Clear the collection of that id as of number *seq*; return whether it exists.

    The caller must scrub the engine.
    """

    def work(tx: Transaction) -> bool:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None or unit.found.id != collection:
            return False
        _emptied(tx, unit.sql, unit.found)
        tx.send(unit.sql.empty_collection, collection=unit.number, seq=seq)
        return True

    return context.engine.write(work)


def clear(context: CollectionContext) -> Cleared:
    """Forget the whole collection, its tombstones included.

    Its row stays, with the sequence number of this call.
    """

    def work(tx: Transaction) -> Cleared:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None:
            return Cleared()
        counts = _emptied(tx, unit.sql, unit.found)
        done = Cleared(items=counts["ltm_items"], turns=counts["ltm_turns"])
        seq = tx.seq
        tx.send(unit.sql.empty_collection, collection=unit.number, seq=seq)
        tx.note(
            event_of(
                context, "cleared", unit.there.id, {}, {"items": done.items, "turns": done.turns}
            )
        )
        tx.after_commit(lambda: _let_go(context, unit.there, seq))
        return done

    done = context.engine.write(work)
    context.engine.scrub()
    return done


def forget_user(
    context: CollectionContext,
    also: Callable[[Transaction], dict[str, int]],
    done: Callable[[Transaction, dict[str, int]], None] | None = None,
) -> dict[str, int]:
    """Forget all data and the name of the caller's user; return deleted rows by table.

    *also* deletes what is the user's elsewhere, in the same transaction; *done* records the counts
    in it.

    A keyed hash of the name stays, with a number, so that a restored backup does not bring the user
    back. The caller must scrub the engine.
    """
    sql = context.sql

    def work(tx: Transaction) -> dict[str, int]:
        counts = dict.fromkeys((*(f"ltm_{each}" for each in _TABLES), "ltm_collections"), 0)
        for owned in tx.all(Owned, sql.collections_of_user):
            found = tx.first(
                Locked,
                sql.lock_collection,
                namespace=owned.namespace,
                workspace_id=owned.workspace_id,
            )
            if found is None:
                continue
            for table, rows in _emptied(tx, sql, found).items():
                counts[table] += rows
            counts["ltm_collections"] += tx.run(sql.drop_collection, collection=found.number)
            seq = tx.seq
            tx.after_commit(lambda found=found, seq=seq: _let_go(context, found, seq))
        counts["ltm_secrets"] = tx.run(sql.drop_secret)
        counts["changes"] = tx.run(sql.forget_feed)
        counts |= also(tx)
        if any(counts.values()) or done is not None:
            tx.send(sql.make_tombstone_secret, secret=new_secret())
            hashed = user_hash(tx.one(scalar, sql.get_tombstone_secret), context.user)
            tx.send(sql.bury_user, user_hash=hashed, seq=tx.seq, now=context.now())
        if done is not None:
            done(tx, counts)
        return counts

    return context.engine.write(work)


def _remove(unit: CollectionTransaction, items: list[GoneItem], turns: list[GoneTurn]) -> None:
    for item in items:
        remove_item(unit, item)
        bury(unit, item)
    for turn in turns:
        remove_turn(unit, turn)
        bury(unit, turn)


def _going(unit: CollectionTransaction, id: str) -> tuple[list[GoneItem], list[GoneTurn]]:
    """Return the rows to delete when *id* is forgotten."""
    tx, sql, place = unit.tx, unit.sql, {"collection": unit.number}
    items: set[int] = set()
    turns: set[int] = set()
    if is_id("item", id):
        items = {each.number for each in tx.all(NumberedRow, sql.item_number, id=id, **place)}
        for item in items:
            turns |= {
                each.number for each in tx.all(NumberedRow, sql.turns_of_item, item=item, **place)
            }
    else:
        turns = {each.number for each in tx.all(NumberedRow, sql.turn_number, id=id, **place)}
    if turns:
        alone = tx.all(NumberedRow, sql.items_of_turns_alone, numbers=numbers_text(turns), **place)
        items |= {each.number for each in alone}
    return (
        _rows(unit, GoneItem, sql.items_to_bury, items),
        _rows(unit, GoneTurn, sql.turns_to_bury, turns),
    )


def _named(unit: CollectionTransaction, id: str) -> tuple[list[GoneItem], list[GoneTurn]]:
    """Return only the row *id*."""
    tx, sql, place = unit.tx, unit.sql, {"collection": unit.number, "id": id}
    items = {each.number for each in tx.all(NumberedRow, sql.item_number, **place)}
    turns = {each.number for each in tx.all(NumberedRow, sql.turn_number, **place)}
    return (
        _rows(unit, GoneItem, sql.items_to_bury, items),
        _rows(unit, GoneTurn, sql.turns_to_bury, turns),
    )


def _rows(
    unit: CollectionTransaction, make: Make[T], statement: LiteralString, numbers: set[int]
) -> list[T]:
    if not numbers:
        return []
    return unit.tx.all(make, statement, collection=unit.number, numbers=numbers_text(numbers))


def _emptied(tx: Transaction, sql: SimpleNamespace, collection: Locked) -> dict[str, int]:
    """Delete every row of *collection*; return how many, by table."""
    unindex_all(tx, sql, collection)
    tx.send(sql.clear_changes)
    tx.send(sql.drop_calls)
    return {
        f"ltm_{table}": tx.run(
            getattr(sql, f"clear_{table}"),
            collection=collection.number,
            collection_id=collection.id,
        )
        for table in _TABLES
    }


def _let_go(context: CollectionContext, collection: Locked, seq: int) -> None:
    context.shared.kept.drop(collection.number)
    context.shared.access_log.forget(collection.number)
    follow(context, collection.vector_provider, collection.id, seq, None)
