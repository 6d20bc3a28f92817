"""The unit of work on one collection.

It changes rows, their postings, the collection's counts and version, and adds events to the feed,
all in one database transaction.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import log
from types import SimpleNamespace
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import EngineFault, Forgotten
from holdfast.ground.events import Event, Fact
from holdfast.ground.scope import user_hash
from holdfast.memories.longterm.context import CollectionContext, event_of
from holdfast.memories.longterm.recall.analyze import VERSION
from holdfast.memories.longterm.recall.score import means_of
from holdfast.memories.longterm.records import new_secret
from holdfast.memories.longterm.rows import Collection, Locked, numbers_text
from holdfast.memories.longterm.vectors.base import WithRows
from holdfast.memories.longterm.vectors.compare import TEXT_FORM, Compared, compared, one_place
from holdfast.memories.longterm.vectors.embedder import Vector
from holdfast.memories.longterm.vectors.registry import Following
from holdfast.memories.longterm.vectors.table import QUERIES

# A collection is indexed whole by the write that makes it large, and row by row from then on. The
# means of its lengths are computed again only when it has grown by a tenth, so that a write need
# not read every row.

LARGE: Final = 5_000
"""Rows from which on the engine proposes the candidates of a recall."""
GROWTH: Final = 1.1
LONGEST: Final = 255
"""Bytes of the longest term that is indexed."""
MOST_DISTINCT: Final = 20_000
"""Terms of one row that are indexed."""
_AT_ONCE: Final = 2_000


class PostingChange(Struct, frozen=True):
    """A row with the terms to add to the index or to remove from it."""

    number: int
    body: str


def index(
    unit: "CollectionTransaction",
    *,
    added: Sequence[PostingChange],
    removed: Sequence[PostingChange],
) -> None:
    """Update the index after a write."""
    if unit.there.indexed:
        _take_out(unit.tx, unit.sql, unit.number, removed)
        _put_in(unit, added)
    elif unit.rows > LARGE:
        for batch in _batches(unit):
            _put_in(unit, batch)
        unit.tx.send(unit.sql.set_indexed, collection=unit.number)
    else:
        return
    if first_rows(unit.rows) != unit.there.mean_rows:
        take_means(unit)


def take_means(unit: "CollectionTransaction") -> None:
    """Compute and store the mean lengths of the collection's first rows."""
    first = first_rows(unit.rows)
    found = means_of(unit.tx.rows(unit.sql.lengths, collection=unit.number, rows=first))
    unit.tx.send(
        unit.sql.set_means,
        collection=unit.number,
        rows=first,
        length=found.length,
        window=found.window,
    )


def unindex_all(tx: Transaction, sql: SimpleNamespace, collection: Collection) -> None:
    """Remove every row of *collection* from the index."""
    if not collection.indexed:
        return
    after = 0
    while batch := tx.all(
        PostingChange, sql.bodies_after, collection=collection.number, after=after, rows=_AT_ONCE
    ):
        _take_out(tx, sql, collection.number, batch)
        after = batch[-1].number


def first_rows(rows: int) -> int:
    """Return the largest whole power of 1.1 up to *rows*, as a whole number."""
    if rows < 1:
        return 0
    power = int(log(rows) / log(GROWTH))
    found = int(GROWTH ** (power + 1))
    return found if found <= rows else int(GROWTH**power)


def terms_of(body: str) -> list[str]:
    """Return the terms of *body* that are indexed, each as often as it occurs."""
    terms = [term for term in body.split() if len(term.encode()) <= LONGEST]
    if len(terms) > MOST_DISTINCT:
        wanted = set(islice(dict.fromkeys(terms), MOST_DISTINCT))
        return [term for term in terms if term in wanted]
    return terms


def _batches(unit: "CollectionTransaction") -> Iterator[list[PostingChange]]:
    after = 0
    while batch := unit.tx.all(
        PostingChange, unit.sql.bodies_after, collection=unit.number, after=after, rows=_AT_ONCE
    ):
        yield batch
        after = batch[-1].number


def _put_in(unit: "CollectionTransaction", rows: Sequence[PostingChange]) -> None:
    words = [(row.number, " ".join(terms_of(row.body))) for row in rows]
    place = unit.number
    indexed = [{"collection": place, "number": number, "words": text} for number, text in words]
    if indexed:
        unit.tx.run_many(unit.sql.index_row, indexed)
        _count(unit.tx, unit.sql, place, (text for _, text in words), 1)


def _take_out(
    tx: Transaction, sql: SimpleNamespace, place: int, rows: Sequence[PostingChange]
) -> None:
    words = [(row.number, " ".join(terms_of(row.body))) for row in rows]
    indexed = [{"collection": place, "number": number, "words": text} for number, text in words]
    if indexed:
        tx.run_many(sql.unindex_row, indexed)
        _count(tx, sql, place, (text for _, text in words), -1)


def _count(
    tx: Transaction, sql: SimpleNamespace, place: int, texts: Iterable[str], by: int
) -> None:
    """Change the document frequency of each term by *by* for each text."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(set(text.split()))
    encoded = msgspec.json.encode({term: by * counts[term] for term in sorted(counts)}).decode()
    tx.send(sql.count_terms, collection=place, counts=encoded)
    if by < 0:
        tx.send(sql.drop_terms, collection=place)


class Vectored:
    """Changes to vectors in one transaction.

    A collection that has no vectors, and gets none, costs nothing.
    """

    def __init__(self, unit: "CollectionTransaction") -> None:
        self._unit = unit
        self._sql = unit.context.job_sql
        found = unit.found
        self._model = found.embedding_model if found else None
        self._provider = found.vector_provider if found else None
        self._dimension: int | None = None
        self._measured = found is None or self._model is None
        self._by = compared(unit.context)
        self._due: set[int] = set()
        self._gone: list[str] = []
        self._left: list[str] = []
        self._all_due = False

    @property
    def model(self) -> str | None:
        """The embedding model of the collection's vectors."""
        return self._model

    @property
    def dimension(self) -> int | None:
        """The dimension of its vectors; None while there are none."""
        if not self._measured:
            self._measured = True
            number = self._unit.number
            self._dimension = self._unit.tx.one(scalar, self._sql.dimension_of, collection=number)
        return self._dimension

    def adopt(self, by: Compared) -> None:
        """Switch the collection to another embedding model.

        Vectors of the earlier model are dropped, and existing rows are queued for embedding.
        """
        unit, tx = self._unit, self._unit.tx
        if isinstance(by.vectors, WithRows):
            by.vectors.drop_in(tx, unit.there.id)
        tx.send(self._sql.drop_embedding_jobs, collection=unit.number)
        model, provider = by.embedder.model, by.vectors.name
        named = {"model": model, "provider": provider, "form": TEXT_FORM}
        tx.send(self._sql.name_model, collection=unit.number, **named)
        self._model, self._provider = model, provider
        self.scalar, self._measured = None, True
        if unit.there.items - unit.there.superseded + unit.there.turns:
            self._all_due = True
            self._queue("reembed", ())

    def put(self, rows: Sequence[tuple[str, Vector]]) -> bool:
        """Store the vectors of *rows*; return False if the background has to do it."""
        by = self._by
        if by is None or not rows:
            return False
        if self._model is None:
            self.adopt(by)
        size = len(rows[0][1])
        if self._model != by.embedder.model or not one_place(self._provider, by.vectors.name):
            return False
        if self.dimension not in (None, size) or not isinstance(by.vectors, WithRows):
            return False
        self.measure(size)
        by.vectors.upsert_in(self._unit.tx, self._unit.there.id, size, rows)
        return True

    def measure(self, size: int) -> None:
        """Store the dimension of the vectors, if it is not known yet."""
        if self.dimension is None:
            number = self._unit.number
            self._unit.tx.send(self._sql.set_dimension, collection=number, dimension=size)
            self._dimension = size

    def due(self, *numbers: int) -> None:
        """Queue the rows *numbers* for embedding in the background."""
        self._due.update(numbers)

    def made(self, number: int) -> None:
        """Record that the row *number* has its vector."""
        self._due.discard(number)

    def drop(self, id: str, *, replaced: bool = False) -> None:
        """Delete the vector of a row, which is *replaced* later or was deleted."""
        if self._model is None:
            return
        self._gone.append(id)
        if not replaced:
            # A later vector overwrites the old one in the provider; a delete might come after it.
            self._left.append(id)

    def close(self) -> None:
        """Write the recorded changes."""
        unit, tx = self._unit, self._unit.tx
        if self._gone:
            sql = unit.context.engine.queries(QUERIES)
            place = {"collection": unit.there.id}
            tx.run_many(sql.drop_vector, [{**place, "id": id} for id in self._gone])
            tx.send(sql.vectors_changed, seq=tx.seq, **place)
            if self._left:
                self._have_followed()
        if not self._due:
            return
        if self._by is not None and self._model is None:
            self.adopt(self._by)
        if self._model is not None and not self._all_due:
            self._queue("embed", sorted(self._due))
        if self._by is not None:
            tx.after_commit(unit.context.tend)

    def _have_followed(self) -> None:
        """Delete removed vectors from an external provider after the commit."""
        context, collection, gone = self._unit.context, self._unit.there.id, tuple(self._left)
        provider, seq = self._provider, self._unit.tx.seq
        self._unit.tx.after_commit(lambda: follow(context, provider, collection, seq, gone))

    def _queue(self, kind: str, numbers: Sequence[int]) -> None:
        unit = self._unit
        unit.tx.send(
            unit.sql.queue_job,
            number=unit.numbers(1)[0],
            collection=unit.number,
            kind=kind,
            about=numbers_text(list(numbers)),
            model=None,
            now=unit.now,
        )


def follow(
    context: CollectionContext,
    provider: str | None,
    collection: str,
    seq: int,
    ids: tuple[str, ...] | None,
) -> None:
    """Delete *ids*, or the whole collection with None, from an external provider.

    *provider* is the provider's name. Nothing is done for one that stores vectors beside the rows.
    """
    vectors = context.apart(provider)
    if vectors is not None:
        key = ("following", collection, seq)
        context.shared.worker.wake(key, Following(vectors, collection, ids))


_TRIES: Final = 5


class NewItem(Struct, frozen=True, kw_only=True):
    """An item to be written; instants are microseconds since 1970."""

    id: str
    kind: str
    importance: float
    origin: str
    source: str
    created_at: int
    updated_at: int
    superseded_by: str | None = None
    superseded_at: int | None = None
    tier: str
    held: str | None = None
    held_at: int | None = None
    said_by: str = ""
    origin_ref: str = ""
    valid_from: int
    valid_to: int | None = None
    flags: int
    terms: int
    fold: bytes
    body: str
    text: str


class NewTurn(Struct, frozen=True, kw_only=True):
    """A turn to be written.

    Instants are microseconds since 1970; "" is no name.
    """

    id: str
    role: str
    speaker: str
    at: int
    thread_id: str
    session: str
    created_at: int
    tier: str
    held: str | None = None
    held_at: int | None = None
    said_by: str = ""
    origin_ref: str = ""
    flags: int
    covered: int = 0
    terms: int
    fingerprint: bytes
    caption: str
    body: str
    text: str


class CollectionTransaction:
    """The unit of work on one collection.

    Creating it locks the collection; `close` writes counts, version, index and events.
    """

    def __init__(self, context: CollectionContext, tx: Transaction, *, make: bool = True) -> None:
        self.context, self.tx = context, tx
        self.sql = context.sql
        self.now = context.now()
        self._made = False
        if make and context.since is not None:
            self._refuse_erased(context.since)
        self.found = self._open(make=make)
        self._items = self._superseded = self._turns = self._held = 0
        self._added: list[PostingChange] = []
        self._removed: list[PostingChange] = []
        self._wrote = self._redone = False
        self._events: list[Event] = []
        self._secret = None if self.found is None else self.found.secret
        self.vectors = Vectored(self)

    def _refuse_erased(self, since: int) -> None:
        """Raise Forgotten if the user was erased after *since*."""
        secret = self.tx.first(scalar, self.sql.get_tombstone_secret)
        if secret is None:
            return
        hashed = user_hash(secret, self.context.user)
        erased_at = self.tx.first(scalar, self.sql.erased_at, user_hash=hashed)
        if erased_at is not None and erased_at >= since:
            raise Forgotten(from_microseconds(erased_at), "the erasure of its person")

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
        """Number of items, superseded ones included, with the changes of this transaction."""
        return self.there.items + self._items

    @property
    def turns(self) -> int:
        """Number of turns, with the changes of this transaction."""
        return self.there.turns + self._turns

    @property
    def held(self) -> int:
        """Number of rows that wait for a person, with the changes of this transaction."""
        return self.there.held + self._held

    @property
    def secret(self) -> bytes:
        """The user's secret; created on first use."""
        if self._secret is None:
            self.tx.run(self.sql.make_secret, secret=new_secret())
            self._secret = self.tx.one(scalar, self.sql.get_secret)
        return self._secret

    def numbers(self, count: int) -> Sequence[int]:
        """Return *count* rising numbers for new rows, above those of all existing rows."""
        return self.tx.numbers(count) if count else ()

    def put_items(self, items: Iterable[tuple[int, NewItem]]) -> None:
        """Write new items, each under its number."""
        for number, item in items:
            self.tx.send(self.sql.put_item, **self._row(number, item))
            self._wrote = True
            if item.held is not None:
                self._held += 1
                continue
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
        live = [(number, turn) for number, turn in turns if turn.held is None]
        self._turns += len(live)
        self._held += len(rows) - len(live)
        self._added += [PostingChange(number, turn.body) for number, turn in live]
        if self.context.options.embed_turns:
            self.vectors.due(*(number for number, _ in live))

    def put_links(self, item: int, turns: Iterable[int]) -> None:
        """Record that an item came from *turns*."""
        for turn in turns:
            self.tx.send(
                self.sql.put_link, collection=self.number, item=item, turn=turn, now=self.now
            )

    def keep_state(self, item: int) -> None:
        """Keep the state of *item* before its first change, for answers as of earlier."""
        self.tx.send(self.sql.put_first_state, collection=self.number, number=item)

    def record_state(self, item: int, op: str) -> None:
        """Add the state of *item* after the change *op* to its history."""
        self.tx.send(
            self.sql.put_state,
            collection=self.number,
            number=item,
            seq=self.numbers(1)[0],
            now=self.now,
            actor=self.context.actor.id,
            op=op,
        )

    def changed(self, gone: PostingChange | None = None, come: PostingChange | None = None) -> None:
        """Record that a stored row changed, with its old and new terms if they changed."""
        self._redone = True
        self._removed += [gone] if gone else []
        self._added += [come] if come else []

    def dropped(self, gone: PostingChange, *, item: bool, superseded: bool = False) -> None:
        """Record that a stored row was deleted; a superseded one is not in the index."""
        self._redone = True
        if item:
            self._items -= 1
            self._superseded -= superseded
        else:
            self._turns -= 1
        if not superseded:
            self._removed.append(gone)

    def released(self, come: PostingChange, *, item: bool) -> None:
        """Record that a held row was accepted, and is recalled from now on."""
        self._redone = True
        self._held -= 1
        if item:
            self._items += 1
        else:
            self._turns += 1
        self._added.append(come)
        if item or self.context.options.embed_turns:
            self.vectors.due(come.number)

    def dropped_held(self) -> None:
        """Record that a held row was deleted; it was neither counted nor indexed."""
        self._redone = True
        self._held -= 1

    def superseded(self, gone: PostingChange) -> None:
        """Record that an item was superseded."""
        self._redone = True
        self._superseded += 1
        self._removed.append(gone)

    def restored(self, come: PostingChange) -> None:
        """Record that an item is no longer superseded."""
        self._redone = True
        self._superseded -= 1
        self._added.append(come)
        self.vectors.due(come.number)

    def withheld(self, gone: PostingChange) -> None:
        """Record that a live item is held, and not recalled from now on."""
        self._redone = True
        self._held += 1
        self._items -= 1
        self._removed.append(gone)

    def note(self, what: str, ids: Mapping[str, Iterable[str]] | None = None, **data: Fact) -> None:
        """Add the event `longterm.<what>` to the feed at `close`."""
        self._events.append(event_of(self.context, what, self.there.id, ids or {}, data))

    def close(self) -> None:
        """Write the collection's counts, version and index, and add the events."""
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
                held=self._held,
            )
        for event in self._events:
            self.tx.note(event)

    @property
    def rows(self) -> int:
        """Number of rows that can be recalled, with the changes of this transaction."""
        return self.items + self.turns - self.there.superseded - self._superseded

    def _row(self, number: int, row: NewItem | NewTurn) -> dict[str, object]:
        columns = {name: getattr(row, name) for name in row.__struct_fields__}
        return {"collection": self.number, "number": number, **columns}

    def _open(self, *, make: bool) -> Locked | None:
        named = self.context.named
        for _ in range(_TRIES):
            found = self.tx.first(Locked, self.sql.lock_collection, **named)
            if found is not None or not make:
                return found
            self.tx.run(
                self.sql.make_collection,
                number=self.tx.numbers(1)[0],
                id=self.context.ids.new("coll", self.now),
                analyzer=VERSION,
                now=self.now,
                **named,
            )
        raise EngineFault("A collection was made, and was not there.")
