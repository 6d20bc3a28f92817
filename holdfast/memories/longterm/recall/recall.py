"""Recall items and turns by meaning, in memory or from SQL.

For a large collection the engine proposes rows by plain BM25, and rows of the query's dates. The
exact ranking is then applied to them, with their neighbours and the collection's statistics.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Final, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.engines.base import Reader
from holdfast.engines.base import Row as EngineRow
from holdfast.ground.metrics import REGISTRY, WORK_SECONDS
from holdfast.memories.longterm.context import CollectionContext, publish
from holdfast.memories.longterm.recall.as_of import moment_of, past_of
from holdfast.memories.longterm.recall.cache import (
    CachedPostings,
    bring_up,
    participants_of,
)
from holdfast.memories.longterm.recall.candidates import Look
from holdfast.memories.longterm.recall.collapse import collapse, look_alike
from holdfast.memories.longterm.recall.index import (
    Postings,
    Statistics,
    is_machine,
)
from holdfast.memories.longterm.recall.query import ParsedQuery, read
from holdfast.memories.longterm.recall.rank import Suppressions, ranking
from holdfast.memories.longterm.recall.score import RecallSearch
from holdfast.memories.longterm.recall.topic import asks_for_turns, topic_of
from holdfast.memories.longterm.records import (
    Item,
    Mode,
    Ranked,
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


_COLLECTION, _ITEM = 0, 1


class Placed(Struct, frozen=True):
    """A ranked row with its number, and whether it is an item.

    For a turn, `beside` has the numbers of the turns before and after it, 0 for none.
    """

    ranked: Ranked
    number: int
    is_item: bool
    beside: tuple[int, int] = (0, 0)


class PlacedRanking(Struct, frozen=True, kw_only=True):
    """Ranked rows with numbers, and how many were left out. *more*: other rows remain."""

    placed: list[Placed]
    suppressed: Suppressions
    repeats: bool = False
    more: bool = False


class Stamp(Struct, frozen=True, kw_only=True):
    """The version of a collection at one moment."""

    number: int
    id: str
    version: int
    marks: int


class Fetched(Struct, frozen=True, kw_only=True):
    """Items and turns by number, with the collection at the time of the read.

    `stamp` is None if there is no collection.
    """

    stamp: Stamp | None
    items: dict[int, Item]
    turns: dict[int, Turn]


def fetch(context: CollectionContext, reader: Reader, placed: Sequence[Placed]) -> Fetched:
    """Return the records of *placed*, and of the turns beside them."""
    turns = {
        number
        for each in placed
        if not each.is_item
        for number in (each.number, *each.beside)
        if number
    }
    rows = reader.rows(
        context.sql.recalled,
        items=numbers_text({each.number for each in placed if each.is_item}),
        turns=numbers_text(turns),
        **context.named,
    )
    return _fetched(rows)


def recalled_of(fetched: Fetched, placed: Iterable[Placed]) -> tuple[list[Recalled], list[int]]:
    """Return the results of *placed*, and the numbers of those rows.

    Rows that were forgotten since the postings were read are left out.
    """
    recalled: list[Recalled] = []
    numbers: list[int] = []
    for each in placed:
        item, turn = fetched.items.get(each.number), fetched.turns.get(each.number)
        if item is None and turn is None:
            continue
        ranked, (before, after) = asdict(each.ranked), each.beside
        del ranked["id"]
        numbers.append(each.number)
        recalled.append(
            Recalled(
                item=item,
                turn=turn,
                neighbours=(fetched.turns.get(before), fetched.turns.get(after)) if turn else None,
                **ranked,
            )
        )
    return recalled, numbers


def _fetched(rows: Iterable[EngineRow]) -> Fetched:
    stamp: Stamp | None = None
    items: dict[int, Item] = {}
    turns: dict[int, Turn] = {}
    for what, number, *rest in rows:
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
    return Fetched(stamp=stamp, items=items, turns=turns)


def rank_large(
    context: CollectionContext, reader: Reader, collection: Collection, search: RecallSearch
) -> PlacedRanking:
    """Rank the rows of a large collection, best first."""
    entry = context.shared.kept.entry(collection.number, context.place)
    with entry.lock:
        known = entry.gathered(collection)
    look = Look(context, reader, collection, known)
    said = look.speakers()
    participants = participants_of(said)
    question = read(search.query.query, participants)
    others = look.related(question) if search.related else {}
    near = look.nearest(search.cosines) if search.cosines else set[int]()
    aimed = _aimed(context, search, question)
    rows = look.candidates(question, others, near, noise=aimed.noise)
    if not rows:
        return PlacedRanking(placed=[], suppressed=Suppressions())
    statistics = Statistics(
        rows=collection.rows,
        mean_length=collection.mean_length or 0.0,
        mean_window=collection.mean_window or 0.0,
        has_machine=any(is_machine(each.role, each.speaker or None) for each in said),
        participants=participants,
        df=look.df,
        learn=look.learn,
        asked=frozenset(chain(question.terms, *others.values())),
    )
    postings = Postings(rows, statistics)
    ids = {row.seq: row.id for row in postings.rows if not row.context}
    for number, at in look.accessed(set(ids)):
        postings.touch(ids[number], at)
    context.shared.kept.weigh(collection.number, entry)
    ranked = ranking(postings, question, aimed)
    found = [postings.rows[postings.number(each.id)] for each in ranked.found]
    beside = look.beside({row.seq for row in found if row.kind is None})
    placed = [
        Placed(each, row.seq, row.kind is not None, beside.get(row.seq, (0, 0)))
        for each, row in zip(ranked.found, found, strict=True)
    ]
    return PlacedRanking(
        placed=placed, suppressed=ranked.suppressed, repeats=ranked.repeats, more=ranked.more
    )


def _aimed(context: CollectionContext, search: RecallSearch, question: ParsedQuery) -> RecallSearch:
    """Return *search* with the topic of its query, parsed as *question*."""
    text = search.query.query
    return replace(
        search,
        topic=topic_of(text, question, context.user),
        noise=search.query.noise or asks_for_turns(text, question),
    )


class RecallCandidates(Struct, frozen=True, kw_only=True):
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
    found = _searched(context, search)
    recalled = found.recalled
    if found.stamp is not None:
        place = (context.workspace, context.user, found.stamp.number)
        if params.touch and recalled and search.moment is None:
            context.shared.access_log.add(context.engine, place, found.numbers, search.now)
        _publish_recalled(context, found.stamp, recalled)
    mode = "lexical" if cosines is None else "hybrid"
    _SECONDS.observe(perf_counter() - begun, mode)
    if not recalled:
        _EMPTY.add()
    for reason, count in found.suppressed.items():
        _SUPPRESSED.add(reason, by=count)
    left_out = [Suppressed(reason, count) for reason, count in sorted(found.suppressed.items())]
    return RecallResult(recalled, left_out if params.explain else ())


def _searched(context: CollectionContext, search: RecallSearch) -> RecallCandidates:
    """Search, and again among more rows as long as too many say the same."""
    while True:
        warm = None if search.moment else _warm(context, search)
        found = warm or context.engine.read(partial(_look, context, search))
        if not found.short:
            return found
        search = replace(search, reach=4 * search.reach, repeats=True)


def nearest_items(context: CollectionContext, text: str, k: int) -> list[Item]:
    """Return the *k* live items nearest to *text*, however far; publish no event."""
    params = RecallQuery(
        query=text, k=k, what="items", min_relevance=0.0, weights=Weights(1, 0, 0), touch=False
    )
    search = _search(context, params, cosines_to(context, checked_query(text)))
    found = _searched(context, search)
    return [each.item for each in found.recalled if each.item is not None]


def _search(
    context: CollectionContext, params: RecallQuery, cosines: Mapping[str, float] | None
) -> RecallSearch:
    """Check *params*, and override the options of the collection by them."""
    given = {"min_relevance": params.min_relevance, "weights": params.weights}
    changed = {name: value for name, value in given.items() if value is not None}
    options = replace(context.options, **changed) if changed else context.options
    moment = moment_of(context, params.at, params.valid_at)
    return RecallSearch(
        options=options,
        reach=2 * params.k + SPARE if options.min_relevance > 0 else 0,
        query=replace(
            params,
            k=checked_k(params.k),
            what=checked_what(params.what),
            kinds=checked_kinds(params.kinds),
            tiers=checked_tiers(params.tiers),
        ),
        now=context.now() if moment is None or moment.at is None else moment.at,
        moment=moment,
        cosines=cosines,
    )


def _warm(context: CollectionContext, search: RecallSearch) -> RecallCandidates | None:
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
        ranked = _placed(context, entry, search)
    fetched = fetch(context, context.engine, ranked.placed)
    stamp = fetched.stamp
    if stamp is None or (stamp.number, stamp.version, stamp.marks) != (
        entry.collection,
        version,
        marks,
    ):
        return None
    return _settled(search, ranked, fetched)


def _look(context: CollectionContext, search: RecallSearch, reader: Reader) -> RecallCandidates:
    collection = reader.first(Collection, context.sql.find_collection, **context.named)
    if collection is None or not (collection.rows or search.moment):
        return RecallCandidates(stamp=None, recalled=[], numbers=[], suppressed=Suppressions())
    bring_up_to_date(context, collection.analyzer)
    if search.moment is not None:
        return _look_back(context, reader, collection, search)
    if collection.rows > LARGE and collection.indexed:
        ranked = rank_large(context, reader, collection, search)
    else:
        ranked = _rank_kept(context, reader, collection, search)
    return _settled(search, ranked, fetch(context, reader, ranked.placed))


def _settled(search: RecallSearch, ranked: PlacedRanking, fetched: Fetched) -> RecallCandidates:
    """Return the results of *ranked* with their records; repeats are one result."""
    recalled, numbers = recalled_of(fetched, ranked.placed)
    k, suppressed, query = search.query.k, Suppressions(ranked.suppressed), search.query
    if not search.reach or not (ranked.repeats or look_alike(recalled, query.query)):
        return RecallCandidates(
            stamp=fetched.stamp, recalled=recalled, numbers=numbers, suppressed=suppressed
        )
    found = collapse(zip(recalled, numbers, strict=True), query.query, k=k, echo=query.noise)
    suppressed.update(duplicate=found.duplicates, echo=found.echoes)
    return RecallCandidates(
        stamp=fetched.stamp,
        recalled=found.recalled,
        numbers=found.numbers,
        suppressed=+suppressed,
        short=len(found.recalled) < k and ranked.more,
    )


def _look_back(
    context: CollectionContext, reader: Reader, collection: Collection, search: RecallSearch
) -> RecallCandidates:
    """Search the rows of an earlier moment."""
    past = past_of(context, reader, collection, search.moment or Moment())
    if search.cosines is not None:
        search = replace(search, cosines=past.known(search.cosines))
    ranked = _placed(context, past.entry, search)
    numbers = {number for each in ranked.placed for number in (each.number, *each.beside)}
    stamp = Stamp(
        number=collection.number,
        id=collection.id,
        version=collection.version,
        marks=collection.marks,
    )
    items = past.items(context, reader, numbers)
    turns = past.turns(context, reader, numbers - items.keys())
    return _settled(search, ranked, Fetched(stamp=stamp, items=items, turns=turns))


def _rank_kept(
    context: CollectionContext, reader: Reader, collection: Collection, search: RecallSearch
) -> PlacedRanking:
    kept = context.shared.kept
    entry = kept.entry(collection.number, context.place)
    with entry.lock:
        grown = bring_up(entry, context.engine, reader, collection)
        ranked = _placed(context, entry, search)
    if grown:
        kept.weigh(collection.number, entry)
    return ranked


def _placed(
    context: CollectionContext, entry: CachedPostings, search: RecallSearch
) -> PlacedRanking:
    """Rank the postings of *entry*, which is locked."""
    postings = entry.postings
    placed: list[Placed] = []
    if postings is None:
        return PlacedRanking(placed=placed, suppressed=Suppressions())
    question = read(search.query.query, postings.participants)
    ranked = ranking(postings, question, _aimed(context, search, question))
    for each in ranked.found:
        number = postings.number(each.id)
        row = postings.rows[number]
        beside = entry.beside(number) if row.kind is None else (0, 0)
        placed.append(Placed(each, row.seq, row.kind is not None, beside))
    return PlacedRanking(
        placed=placed, suppressed=ranked.suppressed, repeats=ranked.repeats, more=ranked.more
    )


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
