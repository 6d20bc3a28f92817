"""The words of every head: compared with the contents they come from, and taken again."""

from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace

from msgspec import Struct

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.library.upkeep.tables import Finding
from holdfast.library.upkeep.verify_stores import StoreRow
from holdfast.memories.stores.text_index import marked, words_of

HEADS_AT_ONCE = 100
"""Contents read at a time; 10 MiB at most."""


class _Head(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    path: str
    words: int
    content: bytes | None


class _Counted(Struct, frozen=True, kw_only=True):
    id: str | None
    words: int


class _Word(Struct, frozen=True, kw_only=True):
    word: str
    memories: int
    hits: int


def check_counts(reader: Reader, sql: SimpleNamespace) -> Iterator[Finding]:
    """Give each memory of which the index holds another number of words than its row says."""
    indexed = {row.id: row.words for row in reader.all(_Counted, sql.indexed_words)}
    counted = {row.id: row.words for row in reader.all(_Counted, sql.counted_words)}
    for memory in sorted({*indexed, *counted}, key=str):
        if indexed.get(memory, 0) != counted.get(memory, 0):
            yield _words_finding(
                "memory_words", memory or "", counted.get(memory, 0), indexed.get(memory, 0)
            )


def check_words(reader: Reader, sql: SimpleNamespace, store: StoreRow) -> Iterator[Finding]:
    """Give each memory whose row counts its words wrongly, and the store if the index differs.

    The index is compared word by word over the whole store; a word may be content, so how many
    differ is all that is said.
    """
    hits: Counter[str] = Counter()
    memories: Counter[str] = Counter()
    for head in _heads(reader, sql, store.id):
        words = _words_in(head)
        if len(words) != head.words:
            yield _words_finding("memories", head.id, len(words), head.words)
        hits.update(words)
        memories.update(set(words))
    mark = marked(store.number, [""])
    indexed = {
        row.word.removeprefix(mark): (row.memories, row.hits)
        for row in reader.all(_Word, sql.words_of_store, low=mark, high=mark[:-1] + "`")
    }
    expected = {word: (memories[word], hits[word]) for word in hits}
    if differing := len(expected.items() ^ indexed.items()):
        yield Finding(
            check="derived",
            table="memory_words",
            id=store.id,
            expected=f"the words of {memories.total()} places",
            found=f"{differing} that differ",
        )


def fill_words_of(engine: Engine) -> Callable[[Transaction], None]:
    """Return the work that fills the index of words, and their counts, anew."""
    sql = engine.queries("holdfast.library.upkeep")

    def work(tx: Transaction) -> None:
        for statement in (sql.make_ready, sql.hold_writers):
            tx.all(dict[str, object], statement)
        tx.run(sql.clear_words)
        # A large collection is indexed again by the next write to it.
        for statement in (sql.clear_terms, sql.clear_frequencies, sql.unindex):
            tx.run(statement)
        for store in tx.all(StoreRow, sql.all_stores):
            for head in _heads(tx, sql, store.id):
                words = _words_in(head)
                if words:
                    text = marked(store.number, words)
                    tx.send(sql.fill_words, memory=head.id, words=text, of=head.workspace)
                if len(words) != head.words:
                    tx.send(sql.set_words, memory=head.id, words=len(words))
        tx.run(sql.sum_words)

    return work


def _heads(reader: Reader, sql: SimpleNamespace, store: str) -> Iterator[_Head]:
    after = ""
    while rows := reader.all(
        _Head, sql.contents_of_store, store=store, after=after, rows=HEADS_AT_ONCE
    ):
        yield from rows
        after = rows[-1].path


def _words_in(head: _Head) -> list[str]:
    return words_of(head.path) + words_of((head.content or b"").decode(errors="replace"))


def _words_finding(table: str, memory: str, expected: int, found: int) -> Finding:
    return Finding(
        check="derived",
        table=table,
        id=memory,
        expected=f"{expected} words",
        found=f"{found} words",
    )
