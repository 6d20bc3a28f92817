"""The words of every head, taken again from the contents they come from."""

from collections.abc import Callable

from msgspec import Struct

from holdfast.engines.base import Engine, Transaction
from holdfast.memories.stores.words import marked, words_of

HEADS_AT_ONCE = 100


class _Head(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    path: str
    number: int
    content: bytes


def rebuild_words(engine: Engine) -> None:
    """Empty the index of words and fill it from the present heads, in one transaction."""
    engine.write(fill_words_of(engine), timeout=3600)


def fill_words_of(engine: Engine) -> Callable[[Transaction], None]:
    """Return the work that fills the index of words anew."""
    sql = engine.queries("holdfast.library.upkeep")

    def work(tx: Transaction) -> None:
        tx.run(sql.clear_words)
        after = ""
        while heads := tx.all(_Head, sql.heads_with_content, after=after, rows=HEADS_AT_ONCE):
            for head in heads:
                words = words_of(head.path) + words_of(head.content.decode())
                if words:
                    text = marked(head.number, words)
                    tx.send(sql.fill_words, memory=head.id, words=text, of=head.workspace)
            after = heads[-1].id

    return work
