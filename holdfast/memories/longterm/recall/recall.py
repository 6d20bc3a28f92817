"""Recall items and turns by meaning and words, from cached postings or SQL.

The path of a recall: the query is checked; the postings of the collection are ranked, cached or
read; the records of the best rows are fetched; those that say the same are one result.

Two rows say the same if their texts differ in case, punctuation and white space alone, or are
duplicates as items are: nearly the same terms in the same order, the same numbers and negations.
Bodies alone show where texts need to be compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader
from holdfast.ground.metrics import REGISTRY, WORK_SECONDS
from holdfast.ground.trust import RANKS
from holdfast.memories.longterm.context import CollectionContext, publish
from holdfast.memories.longterm.recall.as_of import moment_of, past_of
from holdfast.memories.longterm.recall.cache import CachedPostings, bring_up
from holdfast.memories.longterm.recall.candidates import rank_large
from holdfast.memories.longterm.recall.dedupe import (
    ComparedText,
    Like,
    fold_of,
    said,
    twin,
)
from holdfast.memories.longterm.recall.index import ROLE_WORDS
from holdfast.memories.longterm.recall.query import read
from holdfast.memories.longterm.recall.rank import (
    DUPLICATE,
    NOTHING,
    Ranking,
    Suppressions,
    ranking,
)
from holdfast.memories.longterm.recall.score import RecallSearch, aimed_at
from holdfast.memories.longterm.records import (
    Item,
    Mode,
    Recalled,
    RecallQuery,
    RecallResult,
    Suppressed,
    SuppressReason,
    Turn,
    Weights,
)
from holdfast.memories.longterm.rows import (
    Collection,
    ItemRow,
    Moment,
    TurnRow,
    numbers_text,
)
from holdfast.memories.longterm.transaction import LARGE
from holdfast.memories.longterm.validation import (
    checked_k,
    checked_kinds,
    checked_query,
    checked_tiers,
    checked_what,
)
from holdfast.memories.longterm.vectors.compare import cosines_to
from holdfast.memories.longterm.write import bring_up_to_date

_SECONDS: Final = REGISTRY.histogram(
    "ltm_recall_seconds", "From the query to what was recalled.", WORK_SECONDS, mode=get_args(Mode)
)
_EMPTY: Final = REGISTRY.counter("ltm_recall_empty_total", "Recalls that found nothing.")
_SUPPRESSED: Final = REGISTRY.counter(
    "ltm_recall_suppressed_total",
    "Rows that a recall left out, and queries that recall nothing, by reason.",
    reason=get_args(SuppressReason),
)

SPARE: Final = 8
"""Rows beyond twice `k` that are looked at where some of the best may say the same."""
LOOKED_AT, HEAD = 100, 40
"""Characters at the beginning of a text, and letters of those, by which texts look alike."""
MOST_ALSO: Final = 20
"""Ids of rows left out for another one."""

_COLLECTION, _ITEM = 0, 1


class Stamp(Struct, frozen=True, kw_only=True):
    """The version of a collection at one moment."""

    number: int
    id: str
    version: int
    marks: int


class RankedRecords(Struct, frozen=True, kw_only=True):
    """Items and turns by number, with the collection at the time of the read.

    `stamp` is None if there is no collection.
    """

    stamp: Stamp | None
    items: dict[int, Item]
    turns: dict[int, Turn]


class RecallOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a search: the collection, if any, and the matches with numbers.

    *short*: fewer than wanted, because some said the same, and other rows remain.
    """

    stamp: Stamp | None
    recalled: list[Recalled]
    numbers: list[int]
    suppressed: Suppressions
    short: bool = False


def recall(
    context: CollectionContext, params: RecallQuery, *, cosines: Mapping[str, float] | None = None
) -> RecallResult:
    """Return the items and turns that answer *params*, best first.

    *cosines* are those of rows to the query, by id; with None they are computed if rows are
    compared by meaning.
    """
    begun = perf_counter()
    text = checked_query(params.query)
    if cosines is None and params.k and context.embedder is not None:
        cosines = cosines_to(context, text)
    search = _search(context, params, cosines)
    if not search.query.k:
        return RecallResult()
    found = _outcome(context, search)
    recalled, stamp = found.recalled, found.stamp
    if stamp is not None:
        if params.touch and recalled and search.moment is None:
            place = (context.workspace, context.user, stamp.number)
            context.shared.access_log.add(context.engine, place, found.numbers, search.now)
        if context.engine.events.heard:
            _publish_recalled(context, stamp, recalled)
    _SECONDS.observe(perf_counter() - begun, "lexical" if cosines is None else "hybrid")
    if not recalled:
        _EMPTY.add()
    for reason, count in found.suppressed.items():
        _SUPPRESSED.add(reason, by=count)
    if not params.explain:
        return RecallResult(recalled)
    left_out = [Suppressed(reason, count) for reason, count in sorted(found.suppressed.items())]
    return RecallResult(recalled, left_out)


def nearest_items(context: CollectionContext, text: str, k: int) -> list[Item]:
    """Return the *k* live items nearest to *text*, however far; publish no event."""
    params = RecallQuery(
        query=text, k=k, what="items", min_relevance=0.0, weights=Weights(1, 0, 0), touch=False
    )
    search = _search(context, params, cosines_to(context, checked_query(text)))
    found = _outcome(context, search)
    return [each.item for each in found.recalled if each.item is not None]


def _search(
    context: CollectionContext, params: RecallQuery, cosines: Mapping[str, float] | None
) -> RecallSearch:
    """Check *params*, and override the options of the collection by them."""
    given = {"min_relevance": params.min_relevance, "weights": params.weights}
    changed = {name: value for name, value in given.items() if value is not None}
    options = replace(context.options, **changed) if changed else context.options
    present = params.at is None and params.valid_at is None
    moment = None if present else moment_of(context, params.at, params.valid_at)
    return RecallSearch(
        options=options,
        reach=2 * params.k + SPARE if options.min_relevance > 0 else 0,
        query=replace(
            params,
            k=checked_k(params.k),
            what=checked_what(params.what),
            kinds=None if params.kinds is None else checked_kinds(params.kinds),
            tiers=checked_tiers(params.tiers),
        ),
        now=context.now() if moment is None or moment.at is None else moment.at,
        moment=moment,
        cosines=cosines,
    )


def _outcome(context: CollectionContext, search: RecallSearch) -> RecallOutcome:
    """Search, and again among more rows as long as too many say the same."""
    while True:
        warm = None if search.moment else _warm(context, search)
        found = warm or context.engine.read(partial(_read, context, search))
        if not found.short:
            return found
        search = replace(search, reach=4 * search.reach, repeats=True)


def _warm(context: CollectionContext, search: RecallSearch) -> RecallOutcome | None:
    """Search the cached postings; return None if they are out of date.

    The statement that fetches the matches also reads the version.
    """
    entry = context.shared.kept.at(context.place)
    if entry is None:
        return None
    with entry.lock:
        if entry.postings is None:
            return None
        version, marks = entry.version, entry.marks
        ranked = _ranking(context, entry, search)
    records = _records(context, context.engine, ranked)
    stamp = records.stamp
    if stamp is None or (stamp.number, stamp.version, stamp.marks) != (
        entry.collection,
        version,
        marks,
    ):
        return None
    return _results(search, ranked, records)


def _read(context: CollectionContext, search: RecallSearch, reader: Reader) -> RecallOutcome:
    """Search the collection as *reader* sees it."""
    collection = reader.first(Collection, context.sql.find_collection, **context.named)
    if collection is None or not (collection.rows or search.moment):
        return RecallOutcome(stamp=None, recalled=[], numbers=[], suppressed=Suppressions())
    bring_up_to_date(context, collection.analyzer)
    if search.moment is not None:
        return _read_past(context, reader, collection, search)
    if collection.rows > LARGE and collection.indexed:
        ranked = rank_large(context, reader, collection, search)
    else:
        kept = context.shared.kept
        entry = kept.entry(collection.number, context.place)
        with entry.lock:
            grown = bring_up(entry, context.engine, reader, collection)
            ranked = _ranking(context, entry, search)
        if grown:
            kept.weigh(collection.number, entry)
    return _results(search, ranked, _records(context, reader, ranked))


def _read_past(
    context: CollectionContext, reader: Reader, collection: Collection, search: RecallSearch
) -> RecallOutcome:
    """Search the rows of an earlier moment."""
    past = past_of(context, reader, collection, search.moment or Moment())
    if search.cosines is not None:
        search = replace(search, cosines=past.known(search.cosines))
    ranked = _ranking(context, past.entry, search)
    items = past.items(context, reader, {row.seq for row in ranked.rows if row.kind is not None})
    turns = past.turns(context, reader, _turn_numbers(ranked))
    stamp = Stamp(
        number=collection.number,
        id=collection.id,
        version=collection.version,
        marks=collection.marks,
    )
    return _results(search, ranked, RankedRecords(stamp=stamp, items=items, turns=turns))


def _ranking(context: CollectionContext, entry: CachedPostings, search: RecallSearch) -> Ranking:
    """Rank the postings of *entry*, which is locked."""
    postings = entry.postings
    if postings is None:
        return NOTHING
    question = read(search.query.query, postings.participants)
    ranked = ranking(postings, question, aimed_at(search, question, context.user))
    turns = [row for row in ranked.rows if row.kind is None]
    if not turns:
        return ranked
    beside = {row.seq: entry.beside(postings.number(row.id)) for row in turns}
    return replace(ranked, beside=beside)


def _turn_numbers(ranked: Ranking) -> set[int]:
    """Return the numbers of the turns of *ranked*, and of those beside them."""
    numbers = {row.seq for row in ranked.rows if row.kind is None}
    for beside in ranked.beside.values():
        numbers.update(beside)
    return numbers - {0}


def _records(context: CollectionContext, reader: Reader, ranked: Ranking) -> RankedRecords:
    """Return the records of *ranked*, and of the turns beside them."""
    found = reader.rows(
        context.sql.recalled,
        items=numbers_text({row.seq for row in ranked.rows if row.kind is not None}),
        turns=numbers_text(_turn_numbers(ranked)),
        **context.named,
    )
    stamp: Stamp | None = None
    items: dict[int, Item] = {}
    turns: dict[int, Turn] = {}
    for what, number, *rest in found:
        if what == _COLLECTION:
            stamp = Stamp(number=number, id=rest[0], version=rest[-1], marks=rest[-2])
        elif what == _ITEM:
            items[number] = ItemRow(number, *rest).record()
        else:
            id, text, role, _, speaker, session, of, thread, caption, at, created, *more = rest
            _, tier, flags, held, said_by, origin_ref, *_ = more
            row = TurnRow(
                *(number, id, role, text, speaker, at, session, thread, caption, created),
                *(tier, flags, held, said_by, origin_ref, of),
            )
            turns[number] = row.record()
    return RankedRecords(stamp=stamp, items=items, turns=turns)


def _results(search: RecallSearch, ranked: Ranking, records: RankedRecords) -> RecallOutcome:
    """Return the records of *ranked*, those that say the same as one result.

    Rows that were forgotten since the postings were read are left out.
    """
    recalled: list[Recalled] = []
    numbers: list[int] = []
    turns = records.turns
    for each, row in zip(ranked.found, ranked.rows, strict=True):
        item, turn = records.items.get(row.seq), turns.get(row.seq)
        if item is None and turn is None:
            continue
        before, after = ranked.beside.get(row.seq, (0, 0))
        numbers.append(row.seq)
        recalled.append(
            Recalled(
                item=item,
                turn=turn,
                score=each.score,
                similarity=each.similarity,
                relevance=each.relevance,
                recency=each.recency,
                importance=each.importance,
                neighbours=(turns.get(before), turns.get(after)) if turn else None,
                why=each.why,
                also=each.also,
            )
        )
    k, suppressed, query = search.query.k, ranked.suppressed, search.query
    short = False
    if search.reach and (ranked.repeats or look_alike(recalled, query.query)):
        pairs = zip(recalled, numbers, strict=True)
        found = collapse(pairs, query.query, k=k, echo=query.noise)
        recalled, numbers = found.recalled, found.numbers
        left_out: dict[SuppressReason, int] = {
            "duplicate": found.duplicates,
            "echo": found.echoes,
        }
        suppressed = suppressed + Suppressions(left_out)
        short = len(recalled) < k and ranked.more
    return RecallOutcome(
        stamp=records.stamp, recalled=recalled, numbers=numbers, suppressed=suppressed, short=short
    )


def look_alike(found: Iterable[Recalled], query: str) -> bool:
    """Check whether two of *found*, or one and the *query*, may have the same letters."""
    heads = [_letters(record.text) for row in found if (record := row.item or row.turn)]
    return len(set(heads)) < len(heads) or _letters(query) in heads


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text[:LOOKED_AT].casefold()))[:HEAD]


class Collapse(Struct, frozen=True, kw_only=True):
    """Results that differ, with their numbers, and how many rows were left out."""

    recalled: list[Recalled]
    numbers: list[int]
    duplicates: int
    echoes: int


class _Group:
    """Results that say the same as the first of them."""

    def __init__(self, text: ComparedText, like: Like, first: Recalled, number: int) -> None:
        self.text, self.like = text, like
        self.members = [(first, number)]

    def says(self, text: ComparedText, row: Recalled) -> bool:
        """Check whether *row*, with this *text*, says the same as this group."""
        return _same_voice(self.members[0][0], row) and (
            text.fold == self.text.fold or twin(text, (self.like,), DUPLICATE) is not None
        )

    def standing(self) -> tuple[Recalled, int]:
        """Return the result of the highest tier: an item, else the newest turn."""
        first = min(self.members, key=lambda each: _order(each[0]))
        others = tuple(
            id
            for row, _ in self.members
            for id in (*((row.id,) if row is not first[0] else ()), *row.also)
        )
        return _standing_for(first[0], others), first[1]


def collapse(found: Iterable[tuple[Recalled, int]], query: str, *, k: int, echo: bool) -> Collapse:
    """Return the first *k* of *found*, each for all below it that say the same.

    With *echo* turns may be the *query* itself; else they are left out.
    """
    fold, groups = fold_of(query), list[_Group]()
    duplicates = echoes = 0
    for row, number in found:
        text = said(_whole(row))
        if not echo and row.turn is not None and fold_of(row.text) == fold:
            echoes += 1
            continue
        group = next((each for each in groups if each.says(text, row)), None)
        if group is not None:
            group.members.append((row, number))
            duplicates += 1
        elif len(groups) < k:
            groups.append(_Group(text, _like(row, text, number), row, number))
        else:
            break
    standing = [group.standing() for group in groups]
    return Collapse(
        recalled=[row for row, _ in standing],
        numbers=[number for _, number in standing],
        duplicates=duplicates,
        echoes=echoes,
    )


def _standing_for(row: Recalled, others: Sequence[str]) -> Recalled:
    """Return *row* with the ids of the *others* that were left out for it."""
    also = tuple(others[:MOST_ALSO])
    if also == row.also and len(others) == len(also):
        return row
    return replace(row, also=also, why={**row.why, "also": len(others)})


def _like(row: Recalled, text: ComparedText, number: int) -> Like:
    return Like(
        number=number, id=row.id, fold=text.fold, body=" ".join(text.terms), text=_whole(row)
    )


def _whole(row: Recalled) -> str:
    """Return what *row* says, with the caption of its image."""
    caption = row.turn.caption if row.turn else None
    return f"{row.text} {caption}" if caption else row.text


def _same_voice(one: Recalled, other: Recalled) -> bool:
    """Check that not two people speak, each of themselves."""
    voices = {_voice(one), _voice(other)} - {""}
    return len(voices) < 2  # noqa: PLR2004 - two voices


def _voice(row: Recalled) -> str:
    speaker = (row.turn.speaker or "").casefold() if row.turn else ""
    return "" if speaker in ROLE_WORDS else speaker


def _order(row: Recalled) -> tuple[int, bool, float]:
    found = row.item or row.turn
    rank = RANKS.get(found.tier or "said", 0) if found else 0
    return -rank, row.item is None, -_at(row)


def _at(row: Recalled) -> float:
    at = row.item.created_at if row.item else row.turn and (row.turn.at or row.turn.created_at)
    return at.timestamp() if at else 0.0


def _publish_recalled(context: CollectionContext, stamp: Stamp, recalled: list[Recalled]) -> None:
    items = [each.item.id for each in recalled if each.item]
    turns = [each.turn.id for each in recalled if each.turn]
    publish(
        context,
        "recalled",
        collection=stamp.id,
        ids={"item": items, "turn": turns},
        items=len(items),
        turns=len(turns),
    )
