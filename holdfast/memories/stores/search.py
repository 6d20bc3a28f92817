"""Full-text search over heads.

The words of a query are matched with the words of paths and contents.
"""

from collections.abc import Iterator
from itertools import islice
from typing import LiteralString

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import encoded
from holdfast.ground.validation import check_limit
from holdfast.memories.stores.records import Match, Memory
from holdfast.memories.stores.rows import (
    StoresContext,
    existence_first,
    memory_of,
    missing,
    reach,
    sought,
)
from holdfast.memories.stores.text_index import (
    holds_phrase,
    marked,
    phrases_of,
    query_words,
    snippet,
    words_of,
)
from holdfast.memories.stores.validation import checked_prefix

EVERY = 2**31 - 1

BATCH = 20
"""Contents read at a time: a phrase may be searched in every memory of a store."""


class _Hit(Struct, frozen=True, kw_only=True):
    id: str
    path: str
    words: int
    score: float


def search(
    context: StoresContext, store_id: str, query: str, *, limit: int, path_prefix: str
) -> list[Match]:
    """Return the memories that best match *query*, at most *limit*."""
    with existence_first(context, store_id):
        encoded("q", query)
        if not query.strip():
            raise InvalidInput("q", "must not be blank", next="Send at least one word.")
        rows, prefix = check_limit(limit, default=10), checked_prefix(path_prefix)
    words, phrases = query_words(query), phrases_of(query)
    sql = context.engine.queries("holdfast.memories.stores")

    def work(reader: Reader) -> list[Match]:
        reach(context, reader, store_id, write=False)
        number = reader.first(_number, sql.store_number, store=sought("memstore", store_id))
        if number is None:
            raise missing("memstore", store_id)
        if not words:
            return []
        hits = reader.all(
            _Hit,
            sql.search_memories,
            store=store_id,
            terms=msgspec.json.encode(marked(number, words).split(" ")).decode(),
            low=prefix,
            high=prefix[:-1] + "0",
            rows=EVERY if phrases else rows,
        )
        found = _with_phrases(_loaded(reader, sql.get_memories, store_id, hits), phrases)
        return [_match(memory, hit.score, words) for memory, hit in islice(found, rows)]

    return context.engine.read(work)


def _number(*, number: int) -> int:
    return number


def _loaded(
    reader: Reader, statement: LiteralString, store_id: str, hits: list[_Hit]
) -> Iterator[tuple[Memory, _Hit]]:
    for first in range(0, len(hits), BATCH):
        batch = hits[first : first + BATCH]
        ids = msgspec.json.encode([hit.id for hit in batch]).decode()
        found = reader.all(memory_of, statement, memories=ids, store=store_id)
        by_id = {memory.id: memory for memory in found}
        yield from ((by_id[hit.id], hit) for hit in batch)


def _with_phrases(
    found: Iterator[tuple[Memory, _Hit]], phrases: list[list[str]]
) -> Iterator[tuple[Memory, _Hit]]:
    for memory, hit in found:
        words = words_of(memory.path) + words_of(memory.content or "") if phrases else []
        if all(holds_phrase(words, phrase) for phrase in phrases):
            yield memory, hit


def _match(memory: Memory, score: float, words: list[str]) -> Match:
    basic = msgspec.structs.replace(memory, content=None)
    return Match(memory=basic, score=score, snippet=snippet(memory.content or "", words))
