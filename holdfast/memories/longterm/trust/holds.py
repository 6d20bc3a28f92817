"""Accept or reject rows that are held for a person."""

from typing import Final

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.metrics import REGISTRY
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.read import collection_of
from holdfast.memories.longterm.records import ForgetResult, Item, Turn
from holdfast.memories.longterm.remember import HeldItem, blank_tombstones, item_numbered
from holdfast.memories.longterm.removal import (
    GoneItem,
    GoneTurn,
    bury,
    expire_held,
    remove_item,
    remove_turn,
)
from holdfast.memories.longterm.rows import NumberedRow, TurnRow, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange
from holdfast.memories.longterm.validation import is_id
from holdfast.memories.longterm.write import ready, turn_terms

_DECIDED: Final = REGISTRY.counter(
    "ltm_held_decided_total",
    "Held rows that a person decided on.",
    decision=("accepted", "rejected"),
)


class _HeldTurn(Struct, frozen=True, kw_only=True):
    number: int
    text: str
    caption: str
    held: str | None


def accept(context: CollectionContext, id: str) -> Item | Turn:
    """Release the held row *id*; an item is confirmed by it.

    Raise `NotFound`, and `InvalidInput` for a row that is not held.
    """

    def work(tx: Transaction) -> Item | Turn:
        unit, number = _found(context, tx, id)
        done = _accept_item(unit, number) if is_id("item", id) else _accept_turn(unit, number)
        kind = "item" if isinstance(done, Item) else "turn"
        unit.note("accepted", {kind: [id]}, tier=done.tier)
        unit.close()
        tx.after_commit(lambda: _DECIDED.add("accepted"))
        return done

    return context.engine.write(work)


def reject(context: CollectionContext, id: str) -> ForgetResult:
    """Forget the held row *id* alone, with a tombstone.

    Raise `NotFound`, and `InvalidInput` for a row that is not held.
    """
    is_item = is_id("item", id)

    def work(tx: Transaction) -> ForgetResult:
        unit, number = _found(context, tx, id)
        place = {"collection": unit.number, "numbers": numbers_text([number])}
        if is_item:
            item = tx.one(GoneItem, unit.sql.items_to_bury, **place)
            _check_held(id, item.held)
            remove_item(unit, item)
            bury(unit, item)
        else:
            turn = tx.one(GoneTurn, unit.sql.turns_to_bury, **place)
            _check_held(id, turn.held)
            remove_turn(unit, turn)
            bury(unit, turn)
        unit.note("rejected", {"item" if is_item else "turn": [id]})
        unit.close()
        tx.after_commit(lambda: _DECIDED.add("rejected"))
        tx.after_commit(lambda: context.shared.kept.drop(unit.number))
        return ForgetResult(items=(id,)) if is_item else ForgetResult(turns=(id,))

    done = context.engine.write(work)
    context.engine.scrub()
    return done


def forget_expired(context: CollectionContext) -> None:
    """Forget held rows that waited longer than a person has to decide."""
    there = context.engine.read(lambda reader: collection_of(context, reader))
    if there is None or not there.held:
        return

    def work(tx: Transaction) -> None:
        unit = CollectionTransaction(context, tx, make=False)
        expire_held(unit)
        if unit.found is not None:
            unit.close()

    context.engine.write(work)


def _found(
    context: CollectionContext, tx: Transaction, id: str
) -> tuple[CollectionTransaction, int]:
    """Return the unit of work on the collection, and the number of the row *id*."""
    kind = next((each for each in ("item", "turn") if is_id(each, id)), None)
    if kind is None:
        raise _missing("item", id)
    unit = CollectionTransaction(context, tx, make=False)
    if unit.found is None:
        raise _missing(kind, id)
    look = unit.sql.item_number if kind == "item" else unit.sql.turn_number
    row = tx.first(NumberedRow, look, collection=unit.number, id=id)
    if row is None:
        raise _missing(kind, id)
    return unit, row.number


def _accept_item(unit: CollectionTransaction, number: int) -> Item:
    place = {"collection": unit.number, "number": number}
    there = unit.tx.one(HeldItem, unit.sql.held_item, **place)
    item = item_numbered(unit, number)
    _check_held(item.id, there.held)
    text = ready(there.text)
    unit.keep_state(number)
    unit.tx.send(unit.sql.accept_item, now=unit.now, **place)
    columns = text.columns
    del columns["text"]
    unit.tx.send(unit.sql.set_item_terms, **columns, **place)
    unit.record_state(number, "accept")
    unit.released(PostingChange(number, text.body), item=True)
    blank_tombstones(unit, text)
    return item_numbered(unit, number)


def _accept_turn(unit: CollectionTransaction, number: int) -> Turn:
    place = {"collection": unit.number, "number": number}
    there = unit.tx.one(_HeldTurn, unit.sql.held_turn, **place)
    numbers = {"collection": unit.number, "numbers": numbers_text([number])}
    turn = unit.tx.one(TurnRow, unit.sql.turns_numbered, **numbers)
    _check_held(turn.id, there.held)
    body = " ".join(turn_terms(there.text, there.caption or None))
    columns = {"body": body, "flags": turn.flags, "terms": len(body.split())}
    unit.tx.send(unit.sql.accept_turn, **place)
    unit.tx.send(unit.sql.set_turn_terms, **columns, **place)
    unit.released(PostingChange(number, body), item=False)
    return unit.tx.one(TurnRow, unit.sql.turns_numbered, **numbers).record()


def _check_held(id: str, held: str | None) -> None:
    if held is None:
        raise InvalidInput("id", "is not held", given=id, next="Only held rows wait for a person.")


def _missing(kind: str, id: object) -> NotFound:
    return NotFound(kind, str(id), next="list(held=True) shows what waits.")
