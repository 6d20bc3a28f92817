"""Changing an item: its text, its kind, how important it is."""

from msgspec import UNSET, Struct, UnsetType

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput, NotFound, SecretRefused
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.records import Item
from holdfast.memories.longterm.remember import item_numbered
from holdfast.memories.longterm.rows import NumberedRow
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange
from holdfast.memories.longterm.validation import (
    checked_importance,
    checked_item_text,
    checked_kind,
    is_id,
)
from holdfast.memories.longterm.write import Ready, ready, screen


class ItemUpdate(Struct, frozen=True, kw_only=True):
    """What is to be so of an item; UNSET stays as it is."""

    text: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    importance: float | UnsetType = UNSET


class _Held(Struct, frozen=True, kw_only=True):
    number: int
    kind: str
    importance: float
    flags: int
    terms: int
    fold: bytes
    body: str
    text: str
    superseded_at: int | None


def update(caller: CollectionContext, id: str, wanted: ItemUpdate) -> Item:
    """Change the item *id* as *wanted* says, and return it.

    Raises NotFound, SecretRefused, and InvalidInput for a turn, which stays as it was said.
    """
    text = None if wanted.text is UNSET else _checked_text(caller, wanted.text)
    kind = None if wanted.kind is UNSET else checked_kind(wanted.kind)
    importance = None if wanted.importance is UNSET else checked_importance(wanted.importance)
    if is_id("turn", id):
        raise InvalidInput(
            "id", "is a turn, and turns cannot be changed", given=id, next="Forget it instead."
        )
    if not is_id("item", id):
        raise _missing(id)

    def work(tx: Transaction) -> Item:
        book = CollectionTransaction(caller, tx, make=False)
        number = book.found and tx.first(
            NumberedRow, book.sql.item_number, collection=book.number, id=id
        )
        if not number:
            raise _missing(id)
        place = {"collection": book.number, "number": number.number}
        held = tx.one(_Held, book.sql.held_item, **place)
        tx.send(
            book.sql.change_item,
            kind=held.kind if kind is None else kind,
            importance=held.importance if importance is None else importance,
            now=book.now,
            **_text_columns(held, text),
            **place,
        )
        if held.superseded_at is None and text is not None:
            book.changed(
                PostingChange(held.number, held.body), PostingChange(held.number, text.body)
            )
        else:
            book.changed()
        if text is not None:
            book.vectors.drop(id, anew=True)
            book.vectors.due(held.number)
        book.note("stored", {"item": [id]}, items=1, changed=True)
        book.close()
        return item_numbered(book, held.number)

    return caller.engine.write(work)


def _checked_text(caller: CollectionContext, given: str) -> Ready:
    text = checked_item_text(given)
    if not text:
        raise InvalidInput("text", "must not be blank", next="Forget the item instead.")
    found = screen(caller, (text,))
    if found.refused:
        raise SecretRefused(found.refused)
    return ready(found.texts[0])


def _text_columns(held: _Held, text: Ready | None) -> dict[str, object]:
    if text is None:
        return {
            "flags": held.flags,
            "terms": held.terms,
            "fold": held.fold,
            "body": held.body,
            "text": held.text,
        }
    return {
        "flags": text.flags,
        "terms": len(text.said.terms),
        "fold": text.said.fold,
        "body": text.body,
        "text": text.text,
    }


def _missing(id: object) -> NotFound:
    return NotFound("item", str(id))
