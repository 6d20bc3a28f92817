"""Postings of one collection.

A turn is seldom understood alone: it answers the one before. So each occurrence of a term also
lends weight to the three turns after it in its session, half as much to each further one.
Lengths are normalised by the means of the whole collection, which change with each new row;
therefore nothing that depends on them is cached beyond the next `add`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from math import log
from operator import attrgetter

from msgspec import Struct

from holdfast.memories.longterm.trust.rules import FACTORS
from holdfast.memories.longterm.vectors.table import ListedCosines, among

MACHINES = frozenset({"assistant", "ai", "bot", "model", "agent", "system", "tool"})
ROLE_WORDS = MACHINES | {"user", "human", "me", "customer"}
DAY = 86_400_000_000
"""Microseconds."""

SHORT = 20
"""Terms: shorter bodies count as this long, else a greeting would be about its one word."""
LENT = (0.5, 0.25, 0.125)
"""Share of its weight that a turn lends to the first, second and third turn after it."""
SATURATION = 1.2
"""BM25's k1: how soon repeats of a term add little."""
BRIEF = 25
"""Largest number of distinct terms for which the covered share of a row is computed."""
_NOBODY = (-1, -1, -1)
_MEMO = 256
"""Number of terms with cached weights; queries use few of a collection's words."""


class Row(Struct, frozen=True, kw_only=True, gc=False):
    """An item or a turn as recall sees it. Instants are microseconds since 1970.

    *apart*: turns of its session before it are missing here, so the row before it here is not its
    neighbour. *context*: it only lends weight and is not ranked. Both are for rows that are not a
    whole collection.
    """

    id: str
    seq: int
    body: str
    """Terms of text and caption, joined by spaces."""
    at: int
    """When a turn was said; when an item was created."""
    kind: str | None = None
    """None for a turn."""
    role: str = "user"
    speaker: str | None = None
    speakers: tuple[str, ...] = ()
    """Of an item: who said the turns that it cites."""
    thread: str | None = None
    session: str | None = None
    """Of an item: those of its first turn."""
    dated: int | None = None
    """When the earliest turn was said that an item cites; *at*, unless given."""
    last_accessed: int | None = None
    importance: float = 0.5
    question: bool = False
    first_person: bool = False
    time: bool = False
    noise: bool = False
    """A turn that is no statement."""
    cites: tuple[str, ...] = ()
    """Of an item: the ids of its turns."""
    text: str = ""
    """Of an item: its text, in which a name may stand."""
    tier: str = "said"
    """Who stands behind it."""
    until: int | None = None
    """Of an item: when it ceases to be true, if it does."""
    apart: bool = False
    context: bool = False


class Statistics(Struct, frozen=True, kw_only=True):
    """Statistics of a whole collection of which only some rows are loaded."""

    rows: int
    mean_length: float
    mean_window: float
    has_machine: bool
    participants: tuple[str, ...]
    df: Callable[[str], int]
    """Number of rows that hold a term."""
    learn: Callable[[Iterable[str]], None] | None = None
    """Called with terms before `df` is called for each, to load them in one query."""
    terms: frozenset[str] | None = None
    """The only terms that are looked up; None for any."""


class QueryWord(Struct, frozen=True, kw_only=True):
    """A term of a query with the weights of its rows, and stems that may stand for it."""

    term: str
    telling: float
    weights: Mapping[int, float]
    related: Sequence[tuple[str, float, Mapping[int, float]]] = ()
    """Stems, each with the share of its weight that it lends, and the weights of its rows."""
    best: Mapping[int, float]
    """The weight of each row by the term or a stem: the largest, as one idea counts once."""
    near: Mapping[int, float] = {}
    """Rows without the term, covered by the nearest stem that they hold, and how much of it."""


class Postings:
    """The rows of a collection in order of recording, by the terms they hold.

    Rows have numbers here, from 0; -1 is no row. *lent* is the share that a turn lends to those
    after it.
    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        statistics: Statistics | None = None,
        lent: tuple[float, float, float] = LENT,
    ) -> None:
        self.rows: list[Row] = []
        self.next: tuple[list[int], list[int], list[int]] = ([], [], [])
        """For each row the number of the first, second and third after it in its session."""
        self.session: list[int] = []
        self.session_size: list[int] = []
        self.machine: list[bool] = []
        self.days: defaultdict[int, list[int]] = defaultdict(list)
        """Rows by day since 1970."""
        self.citing: dict[int, list[int]] = {}
        """Items by the turn they cite."""
        self.cited: dict[int, list[int]] = {}
        self.fresh: list[int] = []
        """For each row the latest of when it was said, created or recalled."""
        self.importance = 0.0
        """The largest importance of any row."""
        self.has_machine = False
        self.has_items = False
        self.noise: set[int] = set()
        """Turns that are no statement."""
        self.tiers: set[str] = set()
        self.factors: dict[int, float] = {}
        """The share of its score that an item keeps which the user did not say, by row."""
        self.has_ends = False
        self.has_context = False
        self.partial = statistics is not None
        """These rows are only some of the collection's."""
        self._given, self._lent = statistics, lent
        self._numbers: dict[str, int] = {}
        self._lengths: list[int] = []
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        self._only_terms = statistics.terms if statistics else None
        self._sessions: dict[object, int] = {}
        self._last: dict[int, tuple[int, int, int]] = {}
        self._speakers: dict[str, None] = {}
        self.add(rows)

    def add(self, rows: Iterable[Row]) -> None:
        """Add *rows*, which were recorded after all rows here."""
        fresh = sorted(rows, key=attrgetter("seq"))
        first = len(self.rows)
        self.rows += fresh
        self._numbers.update((row.id, number) for number, row in enumerate(fresh, first))
        self._index(first, fresh)
        self._describe(first, fresh)
        self._place(first, fresh)
        self._settle()

    def touch(self, id: str, at: int) -> None:
        """Record that the row *id* was recalled *at* that instant."""
        if (number := self._numbers.get(id)) is not None:
            self.fresh[number] = max(at, self.fresh[number])

    def __len__(self) -> int:
        return len(self.rows)

    def number(self, id: str) -> int:
        """Return the number of the row *id*, or -1."""
        return self._numbers.get(id, -1)

    def numbered(self, values: Mapping[str, float]) -> dict[int, float]:
        """Return *values*, keyed by row id, with the rows' numbers here as keys.

        Rows that are not here are left out.
        """
        numbers = self._numbers
        if not isinstance(values, ListedCosines):
            there = among(values, numbers).items()
            return {numbers[id]: each for id, each in there if id in numbers}
        # Many strings are far apart in memory; their numbers are looked up once for all queries.
        if self._listed[0] is not values.ids:
            self._listed = values.ids, [numbers.get(id, -1) for id in values.ids]
        found = dict(zip(self._listed[1], values.listed, strict=True))
        found.pop(-1, None)
        return found

    @property
    def participants(self) -> tuple[str, ...]:
        """Names of speakers in the collection, without names of roles."""
        return self._given.participants if self._given else tuple(self._speakers)

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes, with the caches of queries; measured."""
        occurrences = sum(self._lengths)
        bodies = sum(len(row.body) + len(row.text) for row in self.rows)
        own = 900 * len(self.rows) + 24 * occurrences + 150 * len(self._places) + bodies
        return own + 40_000 + 44 * occurrences

    def df(self, term: str) -> int:
        """Return how many rows of the collection hold *term*."""
        if self._given:
            return self._given.df(term)
        found = self._df.get(term)
        if found is None:
            found = self._df[term] = len(set(self._places.get(term, ())))
        return found

    def learn(self, numbers: Iterable[int], *, whole: bool = False) -> None:
        """Load frequencies for `brief_weight` of the rows *numbers* in one call.

        With *whole* those of all their terms, however many.
        """
        if self._given and self._given.learn:
            bodies = (self.rows[number].body.split() for number in numbers)
            brief = (terms for terms in map(set, bodies) if whole or len(terms) <= BRIEF)
            self._given.learn(set(chain.from_iterable(brief)) - self._telling.keys())

    def idf(self, term: str) -> float:
        """Return the inverse document frequency of *term*, as BM25 defines it."""
        df = self.df(term)
        return log(1 + (self.count - df + 0.5) / (df + 0.5))

    def telling(self, term: str) -> float:
        """Return the weight of *term* in a text, meaningful also in a small collection."""
        found = self._telling.get(term)
        if found is None:
            df, rows = max(self.df(term), 1), max(self.count, 100)
            found = self._telling[term] = log(1 + (rows - df + 0.5) / (df + 0.5)) ** 2
        return found

    def weights(self, term: str) -> dict[int, float]:
        """Return the BM25 weight of *term* in each row that it matches."""
        found = self._weights.get(term)
        if found is None:
            if len(self._weights) >= _MEMO:
                self._weights.clear()
            found = self._weights[term] = self._weigh(term)
        return found

    def brief_weight(self, number: int) -> float:
        """Return the sum of the weights of a row's terms; 0 for a row of many terms."""
        found = self._brief_weights.get(number)
        if found is None:
            terms = dict.fromkeys(self.rows[number].body.split())
            found = sum(map(self.telling, terms)) if len(terms) <= BRIEF else 0.0
            self._brief_weights[number] = found
        return found

    def _index(self, first: int, rows: list[Row]) -> None:
        """Index the terms of *rows*."""
        places, only = self._places, self._only_terms
        if only is not None:
            self._index_only(first, rows, only)
            return
        bodies = [row.body.split() for row in rows]
        self._lengths += map(len, bodies)
        for number, terms in enumerate(bodies, first):
            for term in terms:
                places[term].append(number)

    def _index_only(self, first: int, rows: list[Row], terms: frozenset[str]) -> None:
        """Index those of *terms* that *rows* hold; one space separates two terms."""
        self._lengths += [row.body.count(" ") + 1 if row.body else 0 for row in rows]
        whole = "\n".join([f" {row.body} " for row in rows])
        starts = list(accumulate((len(row.body) + 3 for row in rows), initial=0))
        for term in sorted(terms):
            word, places = f" {term} ", self._places[term]
            at = whole.find(word)
            while at >= 0:
                places.append(first + bisect_right(starts, at) - 1)
                # The space after it may be the one before the next.
                at = whole.find(word, at + len(term) + 1)

    def _describe(self, first: int, rows: list[Row]) -> None:
        """Record the properties of *rows* other than their terms."""
        for after in self.next:
            after.extend([-1] * len(rows))
        machine = [
            row.kind is None and (row.tier == "outside" or is_machine(row.role, row.speaker))
            for row in rows
        ]
        self.machine += machine
        self.has_machine = self.has_machine or any(machine)
        self.has_items = self.has_items or any(row.kind is not None for row in rows)
        self.noise.update(number for number, row in enumerate(rows, first) if row.noise)
        self.tiers.update(row.tier for row in rows)
        self.factors.update(
            (number, FACTORS[row.tier])
            for number, row in enumerate(rows, first)
            if row.kind is not None and FACTORS[row.tier] < 1
        )
        self.has_ends = self.has_ends or any(row.until is not None for row in rows)
        self.has_context = self.has_context or any(row.context for row in rows)
        self.importance = max([self.importance, *(row.importance for row in rows)])
        self.fresh += [max(row.at, row.last_accessed or row.at) for row in rows]
        for number, row in enumerate(rows, first):
            at = row.at if row.dated is None else row.dated
            self.days[at // DAY].append(number)
        speakers = dict.fromkeys(row.speaker for row in rows if row.kind is None)
        for speaker in speakers:
            if speaker and speaker.casefold() not in ROLE_WORDS:
                self._speakers[speaker] = None

    def _place(self, first: int, rows: list[Row]) -> None:
        """Put *rows* into their sessions, each turn after the one before it."""
        sessions, sizes, last = self._sessions, self.session_size, self._last
        following, second, third = self.next
        for number, row in enumerate(rows, first):
            alone = row.kind is not None and not row.cites
            said = row.thread if row.session is None else row.session
            key = row.id if alone else (row.thread, said)
            session = sessions.get(key)
            if session is None:
                session = sessions[key] = len(sessions)
                sizes.append(0)
            self.session.append(session)
            sizes[session] += 1
            if row.kind is not None:
                self._link(number, row)
                continue
            one, two, three = _NOBODY if row.apart else last.get(session, _NOBODY)
            if one >= 0:
                following[one] = number
                if two >= 0:
                    second[two] = number
                    if three >= 0:
                        third[three] = number
            last[session] = (number, one, two)

    def _link(self, number: int, row: Row) -> None:
        """Put an item beside the turns that it cites."""
        for id in row.cites:
            if (turn := self._numbers.get(id, -1)) >= 0:
                self.citing.setdefault(turn, []).append(number)
                self.cited.setdefault(number, []).append(turn)

    def _settle(self) -> None:
        """Compute the values that depend on the means, and drop cached ones."""
        given, lengths = self._given, self._lengths
        self.count = given.rows if given else len(lengths)
        self.has_machine = self.has_machine or bool(given and given.has_machine)
        mean = given.mean_length if given else _mean(lengths)
        floor = 0.9 / max(mean, SHORT)
        self._share = [1 / (0.1 + floor * max(length, SHORT)) for length in lengths]
        wide = [length * share for length, share in zip(lengths, self._share, strict=True)]
        own = list(wide)
        for after, lent in zip(self.next, self._lent, strict=True):
            for number, follower in enumerate(after):
                if follower >= 0 and not self.machine[number]:
                    wide[follower] += lent * own[number]
        mean = (given.mean_window if given else _mean(wide)) or 1
        self.mean_length, self.mean_window = _mean(lengths), _mean(wide)
        scale = 0.4 / mean
        self._damping = [SATURATION * (0.6 + scale * width) for width in wide]
        self._listed: tuple[list[str], list[int]] = [], []
        """The ids of a matrix's rows, with the number here of each; -1 if it is not here."""
        self._df: dict[str, int] = {}
        self._weights: dict[str, dict[int, float]] = {}
        self._telling: dict[str, float] = {}
        self._brief_weights: dict[int, float] = {}
        self.leanings: dict[object, list[float]] = {}
        """Score that a kind of question adds to each row; cached by the ranking."""
        self.related: dict[str, tuple[tuple[str, float, float], ...]] = {}
        """Stems related to a term, with similarity and share; cached by the ranking."""
        self.words: dict[tuple[str, bool], QueryWord] = {}
        """Terms of queries with what they weigh; cached by the ranking."""

    def _weigh(self, term: str) -> dict[int, float]:
        followers = tuple(zip(self.next, self._lent, strict=True))
        share, machine = self._share, self.machine
        found: dict[int, float] = {}
        for number in self._places.get(term, ()):
            much = share[number]
            found[number] = found.get(number, 0.0) + much
            if machine[number]:
                continue
            for after, lent in followers:
                follower = after[number]
                if follower < 0:
                    break
                found[follower] = found.get(follower, 0.0) + lent * much
        scale, damping = self.idf(term) * (SATURATION + 1), self._damping
        return {number: scale * tf / (tf + damping[number]) for number, tf in found.items()}


@lru_cache(1_024)
def is_machine(role: str, speaker: str | None) -> bool:
    """Check whether a machine said a turn; the speaker's name outweighs the role."""
    name = speaker.casefold() if speaker else role
    return name in MACHINES or (role == "assistant" and name not in ROLE_WORDS)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
