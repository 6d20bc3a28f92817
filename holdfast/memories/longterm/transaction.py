"""One collection, locked, within one transaction: what each change to its rows writes.

A change is to rows, to their places in the index of words, to the collection's counts and its
version, and a note of what happened; all in the transaction that the book was opened in.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.errors import EngineFault
from holdfast.ground.events import Event, Fact
from holdfast.memories.longterm.context import CollectionContext, event_of
from holdfast.memories.longterm.indexing import PostingChange, index
from holdfast.memories.longterm.recall.analyze import VERSION
from holdfast.memories.longterm.records import new_secret
from holdfast.memories.longterm.rows import Locked
from holdfast.memories.longterm.vectored import Vectored

_TRIES: Final = 5


class NewItem(Struct, frozen=True, kw_only=True):
    """An item as it is to be written; instants are microseconds since 1970."""

    id: str
    kind: str
    importance: float
    origin: str
    source: str
    created_at: int
    updated_at: int
    superseded_by: str | None = None
    superseded_at: int | None = None
    flags: int
    terms: int
    fold: bytes
    body: str
    text: str


class NewTurn(Struct, frozen=True, kw_only=True):
    """A turn as it is to be written; instants are microseconds since 1970, "" is no name."""

    id: str
    role: str
    speaker: str
    at: int
    thread_id: str
    session: str
    created_at: int
    flags: int
    terms: int
    fingerprint: bytes
    caption: str
    body: str
    text: str


class CollectionTransaction:
    """The open book of one collection. Opening it locks the collection; `close` settles it."""

    def __init__(self, caller: CollectionContext, tx: Transaction, *, make: bool = True) -> None:
        self.caller, self.tx = caller, tx
        self.sql = caller.engine.queries("holdfast.memories.longterm")
        self.now = caller.now()
        self._made = False
        self.found = self._open(make=make)
        self._items = self._superseded = self._turns = 0
        self._added: list[PostingChange] = []
        self._removed: list[PostingChange] = []
        self._wrote = self._redone = False
        self._events: list[Event] = []
        self._secret = None if self.found is None else self.found.secret
        self.vectors = Vectored(self)

    @property
    def there(self) -> Locked:
        """The collection as it was found."""
        if self.found is None:
            raise EngineFault("A collection that is not there was written to.")
        return self.found

    @property
    def number(self) -> int:
        """The collection's number."""
        return self.there.number

    @property
    def items(self) -> int:
        """How many items there are by now, superseded ones among them."""
        return self.there.items + self._items

    @property
    def turns(self) -> int:
        """How many turns there are by now."""
        return self.there.turns + self._turns

    @property
    def secret(self) -> bytes:
        """The user's secret; made now if this is its first use."""
        if self._secret is None:
            self.tx.run(self.sql.make_secret, secret=new_secret())
            self._secret = self.tx.one(_secret, self.sql.get_secret)
        return self._secret

    def numbers(self, count: int) -> Sequence[int]:
        """Return *count* numbers for new rows, rising above those of all rows there are."""
        return self.tx.numbers(count) if count else ()

    def put_items(self, items: Iterable[tuple[int, NewItem]]) -> None:
        """Write new items, each under its number."""
        for number, item in items:
            self.tx.send(self.sql.put_item, **self._row(number, item))
            self._wrote = True
            self._items += 1
            self._superseded += item.superseded_at is not None
            if item.superseded_at is None:
                self._added.append(PostingChange(number, item.body))
                self.vectors.due(number)

    def put_turns(self, turns: Sequence[tuple[int, NewTurn]]) -> None:
        """Write new turns, each under its number."""
        rows = [self._row(number, turn) for number, turn in turns]
        if rows:
            self._wrote = True
            self.tx.run_many(self.sql.put_turn, rows)
        self._turns += len(rows)
        self._added += [PostingChange(number, turn.body) for number, turn in turns]
        if self.caller.options.embed_turns:
            self.vectors.due(*(number for number, _ in turns))

    def put_links(self, item: int, turns: Iterable[int]) -> None:
        """Note that an item came from *turns*."""
        for turn in turns:
            self.tx.send(self.sql.put_link, collection=self.number, item=item, turn=turn)

    def changed(self, gone: PostingChange | None = None, come: PostingChange | None = None) -> None:
        """Note that a row that was there is another now: with other words, if they are given."""
        self._redone = True
        self._removed += [gone] if gone else []
        self._added += [come] if come else []

    def dropped(self, gone: PostingChange, *, item: bool, superseded: bool = False) -> None:
        """Note that a row that was there is gone; one that was superseded was in no index."""
        self._redone = True
        if item:
            self._items -= 1
            self._superseded -= superseded
        else:
            self._turns -= 1
        if not superseded:
            self._removed.append(gone)

    def superseded(self, gone: PostingChange) -> None:
        """Note that an item was superseded."""
        self._redone = True
        self._superseded += 1
        self._removed.append(gone)

    def note(self, what: str, ids: Mapping[str, Iterable[str]] | None = None, **data: Fact) -> None:
        """Have the feed tell that `longterm.<what>` happened here."""
        self._events.append(event_of(self.caller, what, self.there.id, ids or {}, data))

    def close(self) -> None:
        """Settle the collection's counts, version and index, and tell what happened."""
        if self._wrote or self._redone:
            self.vectors.close()
            index(self, added=self._added, removed=self._removed)
            self.tx.send(
                self.sql.change_collection,
                collection=self.number,
                redone=int(self._redone),
                items=self._items,
                superseded=self._superseded,
                turns=self._turns,
            )
        for event in self._events:
            self.tx.note(event)

    @property
    def rows(self) -> int:
        """How many rows may be recalled by now."""
        return self.items + self.turns - self.there.superseded - self._superseded

    def _row(self, number: int, row: NewItem | NewTurn) -> dict[str, object]:
        told = {name: getattr(row, name) for name in row.__struct_fields__}
        return {"collection": self.number, "number": number, **told}

    def _open(self, *, make: bool) -> Locked | None:
        named = self.caller.named
        for _ in range(_TRIES):
            found = self.tx.first(Locked, self.sql.lock_collection, **named)
            if found is not None or not make:
                return found
            self.tx.run(
                self.sql.make_collection,
                number=self.tx.numbers(1)[0],
                id=self.caller.ids.new("coll", self.now),
                analyzer=VERSION,
                now=self.now,
                **named,
            )
        raise EngineFault("A collection was made, and was not there.")


def _secret(*, secret: bytes) -> bytes:
    return secret
