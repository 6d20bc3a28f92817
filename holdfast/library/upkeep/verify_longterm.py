"""Check items, postings and vectors."""

from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.scope import user_hash
from holdfast.library.upkeep.tables import Finding, in_batches, miscounted, strays
from holdfast.library.upkeep.verify_durable import NameTombstone, NameTombstones
from holdfast.memories.longterm.recall.analyze import VERSION
from holdfast.memories.longterm.rows import bits_of, bits_of_turn
from holdfast.memories.longterm.transaction import terms_of
from holdfast.memories.longterm.write import ready, turn_terms

ROWS_AT_ONCE: Final = 100
"""Texts read at a time: 100 MiB at most."""

COUNTED: Final = ("items", "superseded", "turns", "held")


class _Collection(Struct, frozen=True, kw_only=True):
    number: int
    id: str
    analyzer: int
    indexed: int
    items: int
    superseded: int
    turns: int
    held: int
    counted_items: int
    counted_superseded: int
    counted_turns: int
    counted_held: int


class _Row(Struct, frozen=True, kw_only=True):
    number: int
    id: str
    is_item: int
    flags: int
    terms: int
    fold: bytes
    body: str
    text: str
    caption: str
    superseded_at: int | None


class _Derived(Struct, frozen=True, kw_only=True):
    """Values derived from the text of a row."""

    flags: int
    terms: int
    fold: bytes
    body: str


class _Oldest(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    name: str
    cleared_seq: int
    number: int


class _Term(Struct, frozen=True, kw_only=True):
    term: str
    n: int


def check_longterm(
    reader: Reader, sql: SimpleNamespace, counts: dict[str, int], *, quick: bool
) -> Iterator[Finding]:
    """Yield each inconsistent collection, row and vector; count rows in *counts*.

    *quick* leaves out the terms.
    """
    yield from strays(reader, sql.stray_longterm)
    yield from strays(reader, sql.unburied, "forgotten", "nothing")
    yield from _forgotten(reader, sql)
    yield from strays(reader, sql.stray_vectors, "derived", "its row")
    yield from strays(reader, sql.stray_lexed, "derived", "its row")
    yield from strays(reader, sql.unlexed, "derived", "an entry")
    for each in reader.all(_Collection, sql.all_collections):
        yield from miscounted("ltm_collections", each.id, each, COUNTED)
        counts["ltm_items"] += each.counted_items
        counts["ltm_turns"] += each.counted_turns
        if not quick:
            yield from _check_terms(reader, sql, each)


def miscounted_collections(engine: Engine, sql: SimpleNamespace) -> Iterator[Finding]:
    """Yield each count of a collection that differs from its rows."""
    for each in engine.all(_Collection, sql.all_collections):
        yield from miscounted("ltm_collections", each.id, each, COUNTED)


def mend_longterm(engine: Engine) -> Callable[[Transaction], None]:
    """Return the work that rebuilds terms of rows, and drops vectors without a row.

    Rebuilding the words empties the index of terms: the next write fills it again.
    """
    sql = engine.queries("holdfast.library.upkeep")

    def work(tx: Transaction) -> None:
        dropped = tx.run(sql.drop_stray_vectors)
        if dropped:
            tx.run(sql.touch_vectors, seq=tx.seq)
        for each in tx.all(_Collection, sql.all_collections):
            mended = False
            for row in _wrong_rows(tx, sql, each):
                _mend_row(tx, sql, each, row)
                mended = True
            if mended:
                tx.run(sql.touch_collection, collection=each.number)

    return work


def _forgotten(reader: Reader, sql: SimpleNamespace) -> Iterator[Finding]:
    """Yield each collection with a row older than its clearing or its user's erasure."""
    buried = NameTombstones(reader.all(NameTombstone, sql.user_tombstones), user_hash)
    for oldest in reader.all(_Oldest, sql.oldest_of_users):
        tombstone = buried.over(oldest.workspace, oldest.name)
        since = max(oldest.cleared_seq, tombstone.seq if tombstone else 0)
        if oldest.number < since:
            yield Finding(
                "forgotten",
                "ltm_collections",
                oldest.id,
                f"no row from before {since}",
                f"row {oldest.number}",
            )


def _check_terms(reader: Reader, sql: SimpleNamespace, each: _Collection) -> Iterator[Finding]:
    """Yield rows with terms that differ from their text, and a differing index.

    A term may be content, so only the number of differences is reported. Terms of another version
    of the analyzer are rebuilt by the next recall; they are compared with the index only.
    """
    for row in _wrong_rows(reader, sql, each):
        yield Finding(
            "derived",
            "ltm_items" if row.is_item else "ltm_turns",
            row.id,
            "the terms of its text",
            "others",
        )
    if not each.indexed:
        return
    expected: Counter[str] = Counter()
    for row in _rows(reader, sql, each):
        if row.superseded_at is None:
            expected.update(set(terms_of(row.body)))
    found = {row.term: row.n for row in reader.all(_Term, sql.lexed_terms, collection=each.number)}
    if differing := len(expected.items() ^ found.items()):
        yield Finding(
            "derived", "ltm_lex", each.id, f"{len(expected)} terms", f"{differing} that differ"
        )


def _rows(reader: Reader, sql: SimpleNamespace, each: _Collection) -> Iterator[_Row]:
    for statement in (sql.turns_of_collection, sql.items_of_collection):
        by, most = {"after": "number"}, ROWS_AT_ONCE
        yield from in_batches(reader, _Row, statement, by, collection=each.number, rows=most)


def _wrong_rows(reader: Reader, sql: SimpleNamespace, each: _Collection) -> Iterator[_Row]:
    if each.analyzer != VERSION:
        return
    for row in _rows(reader, sql, each):
        derived = _derived(row)
        if any(getattr(row, name) != getattr(derived, name) for name in derived.__struct_fields__):
            yield row


def _derived(row: _Row) -> _Derived:
    if row.is_item:
        text = ready(row.text)
        terms, fold, flags = list(text.said.terms), text.said.fold, bits_of(row.text)
    else:
        terms, fold = turn_terms(row.text, row.caption), b""
        flags = bits_of_turn(row.text, row.caption or None)
    return _Derived(flags=flags, terms=len(terms), fold=fold, body=" ".join(terms))


def _mend_row(tx: Transaction, sql: SimpleNamespace, each: _Collection, row: _Row) -> None:
    derived = _derived(row)
    given: dict[str, object] = {
        "collection": each.number,
        "number": row.number,
        "flags": derived.flags,
        "terms": derived.terms,
        "body": derived.body,
    }
    if row.is_item:
        tx.send(sql.mend_item, fold=derived.fold, **given)
    else:
        tx.send(sql.mend_turn, **given)
