"""A collection's terms made anew, after the analyzer began to make others of the same texts.

It goes row by row in the background, a few to a transaction, so nobody waits for it and recall
goes on with what is done by then. What was cut off begins again; a row that is as it should be is
not written. An older release that opens the database meanwhile leaves newer terms alone.
"""

from typing import Final

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.analyze import VERSION
from holdfast.memories.longterm.rows import bits_of
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange, take_means
from holdfast.memories.longterm.write import ready, turn_terms

ROWS_AT_ONCE: Final = 100
"""Rows of one transaction: other writers wait for milliseconds."""


class _Item(Struct, frozen=True, kw_only=True):
    number: int
    flags: int
    terms: int
    fold: bytes
    body: str
    text: str
    superseded_at: int | None


class _Turn(Struct, frozen=True, kw_only=True):
    number: int
    flags: int
    terms: int
    body: str
    text: str
    caption: str


class Reindexing:
    """Whoever makes the terms of one collection anew."""

    def __init__(self, caller: CollectionContext) -> None:
        self._caller = caller
        self._after: dict[str, int] = {"turns": 0, "items": 0}

    def tend(self) -> float | None:
        """Make the terms of some rows anew; see `Tender`."""
        after = self._caller.engine.write(lambda tx: _piece(self._caller, tx, self._after))
        if after is None:
            self._caller.shared.reindexing.pop(self._caller.place, None)
            return None
        self._after = after
        return 0.0


def bring_up_to_date(caller: CollectionContext, analyzer: int) -> None:
    """See to it that terms of the caller's collection, of version *analyzer*, become ours."""
    if analyzer < VERSION:
        shared = caller.shared
        tender = shared.reindexing.setdefault(caller.place, Reindexing(caller))
        shared.worker.wake(("analyze", caller.place), tender)


def _piece(
    caller: CollectionContext, tx: Transaction, after: dict[str, int]
) -> dict[str, int] | None:
    """Make the rows next *after* those numbers anew; return the last numbers, None at the end."""
    book = CollectionTransaction(caller, tx, make=False)
    if book.found is None or book.found.analyzer >= VERSION:
        return None
    last = {"turns": _turns(book, after["turns"]), "items": _items(book, after["items"])}
    if last == after:
        tx.send(book.sql.set_analyzer, collection=book.number, analyzer=VERSION)
        if book.there.mean_rows is not None:
            take_means(book)
    book.close()
    return None if last == after else last


def _turns(book: CollectionTransaction, after: int) -> int:
    place = {"collection": book.number}
    rows = book.tx.all(_Turn, book.sql.turn_texts, after=after, rows=ROWS_AT_ONCE, **place)
    for row in rows:
        terms, flags = turn_terms(row.text, row.caption), bits_of(row.text, row.caption)
        body = " ".join(terms)
        if (body, flags, len(terms)) == (row.body, row.flags, row.terms):
            continue
        told = {"number": row.number, "body": body, "flags": flags, "terms": len(terms)}
        book.tx.send(book.sql.set_turn_terms, **told, **place)
        book.changed(PostingChange(row.number, row.body), PostingChange(row.number, body))
    return rows[-1].number if rows else after


def _items(book: CollectionTransaction, after: int) -> int:
    place = {"collection": book.number}
    rows = book.tx.all(_Item, book.sql.item_texts, after=after, rows=ROWS_AT_ONCE, **place)
    for row in rows:
        text = ready(row.text)
        told = {
            "body": text.body,
            "flags": text.flags,
            "terms": len(text.said.terms),
            "fold": text.said.fold,
        }
        if all(getattr(row, name) == value for name, value in told.items()):
            continue
        book.tx.send(book.sql.set_item_terms, number=row.number, **told, **place)
        if row.superseded_at is None:
            book.changed(PostingChange(row.number, row.body), PostingChange(row.number, text.body))
        else:
            book.changed()
    return rows[-1].number if rows else after
