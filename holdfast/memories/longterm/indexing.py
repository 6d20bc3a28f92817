"""The index of words of collections too large to be held in process.

A collection is indexed whole by the write that makes it large, and row by row from then on. The
means of its lengths are taken anew only when it has grown by a tenth, so that a write need not
look at every row.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import log
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.memories.longterm.means import means_of
from holdfast.memories.longterm.rows import Collection

if TYPE_CHECKING:
    from holdfast.memories.longterm.transaction import CollectionTransaction

LARGE: Final = 5_000
"""Rows beyond which a collection is looked through in the engine first."""
GROWTH: Final = 1.1
LONGEST: Final = 255
"""Bytes of the longest term that is indexed."""
MOST_DISTINCT: Final = 20_000
"""Terms of one row that are indexed."""
_AT_ONCE: Final = 2_000


class PostingChange(Struct, frozen=True):
    """A row whose words came or went."""

    number: int
    body: str


def index(
    book: "CollectionTransaction",
    *,
    added: Sequence[PostingChange],
    removed: Sequence[PostingChange],
) -> None:
    """Bring the index up to what a write did."""
    if book.there.indexed:
        _take_out(book.tx, book.sql, book.number, removed)
        _put_in(book, added)
    elif book.rows > LARGE:
        for batch in _batches(book):
            _put_in(book, batch)
        book.tx.send(book.sql.set_indexed, collection=book.number)
    else:
        return
    if first_rows(book.rows) != book.there.mean_rows:
        take_means(book)


def take_means(book: "CollectionTransaction") -> None:
    """Take the means of the lengths of the collection's first rows."""
    first = first_rows(book.rows)
    found = means_of(book.tx.rows(book.sql.lengths, collection=book.number, rows=first))
    book.tx.send(
        book.sql.set_means,
        collection=book.number,
        rows=first,
        length=found.length,
        window=found.window,
    )


def unindex_all(tx: Transaction, sql: SimpleNamespace, collection: Collection) -> None:
    """Take every row of *collection* out of the index."""
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


def _batches(book: "CollectionTransaction") -> Iterator[list[PostingChange]]:
    after = 0
    while batch := book.tx.all(
        PostingChange, book.sql.bodies_after, collection=book.number, after=after, rows=_AT_ONCE
    ):
        yield batch
        after = batch[-1].number


def _put_in(book: "CollectionTransaction", rows: Sequence[PostingChange]) -> None:
    words = [(row.number, " ".join(terms_of(row.body))) for row in rows]
    place = book.number
    told = [{"collection": place, "number": number, "words": text} for number, text in words]
    if told:
        book.tx.run_many(book.sql.index_row, told)
        _count(book.tx, book.sql, place, (text for _, text in words), 1)


def _take_out(
    tx: Transaction, sql: SimpleNamespace, place: int, rows: Sequence[PostingChange]
) -> None:
    words = [(row.number, " ".join(terms_of(row.body))) for row in rows]
    told = [{"collection": place, "number": number, "words": text} for number, text in words]
    if told:
        tx.run_many(sql.unindex_row, told)
        _count(tx, sql, place, (text for _, text in words), -1)


def _count(
    tx: Transaction, sql: SimpleNamespace, place: int, texts: Iterable[str], by: int
) -> None:
    """Note in how many more rows each term is now."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(set(text.split()))
    told = msgspec.json.encode({term: by * counts[term] for term in sorted(counts)}).decode()
    tx.send(sql.count_terms, collection=place, counts=told)
    if by < 0:
        tx.send(sql.drop_terms, collection=place)
