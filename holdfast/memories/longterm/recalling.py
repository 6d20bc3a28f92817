"""Recalling: what the collection holds that answers a query, best first."""

from collections.abc import Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.memories.longterm.asked import (
    checked_k,
    checked_kinds,
    checked_query,
    checked_what,
)
from holdfast.memories.longterm.bodies import bring_up
from holdfast.memories.longterm.caller import Caller
from holdfast.memories.longterm.indexing import LARGE
from holdfast.memories.longterm.item import Item, Recalled, Turn
from holdfast.memories.longterm.large import rank_large
from holdfast.memories.longterm.meaning import cosines_to
from holdfast.memories.longterm.options import checked_share
from holdfast.memories.longterm.question import read
from holdfast.memories.longterm.recall import rank
from holdfast.memories.longterm.rows import Collection, ItemRow, TurnRow, numbers_text
from holdfast.memories.longterm.score import Ranked, Wanted, Weights
from holdfast.memories.longterm.telling import publish

K: Final = 5


class Asked(Struct, frozen=True, kw_only=True):
    """A recall as it was asked for."""

    query: str
    k: int = K
    what: str = "all"
    kinds: Iterable[str] | None = None
    min_relevance: float | None = None
    weights: Weights | None = None
    touch: bool = True


class Answering(Struct, frozen=True, kw_only=True):
    """What is looked for, and how rows are compared."""

    query: str
    wanted: Wanted
    now: int
    cosines: Mapping[str, float] | None = None


class Placed(Struct, frozen=True):
    """A row that answers, with its number, and whether it is an item."""

    ranked: Ranked
    number: int
    is_item: bool


class Beside(Struct, frozen=True, kw_only=True):
    """The turns before and after one, by their numbers."""

    number: int
    earlier: int | None
    later: int | None


class Found(Struct, frozen=True, kw_only=True):
    """What a look came to: the collection, if there is one, and what answers, with numbers."""

    collection: Collection | None
    recalled: tuple[Recalled, ...] = ()
    numbers: tuple[int, ...] = ()


def recall(
    caller: Caller, asked: Asked, *, cosines: Mapping[str, float] | None = None
) -> list[Recalled]:
    """Return what answers *asked*, best first.

    *cosines* are those of rows to the query, by id; None lets them be found, where rows are
    compared by meaning.
    """
    begun = perf_counter()
    query = checked_query(asked.query)
    if cosines is None and asked.k:
        cosines = cosines_to(caller, query)
    answering = Answering(
        query=query,
        wanted=_wanted(caller, asked),
        now=caller.now(),
        cosines=cosines,
    )
    if not answering.wanted.k:
        return []
    found = caller.engine.read(partial(_look, caller, answering))
    recalled = list(found.recalled)
    if found.collection is not None:
        whose = (caller.workspace, caller.user, found.collection.number)
        if asked.touch and recalled:
            caller.shared.marks.add(caller.engine, whose, found.numbers, answering.now)
        _tell(caller, found.collection, recalled)
    mode = "lexical" if cosines is None else "hybrid"
    caller.shared.counts.took("recall_seconds", perf_counter() - begun, mode)
    if not recalled:
        caller.shared.counts.add("recall_empty_total")
    return recalled


def _wanted(caller: Caller, asked: Asked) -> Wanted:
    options = caller.options
    least = options.min_relevance
    if asked.min_relevance is not None:
        least = checked_share("min_relevance", asked.min_relevance)
    return Wanted(
        k=checked_k(asked.k),
        what=checked_what(asked.what),
        kinds=checked_kinds(asked.kinds),
        weights=options.weights if asked.weights is None else asked.weights,
        half_life_days=options.half_life_days,
        min_relevance=least,
        row_relevance=options.row_relevance,
        min_cosine=options.min_cosine,
        cosine_weight=options.cosine_weight,
    )


def _look(caller: Caller, answering: Answering, reader: Reader) -> Found:
    sql = caller.engine.queries("holdfast.memories.longterm")
    collection = reader.first(Collection, sql.find_collection, **caller.named)
    if collection is None or not collection.rows:
        return Found(collection=collection)
    if collection.rows > LARGE and collection.indexed:
        placed = rank_large(caller, reader, collection, answering)
    else:
        placed = _rank_kept(caller, reader, collection, answering)
    return _fetched(caller, reader, collection, placed)


def _rank_kept(
    caller: Caller, reader: Reader, collection: Collection, answering: Answering
) -> list[Placed]:
    kept = caller.shared.kept
    entry = kept.entry(collection.number)
    with entry.lock:
        postings, grown = bring_up(entry, caller.engine, reader, collection)
        question = read(answering.query, postings.participants)
        ranked = rank(
            postings, question, answering.wanted, now=answering.now, cosines=answering.cosines
        )
        rows = [postings.rows[postings.number(each.id)] for each in ranked]
    if grown:
        kept.weigh(collection.number, entry)
    return [
        Placed(each, row.seq, row.kind is not None) for each, row in zip(ranked, rows, strict=True)
    ]


def _fetched(caller: Caller, reader: Reader, collection: Collection, placed: list[Placed]) -> Found:
    """Return what *placed* tells of; what was forgotten since the postings knew it is left out."""
    items = _items(caller, reader, collection, [each.number for each in placed if each.is_item])
    turns, beside = _turns(
        caller, reader, collection, [each.number for each in placed if not each.is_item]
    )
    recalled: list[Recalled] = []
    numbers: list[int] = []
    for each in placed:
        item, turn = items.get(each.number), turns.get(each.number)
        if item is None and turn is None:
            continue
        around = beside.get(each.number)
        ranked = each.ranked
        numbers.append(each.number)
        recalled.append(
            Recalled(
                item=item,
                turn=turn,
                score=ranked.score,
                similarity=ranked.similarity,
                relevance=ranked.relevance,
                recency=ranked.recency,
                importance=ranked.importance,
                neighbours=around and (turns.get(around[0]), turns.get(around[1])),
                why=ranked.why,
            )
        )
    return Found(collection=collection, recalled=tuple(recalled), numbers=tuple(numbers))


def _items(
    caller: Caller, reader: Reader, collection: Collection, numbers: list[int]
) -> dict[int, Item]:
    if not numbers:
        return {}
    sql = caller.engine.queries("holdfast.memories.longterm")
    rows = reader.all(
        ItemRow,
        sql.items_numbered,
        collection=collection.number,
        numbers=numbers_text(numbers),
    )
    return {row.number: row.record() for row in rows}


def _turns(
    caller: Caller, reader: Reader, collection: Collection, numbers: list[int]
) -> tuple[dict[int, Turn], dict[int, tuple[int, int]]]:
    """Return the turns of *numbers* and those beside them, and who is beside whom; 0 is nobody."""
    if not numbers:
        return {}, {}
    sql = caller.engine.queries("holdfast.memories.longterm")
    place = {"collection": collection.number}
    around = {
        each.number: (each.earlier or 0, each.later or 0)
        for each in reader.all(Beside, sql.beside, numbers=numbers_text(numbers), **place)
    }
    every = {number for pair in around.values() for number in pair if number} | set(numbers)
    rows = reader.all(TurnRow, sql.turns_numbered, numbers=numbers_text(every), **place)
    return {row.number: row.record() for row in rows}, around


def _tell(caller: Caller, collection: Collection, recalled: list[Recalled]) -> None:
    items = [each.item.id for each in recalled if each.item]
    turns = [each.turn.id for each in recalled if each.turn]
    publish(
        caller,
        "recalled",
        collection=collection.id,
        ids={"item": items, "turn": turns},
        items=len(items),
        turns=len(turns),
    )
