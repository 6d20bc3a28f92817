"""Recalling from a collection too large to be held in process.

The engine proposes rows by plain BM25, and those of the days asked about; the exact rule is then
applied to them, with their neighbours at hand and the whole collection's numbers.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from math import log
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.memories.longterm.bodies import Source, item_row, sources_of, turn_row
from holdfast.memories.longterm.caller import Caller
from holdfast.memories.longterm.dates import AskedDate, closeness
from holdfast.memories.longterm.fetching import Placed
from holdfast.memories.longterm.lexical import CANDIDATES, rare_terms
from holdfast.memories.longterm.postings import (
    DAY,
    ROLE_WORDS,
    Postings,
    Row,
    Statistics,
    is_machine,
)
from holdfast.memories.longterm.question import Question, read
from holdfast.memories.longterm.recall import rank
from holdfast.memories.longterm.rows import Collection, Numbered, ids_text, numbers_text

if TYPE_CHECKING:
    from holdfast.memories.longterm.recalling import Answering

DATED: Final = 1_000
"""Rows of the days asked about that are looked at, the closest days first."""
WINDOW: Final = 3
"""Turns before a turn that lend it weight."""
NEITHER: Final = -1
"""The number of no row."""


class Around(Struct, frozen=True, kw_only=True):
    """A turn, and those before and after it in its sitting, nearest first: JSON arrays."""

    number: int
    earlier: str
    later: str


class Speaking(Struct, frozen=True):
    """Who speaks in the collection, and as what."""

    speaker: str
    role: str


class Frequency(Struct, frozen=True):
    """In how many rows a term is."""

    term: str
    n: int


class Span(Struct, frozen=True):
    """When the first and the last turn was said."""

    first: int | None
    last: int | None


class Chains(Struct):
    """Which turn is before which, as far as that was asked: NEITHER at the start of a sitting."""

    before: dict[int, int]

    def note(self, number: int, earlier: list[int]) -> None:
        """Note the turns before *number*, nearest first."""
        chain = [number, *earlier]
        self.before.update(zip(chain, earlier, strict=False))
        if len(earlier) < WINDOW:
            self.before[chain[-1]] = NEITHER

    def apart(self, number: int, loaded: set[int]) -> bool:
        """Tell whether the turn before *number* is missing among those *loaded*."""
        earlier = self.before.get(number)
        return earlier is None or (earlier != NEITHER and earlier not in loaded)


class Look:
    """One look into a large collection."""

    def __init__(self, caller: Caller, reader: Reader, collection: Collection) -> None:
        self._reader, self._collection = reader, collection
        self._sql = caller.engine.queries("holdfast.memories.longterm")
        self._place = {"collection": collection.number}

    def speakers(self) -> list[Speaking]:
        """Return who speaks, as what."""
        return self._reader.all(Speaking, self._sql.speakers, **self._place)

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """Return in how many rows each of *terms* is; those in none are left out."""
        asked = ids_text(tuple(terms))
        found = self._reader.all(Frequency, self._sql.frequencies, terms=asked, **self._place)
        return {each.term: each.n for each in found}

    def proposed(self, question: Question, df: Mapping[str, int]) -> set[int]:
        """Return the rows that the engine finds best, and those of the days asked about."""
        known = [term for term in question.terms if df.get(term)]
        terms = rare_terms(known, df.__getitem__, self._collection.rows)
        found: set[int] = set()
        if terms:
            rows = self._reader.all(
                Numbered,
                self._sql.proposed,
                weights=self._weights(terms, df),
                rows=CANDIDATES,
                **self._place,
            )
            found = {each.number for each in rows}
        return found | self._dated(question.dates) if question.dates else found

    def _weights(self, terms: Iterable[str], df: Mapping[str, int]) -> str:
        count = self._collection.rows
        told = {term: log(1 + (count - df[term] + 0.5) / (df[term] + 0.5)) for term in terms}
        return msgspec.json.encode(told).decode()

    def rows(self, proposed: set[int]) -> list[Row]:
        """Return the rows *proposed*, those beside them, and what lends weight to any of them."""
        chains = Chains({})
        wanted = set(proposed)
        for earlier, later in self._around(proposed, chains):
            wanted |= {*earlier[:1], *later}
        lending: set[int] = set()
        for earlier, _ in self._around(wanted - proposed, chains):
            lending.update(earlier)
        lending.update(number for number in chains.before.values() if number != NEITHER)
        items = wanted | self._citing(wanted)
        links = self._reader.rows(
            self._sql.link_rows_of, numbers=numbers_text(items), **self._place
        )
        turns = wanted | lending | {link[-1] for link in links}
        return [*self._turns(turns, wanted, chains), *self._items(items, wanted, links)]

    def beside(self, numbers: set[int]) -> dict[int, tuple[int, int]]:
        """Return the turns before and after each of *numbers*, 0 for none."""
        found: dict[int, tuple[int, int]] = {}
        decode = msgspec.json.Decoder(list[int]).decode
        if numbers:
            for each in self._reader.all(
                Around, self._sql.around, numbers=numbers_text(numbers), **self._place
            ):
                earlier, later = decode(each.earlier), decode(each.later)
                found[each.number] = (*earlier[:1], 0)[0], (*later[:1], 0)[0]
        return found

    def _turns(self, turns: set[int], wanted: set[int], chains: Chains) -> Iterator[Row]:
        rows = self._reader.rows(self._sql.turn_rows_of, numbers=numbers_text(turns), **self._place)
        loaded = {row[1] for row in rows}
        for row in rows:
            number = row[1]
            yield turn_row((*row, chains.apart(number, loaded), number not in wanted))

    def _items(
        self, items: set[int], wanted: set[int], links: list[tuple[object, ...]]
    ) -> Iterator[Row]:
        rows = self._reader.rows(self._sql.item_rows_of, numbers=numbers_text(items), **self._place)
        sources = sources_of(link[:-1] for link in links)
        for row in rows:
            made = item_row(row, sources.get(row[1], Source()))
            yield made if row[1] in wanted else msgspec.structs.replace(made, context=True)

    def _around(self, numbers: set[int], chains: Chains) -> Iterator[tuple[list[int], list[int]]]:
        if not numbers:
            return
        decode = msgspec.json.Decoder(list[int]).decode
        for each in self._reader.all(
            Around, self._sql.around, numbers=numbers_text(numbers), **self._place
        ):
            earlier, later = decode(each.earlier), decode(each.later)
            chains.note(each.number, earlier)
            yield earlier, later

    def _citing(self, numbers: set[int]) -> set[int]:
        rows = self._reader.all(
            Numbered, self._sql.items_citing, numbers=numbers_text(numbers), **self._place
        )
        return {each.number for each in rows}

    def _dated(self, dates: tuple[AskedDate, ...]) -> set[int]:
        span = self._reader.one(Span, self._sql.span_of_turns, **self._place)
        if span.first is None or span.last is None:
            return set()
        found: set[int] = set()
        for first, last in spans(dates, span.first // DAY, span.last // DAY):
            rows = self._reader.all(
                Numbered,
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


def spans(dates: tuple[AskedDate, ...], first: int, last: int) -> list[tuple[int, int]]:
    """Return the runs of days from *first* to *last* that are close to *dates*, closest first."""
    close = [(day, closeness(dates, day)) for day in range(first, last + 1)]
    runs: list[tuple[float, int, int]] = []
    for nearness, days in groupby(close, key=lambda each: each[1]):
        run = [day for day, _ in days]
        if nearness:
            runs.append((-nearness, run[0], run[-1]))
    return [(start, end) for _, start, end in sorted(runs)]


def rank_large(
    caller: Caller, reader: Reader, collection: Collection, answering: "Answering"
) -> list[Placed]:
    """Return the rows that answer, best first."""
    look = Look(caller, reader, collection)
    said = look.speakers()
    names = dict.fromkeys(each.speaker for each in said if each.speaker)
    participants = tuple(name for name in names if name.casefold() not in ROLE_WORDS)
    question = read(answering.query, participants)
    known = look.frequencies(question.terms)
    proposed = look.proposed(question, known)
    if not proposed:
        return []

    def learn(terms: Iterable[str]) -> None:
        unknown = [term for term in terms if term not in known]
        if unknown:
            known.update(dict.fromkeys(unknown, 0) | look.frequencies(unknown))

    def df(term: str) -> int:
        learn((term,))
        return known[term]

    statistics = Statistics(
        rows=collection.rows,
        mean_length=collection.mean_length or 0.0,
        mean_window=collection.mean_window or 0.0,
        has_machine=any(is_machine(each.role, each.speaker or None) for each in said),
        participants=participants,
        df=df,
        learn=learn,
        asked=frozenset(question.terms),
    )
    postings = Postings(look.rows(proposed), statistics)
    ranked = rank(
        postings, question, answering.wanted, now=answering.now, cosines=answering.cosines
    )
    found = [postings.rows[postings.number(each.id)] for each in ranked]
    beside = look.beside({row.seq for row in found if row.kind is None})
    return [
        Placed(each, row.seq, row.kind is not None, beside.get(row.seq, (0, 0)))
        for each, row in zip(ranked, found, strict=True)
    ]
