"""Rows taken away with all that hangs on them: links, marks, vectors, words; and what stays."""

from msgspec import Struct

from holdfast.memories.longterm.indexing import PostingChange
from holdfast.memories.longterm.records import terms_hash
from holdfast.memories.longterm.transaction import CollectionTransaction


class GoneItem(Struct, frozen=True, kw_only=True):
    """An item that is to go."""

    number: int
    id: str
    body: str
    superseded_at: int | None


class GoneTurn(Struct, frozen=True, kw_only=True):
    """A turn that is to go."""

    number: int
    id: str
    body: str
    fingerprint: bytes


def remove_item(book: CollectionTransaction, item: GoneItem) -> None:
    """Take *item* away."""
    tx, sql, place = book.tx, book.sql, {"collection": book.number, "number": item.number}
    tx.send(sql.drop_item, **place)
    tx.send(sql.drop_links_of_item, **place)
    tx.send(sql.drop_successor, collection=book.number, id=item.id)
    _remove(book, item.number, item.id)
    superseded = item.superseded_at is not None
    book.dropped(PostingChange(item.number, item.body), item=True, superseded=superseded)


def remove_turn(book: CollectionTransaction, turn: GoneTurn) -> None:
    """Take *turn* away; items that came from it lose the link."""
    place = {"collection": book.number, "number": turn.number}
    book.vectors.drop_after(turn.number)
    book.tx.send(book.sql.drop_turn, **place)
    book.tx.send(book.sql.drop_links_of_turn, **place)
    _remove(book, turn.number, turn.id)
    book.dropped(PostingChange(turn.number, turn.body), item=False)


def bury(book: CollectionTransaction, gone: GoneItem | GoneTurn) -> None:
    """Leave what keeps *gone* from being learnt again."""
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
