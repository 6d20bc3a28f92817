"""Items and turns made ready before their transaction: checked, screened, analysed."""

from collections.abc import Iterable, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.clock import from_microseconds
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.dedupe import ComparedText, said
from holdfast.memories.longterm.recall.analyze import analyze
from holdfast.memories.longterm.records import Item, Kind, Origin, Skipped, Turn, fingerprint
from holdfast.memories.longterm.rows import bits_of
from holdfast.memories.longterm.screening import Screened, screen
from holdfast.memories.longterm.transaction import CollectionTransaction, NewItem, NewTurn
from holdfast.memories.longterm.validation import (
    checked_importance,
    checked_item_text,
    checked_kind,
    checked_source,
    checked_turn_ids,
    microseconds,
)


class ItemRequest(Struct, frozen=True, kw_only=True):
    """An item that somebody wants remembered."""

    text: str
    kind: str = "fact"
    importance: float = 0.5
    source: str = ""
    turns: Iterable[str] = ()
    origin: Origin = "api"

    def checked(self) -> "ItemRequest":
        """Return it as it is to be kept; InvalidInput names the field that breaks a rule."""
        return replace(
            self,
            text=checked_item_text(self.text),
            kind=checked_kind(self.kind),
            importance=checked_importance(self.importance),
            source=checked_source(self.source),
            turns=checked_turn_ids(self.turns),
        )


class Ready(Struct, frozen=True, kw_only=True):
    """The text of an item, with all that follows from it."""

    text: str
    said: ComparedText
    flags: int

    @property
    def body(self) -> str:
        """Its terms as they are stored."""
        return " ".join(self.said.terms)


class PreparedTurn(Struct, frozen=True, kw_only=True):
    """A turn of a batch, with all that follows from it; `index` is its place there."""

    index: int
    turn: Turn
    terms: int
    body: str
    flags: int


def ready(text: str) -> Ready:
    """Return *text* with all that follows from it."""
    return Ready(text=text, said=said(text), flags=bits_of(text))


def turn_terms(text: str, caption: str | None) -> list[str]:
    """Return the terms of a turn, in order."""
    return analyze(f"{text} {caption}" if caption else text)


def screened_turn(caller: CollectionContext, turn: Turn) -> tuple[Turn, Screened]:
    """Return *turn* as it may be kept, and what was found in it."""
    given = (turn.text, turn.speaker or "", turn.caption or "")
    found = screen(caller, given)
    if found.refused or found.texts == given:
        return turn, found
    text, speaker, caption = found.texts
    return replace(turn, text=text, speaker=speaker or None, caption=caption or None), found


def ready_turns(
    caller: CollectionContext, turns: Sequence[tuple[int, Turn]]
) -> tuple[list[PreparedTurn], list[Skipped]]:
    """Return *turns*, each with its place, ready to be written, and those that are not."""
    fit: list[PreparedTurn] = []
    skipped: list[Skipped] = []
    for index, given in turns:
        if not given.text.strip() and not (given.caption or "").strip():
            skipped.append(Skipped(index, "blank"))
            continue
        turn, found = screened_turn(caller, given)
        if found.refused:
            skipped.append(Skipped(index, "secret"))
            continue
        terms = turn_terms(turn.text, turn.caption)
        flags = bits_of(turn.text, turn.caption)
        body = " ".join(terms)
        fit.append(PreparedTurn(index=index, turn=turn, terms=len(terms), body=body, flags=flags))
    return fit, skipped


def new_item(wish: ItemRequest, text: Ready, *, id: str, now: int) -> NewItem:
    """Return the item that *wish*, checked, is to become."""
    return NewItem(
        id=id,
        kind=wish.kind,
        importance=wish.importance,
        origin=wish.origin,
        source=wish.source,
        created_at=now,
        updated_at=now,
        flags=text.flags,
        terms=len(text.said.terms),
        fold=text.said.fold,
        body=text.body,
        text=text.text,
    )


def item_of(new: NewItem, turns: Sequence[str]) -> Item:
    """Return the item that was just written, which came from *turns*."""
    return Item(
        id=new.id,
        text=new.text,
        kind=cast("Kind", new.kind),
        importance=new.importance,
        origin=cast("Origin", new.origin),
        source=new.source,
        turns=tuple(turns),
        supersedes=(),
        superseded_by=None,
        superseded_at=None,
        created_at=from_microseconds(new.created_at),
        updated_at=from_microseconds(new.updated_at),
        last_accessed_at=None,
        access_count=0,
    )


def put_turns(
    book: CollectionTransaction, turns: Sequence[PreparedTurn]
) -> tuple[list[int], list[Turn]]:
    """Write *turns*; return their numbers, and the turns as they are stored."""
    numbers = list(book.numbers(len(turns)))
    new = [_new_turn(book, each) for each in turns]
    book.put_turns(list(zip(numbers, new, strict=True)))
    created = from_microseconds(book.now)
    stored = [
        replace(ready.turn, id=made.id, at=from_microseconds(made.at), created_at=created, items=())
        for ready, made in zip(turns, new, strict=True)
    ]
    return numbers, stored


def _new_turn(book: CollectionTransaction, ready: PreparedTurn) -> NewTurn:
    turn = ready.turn
    return NewTurn(
        id=turn.id or book.caller.ids.new("turn", book.now),
        role=turn.role,
        speaker=turn.speaker or "",
        at=microseconds(turn.at, book.now),
        thread_id=turn.thread_id or "",
        session=turn.session or "",
        created_at=microseconds(turn.created_at, book.now),
        flags=ready.flags,
        terms=ready.terms,
        fingerprint=fingerprint(book.secret, turn.role, turn.speaker, turn.text),
        caption=turn.caption or "",
        body=ready.body,
        text=turn.text,
    )
