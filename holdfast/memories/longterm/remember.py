"""Remember and update items."""

from collections.abc import Mapping, Sequence
from typing import Final, get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput, NotFound, SecretRefused
from holdfast.ground.metrics import REGISTRY
from holdfast.memories.longterm.context import CollectionContext, publish
from holdfast.memories.longterm.dedupe import EVERY, Like, SimilarityBounds, bounds, twin
from holdfast.memories.longterm.records import Item, Outcome, Remembered, alike, terms_hash
from holdfast.memories.longterm.removal import evict_items
from holdfast.memories.longterm.rows import ItemRow, NumberedRow, ids_text, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange
from holdfast.memories.longterm.validation import (
    checked_importance,
    checked_item_text,
    checked_kind,
    is_id,
)
from holdfast.memories.longterm.vectors.compare import Meant, meant
from holdfast.memories.longterm.write import ItemRequest, Ready, item_of, new_item, ready, screen

OUTCOMES: Final = REGISTRY.counter(
    "ltm_outcomes_total", "Results of remember, by outcome.", outcome=get_args(Outcome)
)


class Linked(Struct, frozen=True):
    """A turn that an item came from."""

    number: int
    id: str


class Grave(Struct, frozen=True, kw_only=True):
    """The tombstone of a forgotten row: hashes of its terms and its fingerprint."""

    id: str
    at: int
    terms: bytes
    fingerprint: bytes | None


def remember(context: CollectionContext, wish: ItemRequest) -> Remembered:
    """Store the item of *wish*, unless it is blank or holds a secret."""
    wish = wish.checked()
    if not wish.text:
        return _not_kept(context, "blank")
    found = screen(context, (wish.text, wish.source))
    if found.refused:
        return _not_kept(context, "secret", found.refused)
    text, source = found.texts
    kept = ItemRequest(
        text=text,
        kind=wish.kind,
        importance=wish.importance,
        source=source,
        turns=wish.turns,
        origin=wish.origin,
    )
    prepared = ready(text)
    means = meant(context, text)

    def work(tx: Transaction) -> Remembered:
        book = CollectionTransaction(context, tx)
        done = replace(store(book, kept, prepared, meant=means), reasons=found.redacted)
        unbury(book, prepared)
        book.close()
        return done

    return context.engine.write(work)


def store(
    book: CollectionTransaction, wish: ItemRequest, text: Ready, *, meant: Meant | None = None
) -> Remembered:
    """Write an item in the transaction of *book*, or refresh its duplicate.

    Texts are compared by vectors if *meant* has them, else by terms.
    """
    turns = turns_named(book, tuple(wish.turns))
    same = find_twin(book, text, meant.cosines if meant else None)
    if same is not None:
        done = Remembered(stored=_refreshed(book, same, wish, turns), outcome="duplicate")
        book.note("duplicate", {"item": [same.id]})
    else:
        number = book.numbers(1)[0]
        new = new_item(wish, text, id=book.context.ids.new("item", book.now), now=book.now)
        book.put_items([(number, new)])
        if meant is not None and book.vectors.put([(new.id, meant.vector)]):
            book.vectors.made(number)
        book.put_links(number, [turn.number for turn in turns])
        book.note("stored", {"item": [new.id]}, items=1, origin=wish.origin)
        gone = evict_items(book, keep=number)
        item = item_of(new, [turn.id for turn in turns])
        done = Remembered(stored=item, outcome="stored", evicted=gone)
    book.tx.after_commit(lambda: OUTCOMES.add(done.outcome))
    return done


def find_twin(
    book: CollectionTransaction, text: Ready, cosines: Mapping[str, float] | None
) -> Like | None:
    """Return the live item that is a duplicate of *text*, or None."""
    least = book.context.options.dedupe_similarity
    if not least or book.there.items == book.there.superseded:
        return None
    # With vectors any item may be near, however many terms it has.
    like = (
        SimilarityBounds(least=0, most=EVERY)
        if cosines is not None
        else bounds(text.said.terms, least)
    )
    near = book.tx.all(
        Like,
        book.sql.alike,
        collection=book.number,
        least=like.least,
        most=like.most,
        head=like.head,
        tail=like.tail,
        fold=text.said.fold,
    )
    return twin(text.said, near, least, cosines)


def turns_named(book: CollectionTransaction, ids: Sequence[str]) -> list[Linked]:
    """Return the turns called *ids*, oldest first.

    Raise `InvalidInput` for one that does not exist.
    """
    if not ids:
        return []
    found = book.tx.all(
        Linked, book.sql.turns_by_id, collection=book.number, ids=ids_text(tuple(ids))
    )
    there = {each.id for each in found}
    for id in ids:
        if id not in there:
            raise InvalidInput("turns", "names a turn that is not there", given=id)
    return sorted(found, key=lambda each: each.number)


def unbury(book: CollectionTransaction, text: Ready) -> None:
    """Remove tombstones of *text*, because it is remembered again."""
    if not book.there.buried:
        return
    terms = terms_hash(book.secret, text.said.terms)
    for grave in graves(book):
        if alike(terms, grave.terms):
            book.tx.send(book.sql.unbury, collection=book.number, id=grave.id)


def is_buried(book: CollectionTransaction, text: Ready) -> bool:
    """Check whether a tombstone matches *text*."""
    if not book.there.buried:
        return False
    terms = terms_hash(book.secret, text.said.terms)
    return any(alike(terms, grave.terms) for grave in graves(book))


def graves(book: CollectionTransaction) -> list[Grave]:
    """Return all tombstones of the collection."""
    return book.tx.all(Grave, book.sql.graves, collection=book.number)


def item_numbered(book: CollectionTransaction, number: int) -> Item:
    """Return the item of that number."""
    numbers = numbers_text([number])
    return book.tx.one(
        ItemRow, book.sql.items_numbered, collection=book.number, numbers=numbers
    ).record()


def _refreshed(
    book: CollectionTransaction, same: Like, wish: ItemRequest, turns: Sequence[Linked]
) -> Item:
    place = {"collection": book.number, "number": same.number}
    book.tx.send(book.sql.refresh_item, importance=wish.importance, now=book.now, **place)
    book.tx.send(book.sql.mark_access, at=book.now, times=0, **place)
    book.put_links(same.number, [turn.number for turn in turns])
    book.changed()
    return item_numbered(book, same.number)


def _not_kept(
    context: CollectionContext, outcome: Outcome, reasons: tuple[str, ...] = ()
) -> Remembered:
    OUTCOMES.add(outcome)
    publish(context, "refused", outcome=outcome, reasons=" ".join(reasons))
    done = Remembered(stored=None, outcome=outcome, reasons=reasons)
    # An empty write, so that the result is awaitable on an engine with awaited writes.
    return context.engine.write(lambda _: done)


class ItemUpdate(Struct, frozen=True, kw_only=True):
    """The parameters of `update`; an UNSET field stays as it is."""

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


def update(context: CollectionContext, id: str, wanted: ItemUpdate) -> Item:
    """Apply *wanted* to the item *id*, and return it.

    Raise `NotFound`, `SecretRefused`, and `InvalidInput` for a turn, which never changes.
    """
    text = None if wanted.text is UNSET else _checked_text(context, wanted.text)
    kind = None if wanted.kind is UNSET else checked_kind(wanted.kind)
    importance = None if wanted.importance is UNSET else checked_importance(wanted.importance)
    if is_id("turn", id):
        raise InvalidInput(
            "id", "is a turn, and turns cannot be changed", given=id, next="Forget it instead."
        )
    if not is_id("item", id):
        raise _missing(id)

    def work(tx: Transaction) -> Item:
        book = CollectionTransaction(context, tx, make=False)
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
            book.vectors.drop(id, replaced=True)
            book.vectors.due(held.number)
        book.note("stored", {"item": [id]}, items=1, changed=True)
        book.close()
        return item_numbered(book, held.number)

    return context.engine.write(work)


def _checked_text(context: CollectionContext, given: str) -> Ready:
    text = checked_item_text(given)
    if not text:
        raise InvalidInput("text", "must not be blank", next="Forget the item instead.")
    found = screen(context, (text,))
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
