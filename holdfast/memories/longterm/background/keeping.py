"""What becomes of the items that an extractor proposed: the rules every item goes by, and more."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.memories.longterm.background.extractor import ConversationChunk, ExtractedItem
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.records import Item, Outcome, Remembered, alike, terms_hash
from holdfast.memories.longterm.remember import Grave, Linked, graves, item_numbered, store
from holdfast.memories.longterm.rows import NumberedRow, ids_text
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange
from holdfast.memories.longterm.vectors.compare import Meant, meant
from holdfast.memories.longterm.write import ItemRequest, Ready, ready, screen

_MOST_SOURCE: Final = 256


class Ripe(Struct, frozen=True, kw_only=True):
    """A candidate that is to be stored, if what is in the collection lets it."""

    wish: ItemRequest
    text: Ready
    meant: Meant | None
    reasons: tuple[str, ...]
    turns: tuple[str, ...]
    supersedes: tuple[str, ...]


class Proposed(Struct, frozen=True, kw_only=True):
    """What came of a part: candidates to store, and those of which that is known already."""

    part: ConversationChunk
    ripe: tuple[Ripe | Remembered, ...] = ()


class _Held(Struct, frozen=True, kw_only=True):
    number: int
    body: str
    superseded_at: int | None


def propose(
    caller: CollectionContext,
    part: ConversationChunk,
    known: Sequence[Item],
    given: Sequence[ExtractedItem],
) -> Proposed:
    """Make *given* ready before their transaction: screened, analysed, embedded."""
    return Proposed(part=part, ripe=tuple(_ripe(caller, part, known, each) for each in given))


def keep(book: CollectionTransaction, proposed: Proposed) -> tuple[Remembered, ...]:
    """Store what was proposed in the transaction of *book*; return what became of each."""
    named = {turn.id for turn in proposed.part.turns}
    there = _there(book, named)
    buried = graves(book) if book.there.buried else []
    counts = book.caller.shared.counts
    results: list[Remembered] = []
    for each in proposed.ripe:
        if isinstance(each, Remembered):
            done = each
        elif not there.issuperset(each.turns) or _is_buried(book, each, buried):
            done = Remembered(stored=None, outcome="forgotten")
        else:
            done = _stored(book, each)
        results.append(done)
        if done.stored is None:
            book.tx.after_commit(lambda outcome=done.outcome: counts.add("outcomes_total", outcome))
    return tuple(results)


def _ripe(
    caller: CollectionContext, part: ConversationChunk, known: Sequence[Item], given: ExtractedItem
) -> Ripe | Remembered:
    if given.outcome is not None:
        return _not_kept(given.outcome)
    if not given.text:
        return _not_kept("blank")
    turns = [part.turns[place] for place in given.turns]
    thread = next((turn.thread_id for turn in turns if turn.thread_id), None)
    found = screen(caller, (given.text, thread or ""))
    if found.refused:
        return _not_kept("secret", found.refused)
    text = ready(found.texts[0])
    ids = tuple(turn.id for turn in turns)
    return Ripe(
        wish=ItemRequest(
            text=found.texts[0],
            kind=given.kind,
            importance=given.importance,
            source=_source(found.texts[1]),
            turns=ids,
            origin="extraction",
        ),
        text=text,
        meant=meant(caller, text.text),
        reasons=found.redacted,
        turns=ids,
        supersedes=tuple(known[place].id for place in given.supersedes),
    )


def _stored(book: CollectionTransaction, ripe: Ripe) -> Remembered:
    done = replace(store(book, ripe.wish, ripe.text, meant=ripe.meant), reasons=ripe.reasons)
    new = done.stored
    if done.outcome != "stored" or new is None:
        return done
    older = [id for id in ripe.supersedes if id not in done.evicted]
    superseded = [id for id in older if _supersede(book, id, by=new.id)]
    if not superseded:
        return done
    number = book.tx.one(
        NumberedRow, book.sql.item_number, collection=book.number, id=new.id
    ).number
    return replace(done, stored=item_numbered(book, number))


def _supersede(book: CollectionTransaction, id: str, *, by: str) -> bool:
    """Mark the item *id* as superseded, if it is live; return whether it was.

    It keeps its text, and is not recalled.
    """
    place = {"collection": book.number}
    number = book.tx.first(NumberedRow, book.sql.item_number, id=id, **place)
    if number is None:
        return False
    held = book.tx.one(_held_item, book.sql.held_item, number=number.number, **place)
    if held.superseded_at is not None:
        return False
    book.tx.send(book.sql.supersede_item, by=by, id=id, now=book.now, **place)
    book.superseded(PostingChange(held.number, held.body))
    book.vectors.drop(id)
    book.note("superseded", {"item": [id]}, by=by)
    return True


def _is_buried(book: CollectionTransaction, ripe: Ripe, buried: Sequence[Grave]) -> bool:
    """Tell whether what *ripe* says was forgotten."""
    if not buried:
        return False
    terms = terms_hash(book.secret, ripe.text.said.terms)
    return any(alike(terms, grave.terms) for grave in buried)


def _there(book: CollectionTransaction, ids: set[str]) -> set[str]:
    """Return which of the turns *ids* are still there."""
    if not ids:
        return set()
    asked = ids_text(sorted(ids))
    found = book.tx.all(Linked, book.sql.turns_by_id, collection=book.number, ids=asked)
    return {each.id for each in found}


def _source(thread: str) -> str:
    """Return where an item came from, in as many bytes as that may have."""
    if not thread:
        return ""
    return f"thread:{thread}".encode()[:_MOST_SOURCE].decode(errors="ignore")


def _not_kept(outcome: Outcome, reasons: tuple[str, ...] = ()) -> Remembered:
    return Remembered(stored=None, outcome=outcome, reasons=reasons)


def _held_item(*, number: int, body: str, superseded_at: int | None, **_: object) -> _Held:
    return _Held(number=number, body=body, superseded_at=superseded_at)
