"""Recalling: what the collection holds that answers a query, best first."""

from collections.abc import Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.memories.longterm.context import CollectionContext, publish
from holdfast.memories.longterm.recall.cache import CachedPostings, bring_up
from holdfast.memories.longterm.recall.fetch import Placed, Stamp, fetch, recalled_of
from holdfast.memories.longterm.recall.query import read
from holdfast.memories.longterm.recall.rank import rank
from holdfast.memories.longterm.recall.recall import rank_large
from holdfast.memories.longterm.records import Item, Recalled, RecallOptions, Weights, checked_share
from holdfast.memories.longterm.rows import Collection
from holdfast.memories.longterm.transaction import LARGE
from holdfast.memories.longterm.validation import (
    checked_k,
    checked_kinds,
    checked_query,
    checked_what,
)
from holdfast.memories.longterm.vectors.compare import cosines_to
from holdfast.memories.longterm.write import bring_up_to_date

K: Final = 5


class RecallQuery(Struct, frozen=True, kw_only=True):
    """A recall as it was asked for."""

    query: str
    k: int = K
    what: str = "all"
    kinds: Iterable[str] | None = None
    min_relevance: float | None = None
    weights: Weights | None = None
    touch: bool = True


class RecallSearch(Struct, frozen=True, kw_only=True):
    """What is looked for, and how rows are compared."""

    query: str
    wanted: RecallOptions
    now: int
    cosines: Mapping[str, float] | None = None


class RecallCandidates(Struct, frozen=True, kw_only=True):
    """What a look came to: the collection, if there is one, and what answers, with numbers."""

    stamp: Stamp | None
    recalled: list[Recalled]
    numbers: list[int]


def recall(
    caller: CollectionContext, asked: RecallQuery, *, cosines: Mapping[str, float] | None = None
) -> list[Recalled]:
    """Return what answers *asked*, best first.

    *cosines* are those of rows to the query, by id; None lets them be found, where rows are
    compared by meaning.
    """
    begun = perf_counter()
    query = checked_query(asked.query)
    if cosines is None and asked.k:
        cosines = cosines_to(caller, query)
    answering = RecallSearch(
        query=query,
        wanted=_wanted(caller, asked),
        now=caller.now(),
        cosines=cosines,
    )
    if not answering.wanted.k:
        return []
    found = _warm(caller, answering) or caller.engine.read(partial(_look, caller, answering))
    recalled = found.recalled
    if found.stamp is not None:
        whose = (caller.workspace, caller.user, found.stamp.number)
        if asked.touch and recalled:
            caller.shared.marks.add(caller.engine, whose, found.numbers, answering.now)
        _tell(caller, found.stamp, recalled)
    mode = "lexical" if cosines is None else "hybrid"
    caller.shared.counts.took("recall_seconds", perf_counter() - begun, mode)
    if not recalled:
        caller.shared.counts.add("recall_empty_total")
    return recalled


def nearest_items(caller: CollectionContext, text: str, k: int) -> list[Item]:
    """Return the *k* live items nearest to *text*, however far; nobody is told that they were."""
    asked = RecallQuery(
        query=text, k=k, what="items", min_relevance=0.0, weights=Weights(1, 0, 0), touch=False
    )
    answering = RecallSearch(
        query=checked_query(text),
        wanted=_wanted(caller, asked),
        now=caller.now(),
        cosines=cosines_to(caller, text),
    )
    found = _warm(caller, answering) or caller.engine.read(partial(_look, caller, answering))
    return [each.item for each in found.recalled if each.item is not None]


def _wanted(caller: CollectionContext, asked: RecallQuery) -> RecallOptions:
    options = caller.options
    least = options.min_relevance
    if asked.min_relevance is not None:
        least = checked_share("min_relevance", asked.min_relevance)
    return RecallOptions(
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


def _warm(caller: CollectionContext, answering: RecallSearch) -> RecallCandidates | None:
    """Return what the postings that are kept answer, if they are of this moment.

    That is told by the one statement that also fetches what they found.
    """
    entry = caller.shared.kept.at(caller.place)
    if entry is None:
        return None
    with entry.lock:
        if entry.postings is None:
            return None
        version, marks = entry.version, entry.marks
        placed = _placed(entry, answering)
    fetched = fetch(caller, caller.engine, placed)
    stamp = fetched.stamp
    if stamp is None or (stamp.number, stamp.version, stamp.marks) != (
        entry.collection,
        version,
        marks,
    ):
        return None
    recalled, numbers = recalled_of(fetched, placed)
    return RecallCandidates(stamp=stamp, recalled=recalled, numbers=numbers)


def _look(caller: CollectionContext, answering: RecallSearch, reader: Reader) -> RecallCandidates:
    sql = caller.engine.queries("holdfast.memories.longterm")
    collection = reader.first(Collection, sql.find_collection, **caller.named)
    if collection is None or not collection.rows:
        return RecallCandidates(stamp=None, recalled=[], numbers=[])
    bring_up_to_date(caller, collection.analyzer)
    if collection.rows > LARGE and collection.indexed:
        placed = rank_large(caller, reader, collection, answering)
    else:
        placed = _rank_kept(caller, reader, collection, answering)
    fetched = fetch(caller, reader, placed)
    recalled, numbers = recalled_of(fetched, placed)
    return RecallCandidates(stamp=fetched.stamp, recalled=recalled, numbers=numbers)


def _rank_kept(
    caller: CollectionContext, reader: Reader, collection: Collection, answering: RecallSearch
) -> list[Placed]:
    kept = caller.shared.kept
    entry = kept.entry(collection.number, caller.place)
    with entry.lock:
        grown = bring_up(entry, caller.engine, reader, collection)
        placed = _placed(entry, answering)
    if grown:
        kept.weigh(collection.number, entry)
    return placed


def _placed(entry: CachedPostings, answering: RecallSearch) -> list[Placed]:
    """Return what the postings of *entry*, which is locked, answer."""
    postings = entry.postings
    if postings is None:
        return []
    question = read(answering.query, postings.participants)
    ranked = rank(
        postings, question, answering.wanted, now=answering.now, cosines=answering.cosines
    )
    placed: list[Placed] = []
    for each in ranked:
        number = postings.number(each.id)
        row = postings.rows[number]
        beside = entry.beside(number) if row.kind is None else (0, 0)
        placed.append(Placed(each, row.seq, row.kind is not None, beside))
    return placed


def _tell(caller: CollectionContext, stamp: Stamp, recalled: list[Recalled]) -> None:
    items = [each.item.id for each in recalled if each.item]
    turns = [each.turn.id for each in recalled if each.turn]
    publish(
        caller,
        "recalled",
        collection=stamp.id,
        ids={"item": items, "turn": turns},
        items=len(items),
        turns=len(turns),
    )
