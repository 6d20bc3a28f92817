"""The ranking of a large collection: of rows that the engine proposes.

The engine proposes rows by plain BM25, and rows of the query's dates. With them come the rows
beside them, which lend them weight. The exact ranking is then applied, with the collection's
statistics.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import chain, groupby
from math import log
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.analyze import QueryDate, closeness
from holdfast.memories.longterm.recall.cache import (
    WINDOW,
    Beside,
    ItemSource,
    RowCache,
    Speaker,
    item_row,
    participants_of,
    sources_of,
    turn_row,
)
from holdfast.memories.longterm.recall.index import (
    DAY,
    Postings,
    Row,
    Statistics,
    is_machine,
)
from holdfast.memories.longterm.recall.query import ParsedQuery, chosen, read, related
from holdfast.memories.longterm.recall.rank import NOTHING, Ranking, ranking
from holdfast.memories.longterm.recall.score import (
    CANDIDATES,
    COMMON,
    RecallSearch,
    aimed_at,
    rare_terms,
)
from holdfast.memories.longterm.rows import (
    Collection,
    NumberedRow,
    ids_text,
    numbers_text,
)
from holdfast.memories.longterm.vectors.table import ComputedCosines

DATED: Final = 1_000
"""Largest number of rows of the query's dates, the closest days first."""
MOST_PROPOSED: Final = 16 * CANDIDATES
"""Largest number of rows that the engine proposes where most of them are no statement."""
NEAR: Final = 100
"""Rows nearest by meaning. With 200 recall@10 is the same, and a recall takes a seventh longer."""
NEITHER: Final = -1
"""The number of no row."""


class Span(Struct, frozen=True):
    """When the first and the last turn was said."""

    first: int | None
    last: int | None


class Chains(Struct):
    """The turn before each turn, as far as loaded; NEITHER at the start of a session."""

    before: dict[int, int]

    def note(self, number: int, earlier: tuple[int, ...]) -> None:
        """Record the turns before *number*, nearest first."""
        chain = (number, *earlier)
        self.before.update(zip(chain, earlier, strict=False))
        if len(earlier) < WINDOW:
            self.before[chain[-1]] = NEITHER

    def apart(self, number: int, loaded: set[int]) -> bool:
        """Check whether the turn before *number* is missing in *loaded*."""
        earlier = self.before.get(number)
        return earlier is None or (earlier != NEITHER and earlier not in loaded)


class CandidateRows:
    """The reads of one recall in a large collection."""

    def __init__(
        self, context: CollectionContext, reader: Reader, collection: Collection, known: RowCache
    ) -> None:
        self._reader, self._collection, self._known = reader, collection, known
        self._sql = context.sql
        self._place = {"collection": collection.number}

    def speakers(self) -> list[Speaker]:
        """Return the speakers with their roles."""
        known = self._known
        if known.speakers is None:
            known.speakers = self._reader.all(Speaker, self._sql.speakers, **self._place)
        return known.speakers

    def learn(self, terms: Iterable[str]) -> None:
        """Load the document frequencies of *terms*."""
        known = self._known.df
        unknown = tuple(term for term in terms if term not in known)
        if unknown:
            rows = self._reader.rows(self._sql.frequencies, terms=ids_text(unknown), **self._place)
            known.update(dict.fromkeys(unknown, 0) | dict(rows))

    def df(self, term: str) -> int:
        """Return the number of rows that hold *term*."""
        self.learn((term,))
        return self._known.df[term]

    def related(self, question: ParsedQuery) -> dict[str, tuple[str, ...]]:
        """Return the stems related to each term of *question* that count here."""
        table = {term: related(term) for term in question.terms}
        self.learn(chain(table, (other for each in table.values() for other, _ in each)))
        most = COMMON * self._collection.rows
        return {term: tuple(other for other, _ in chosen(term, self.df, most)) for term in table}

    def candidates(
        self,
        question: ParsedQuery,
        others: Mapping[str, tuple[str, ...]],
        near: set[int],
        *,
        noise: bool,
    ) -> list[Row]:
        """Return the rows to rank, those in *near* too, with those that lend them weight.

        Unless turns that are no statement are wanted as *noise*, more rows are proposed where they
        are most of the best: however often a question was asked, it hides no statement.
        """
        most = CANDIDATES
        while proposed := self.proposed(question, others, most) | near:
            rows = self.rows(proposed)
            statements = sum(not row.noise for row in rows if row.seq in proposed)
            enough = noise or statements >= CANDIDATES // 2
            if enough or len(proposed) < most or most >= MOST_PROPOSED:
                return rows
            most *= 4
        return []

    def proposed(
        self, question: ParsedQuery, others: Mapping[str, tuple[str, ...]], most: int = CANDIDATES
    ) -> set[int]:
        """Return the engine's best rows, at most *most*, and rows of the query's dates.

        The stems in *others* that are related to the query's rare terms count as well.
        """
        self.learn(question.terms)
        held = [term for term in question.terms if self.df(term)]
        terms = rare_terms(held, self.df, self._collection.rows)
        rare = (term for term in others if term in terms or not self.df(term))
        terms = tuple(dict.fromkeys((*terms, *chain.from_iterable(map(others.__getitem__, rare)))))
        found: set[int] = set()
        if terms:
            rows = self._reader.rows(
                self._sql.proposed,
                weights=self._weights(terms),
                rows=most,
                **self._place,
            )
            found = {row[0] for row in rows}
        return found | self._dated(question.dates) if question.dates else found

    def nearest(self, cosines: Mapping[str, float]) -> set[int]:
        """Return the numbers of the rows with the largest *cosines*, which are by id."""
        if isinstance(cosines, ComputedCosines):
            ids = [id for id, _ in cosines.nearest(NEAR)]
        else:
            ids = nlargest(NEAR, cosines, key=cosines.__getitem__)
        rows = self._reader.rows(self._sql.numbers_by_id, ids=ids_text(ids), **self._place)
        return {row[0] for row in rows}

    def _weights(self, terms: Iterable[str]) -> str:
        count, df = self._collection.rows, self._known.df
        weights = {term: log(1 + (count - df[term] + 0.5) / (df[term] + 0.5)) for term in terms}
        return msgspec.json.encode(weights).decode()

    def rows(self, proposed: set[int]) -> list[Row]:
        """Return the *proposed* rows, their neighbours, and rows that lend them weight."""
        chains = Chains({})
        wanted = set(proposed)
        for earlier, later in self._around(proposed, chains):
            wanted |= {*earlier[:1], *later}
        lending: set[int] = set()
        for earlier, _ in self._around(wanted - proposed, chains):
            lending.update(earlier)
        lending.update(number for number in chains.before.values() if number != NEITHER)
        if not self._collection.items:
            return list(self._turns(wanted | lending, wanted, chains))
        items = wanted | self._citing(wanted)
        links = self._reader.rows(
            self._sql.link_rows_of, numbers=numbers_text(items), **self._place
        )
        turns = wanted | lending | {link[-1] for link in links}
        return [*self._turns(turns, wanted, chains), *self._items(items, wanted, links)]

    def accessed(self, numbers: set[int]) -> list[tuple[int, int]]:
        """Return those of *numbers* that were recalled, with the time of the last recall."""
        return self._reader.rows(self._sql.access_of, numbers=numbers_text(numbers), **self._place)

    def beside(self, numbers: set[int]) -> dict[int, tuple[int, int]]:
        """Return the turns before and after each of *numbers*, 0 for none."""
        self._ask_around(numbers)
        found: dict[int, tuple[int, int]] = {}
        for number in numbers:
            if each := self._known.beside(number):
                found[number] = (*each[0][:1], 0)[0], (*each[1][:1], 0)[0]
        return found

    def _turns(self, turns: set[int], wanted: set[int], chains: Chains) -> Iterator[Row]:
        known = self._known
        missing = {number for number in turns if number not in known}
        if missing:
            numbers = numbers_text(missing)
            for row in self._reader.rows(self._sql.turn_rows_of, numbers=numbers, **self._place):
                known.keep(turn_row(row))
        loaded = {number for number in turns if number in known}
        for number in loaded:
            apart = chains.apart(number, loaded)
            yield known.turn(number, apart=apart, context=number not in wanted)

    def _items(
        self, items: set[int], wanted: set[int], links: list[tuple[object, ...]]
    ) -> Iterator[Row]:
        rows = self._reader.rows(self._sql.item_rows_of, numbers=numbers_text(items), **self._place)
        sources = sources_of(link[:-1] for link in links)
        for row in rows:
            made = item_row(row, sources.get(row[1], ItemSource()))
            yield made if row[1] in wanted else replace(made, context=True)

    def _around(self, numbers: set[int], chains: Chains) -> Iterator[Beside]:
        self._ask_around(numbers)
        for number in numbers:
            if found := self._known.beside(number):
                chains.note(number, found[0])
                yield found

    def _ask_around(self, numbers: set[int]) -> None:
        known = self._known
        missing = {number for number in numbers if known.beside(number) is None}
        if missing:
            decode = msgspec.json.Decoder(tuple[int, ...]).decode
            rows = self._reader.rows(self._sql.around, numbers=numbers_text(missing), **self._place)
            for number, earlier, later in rows:
                known.stand(number, (decode(earlier), decode(later)))

    def _citing(self, numbers: set[int]) -> set[int]:
        rows = self._reader.all(
            NumberedRow, self._sql.items_citing, numbers=numbers_text(numbers), **self._place
        )
        return {each.number for each in rows}

    def _dated(self, dates: tuple[QueryDate, ...]) -> set[int]:
        span = self._reader.one(Span, self._sql.span_of_turns, **self._place)
        if span.first is None or span.last is None:
            return set()
        found: set[int] = set()
        for first, last in spans(dates, span.first // DAY, span.last // DAY):
            rows = self._reader.all(
                NumberedRow,
                self._sql.turns_between,
                since=first * DAY,
                until=(last + 1) * DAY,
                rows=DATED - len(found),
                **self._place,
            )
            found |= {each.number for each in rows}
            if len(found) >= DATED:
                break
        return found


def spans(dates: tuple[QueryDate, ...], first: int, last: int) -> list[tuple[int, int]]:
    """Return runs of days from *first* to *last* close to *dates*, closest first."""
    close = [(day, closeness(dates, day)) for day in range(first, last + 1)]
    runs: list[tuple[float, int, int]] = []
    for nearness, days in groupby(close, key=lambda each: each[1]):
        run = [day for day, _ in days]
        if nearness:
            runs.append((-nearness, run[0], run[-1]))
    return [(start, end) for _, start, end in sorted(runs)]


def rank_large(
    context: CollectionContext, reader: Reader, collection: Collection, search: RecallSearch
) -> Ranking:
    """Rank the rows of a large collection, best first."""
    entry = context.shared.kept.entry(collection.number, context.place)
    with entry.lock:
        known = entry.row_cache(collection)
    look = CandidateRows(context, reader, collection, known)
    said = look.speakers()
    participants = participants_of(said)
    question = read(search.query.query, participants)
    others = look.related(question) if search.related else {}
    near = look.nearest(search.cosines) if search.cosines else set[int]()
    search = aimed_at(search, question, context.user)
    rows = look.candidates(question, others, near, noise=search.noise)
    if not rows:
        return NOTHING
    statistics = Statistics(
        rows=collection.rows,
        mean_length=collection.mean_length or 0.0,
        mean_window=collection.mean_window or 0.0,
        has_machine=any(is_machine(each.role, each.speaker or None) for each in said),
        participants=participants,
        df=look.df,
        learn=look.learn,
        terms=frozenset(chain(question.terms, *others.values())),
    )
    postings = Postings(rows, statistics)
    ids = {row.seq: row.id for row in postings.rows if not row.context}
    for number, at in look.accessed(set(ids)):
        postings.touch(ids[number], at)
    context.shared.kept.weigh(collection.number, entry)
    ranked = ranking(postings, question, search)
    turns = {row.seq for row in ranked.rows if row.kind is None}
    return replace(ranked, beside=look.beside(turns))
