"""Rank candidates by BM25 over body and context with cues, and state the reasons.

Measured with `holdfast eval locomo`; docs/recall.md has what each cue is worth. A pure function
of the postings, the question and the options.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappush, heapreplace, nsmallest
from math import inf
from operator import itemgetter

from msgspec import Struct

from holdfast.engines.base import Row
from holdfast.memories.longterm.recall.analyze import closeness
from holdfast.memories.longterm.recall.index import DAY, LENT, SHORT, Postings, is_machine
from holdfast.memories.longterm.recall.query import ParsedQuery, calls, chosen
from holdfast.memories.longterm.records import LongTermOptions, Ranked, RecallQuery, Weights

CANDIDATES, NEAREST = 400, 200
"""Largest number of candidates by words, and by vectors."""
COMMON, RARE_ENOUGH = 0.1, 3
"""In a large collection, terms of more than this share of rows are dropped, if so many remain."""
BEST_OF = 3
"""Rows that make up the score of a session."""
NARROW = 0.05
"""Cosines that span less than this are not scaled: the difference would be noise."""
SHARE = 0.6
"""Share of its weight that a stem lends to a query term of the same meaning."""
_KINDS_OF_QUESTIONS, _RELATED_TERMS = 64, 1_024


class Cues(Struct, frozen=True, kw_only=True):
    """The most that each cue adds to the best lexical score, which is 1.

    *followed* is the share of the next two turns' scores that a turn gets.
    """

    followed: tuple[float, float] = (0.4, 0.2)
    session: float = 0.30
    speaker: float = 0.40
    date: float = 0.80
    when: float = 0.15
    first_person: float = 0.15
    question: float = -0.05
    user: float = 0.35
    machine_asked: float = 0.20
    link: float = 0.30


CUES = Cues()


class RecallSearch(Struct, frozen=True, kw_only=True):
    """A validated recall at one moment, in microseconds since 1970.

    *options* are those of the collection, overridden by the query. *cosines* are those of rows that
    have a vector, by id; None where nothing is compared by meaning.
    """

    query: RecallQuery
    options: LongTermOptions
    now: int
    cosines: Mapping[str, float] | None = None

    @property
    def related(self) -> bool:
        """Check whether related stems count: not where rows are compared by meaning."""
        return self.options.related and self.cosines is None


class Fits(Struct, frozen=True, kw_only=True):
    """Candidates in order of recording, with the score of each.

    *fit* and *lexical* are parallel to *rows*. Values of other cues are by row, and of *session*
    by session; a missing one is 0. All but *fit* and *cosine* go up to 1. *told* has for every row
    the sum of the weights of the query's terms that match it.
    """

    rows: list[int]
    fit: list[float]
    told: list[float]
    lexical: list[float]
    session: dict[int, float]
    date: dict[int, float]
    link: dict[int, float]
    near: dict[int, float]
    cosine: dict[int, float]
    hybrid: bool
    related: bool


def rare_terms(terms: Sequence[str], df: Callable[[str], int], rows: int) -> tuple[str, ...]:
    """Return *terms* without frequent ones, if enough rare ones remain."""
    rare = tuple(term for term in terms if df(term) <= COMMON * rows)
    return rare if len(rare) >= RARE_ENOUGH else tuple(terms)


def fit(postings: Postings, question: ParsedQuery, search: RecallSearch, cues: Cues = CUES) -> Fits:
    """Score the rows that *search* allows against *question*."""
    lex, covered, touched = _lex(postings, question.terms, related=search.related)
    worded = _best(lex, _allowed(postings, search.query, sorted(touched)))
    date = _dates(postings, question, search.query)
    cosine, nearest = _cosines(postings, search)
    rows = sorted({*worded, *date, *nearest}) if date or nearest else worded
    followed = _followed(postings, lex, worded, rows, cues)
    best = max(followed, default=0.0) or 1.0
    session = _sessions(postings, rows, followed)
    link = _links(postings, rows, lex, best)
    near = _spread({row: cosine[row] for row in rows if row in cosine})
    places, lean = postings.session, _leanings(postings, question, cues)
    usual = {each: cues.session * share for each, share in session.items()}
    lexical = [each / best for each in followed]
    fits = [
        share + usual[places[row]] + lean[row] for row, share in zip(rows, lexical, strict=True)
    ]
    for weight, found in (
        (cues.date, date),
        (cues.link, link),
        (search.options.cosine_weight, near),
    ):
        if found:
            pairs = zip(rows, fits, strict=True)
            fits = [each + weight * found.get(row, 0.0) for row, each in pairs]
    return Fits(
        rows=rows, fit=fits, told=covered, lexical=lexical, session=session,
        date=date, link=link, near=near, cosine=cosine, hybrid=search.cosines is not None,
        related=search.related,
    )  # fmt: skip


def _lex(
    postings: Postings, terms: Sequence[str], *, related: bool
) -> tuple[list[float], list[float], set[int]]:
    """Return lexical scores, term weights and matched rows.

    Lists have one entry for each row and a 0 in place -1.
    """
    lex, covered = [0.0] * (len(postings) + 1), [0.0] * (len(postings) + 1)
    touched: set[int] = set()
    for term in terms:
        weights, telling = postings.weights(term), postings.telling(term)
        for row in weights:
            covered[row] += telling
        if related and (others := related_terms(postings, term)):
            weights = _with_related(postings, weights, others, covered, telling)
        touched.update(weights)
        for row, weight in weights.items():
            lex[row] += weight
    return lex, covered, touched


_RelatedTerms = tuple[tuple[str, float, float], ...]
"""Stems with their similarity to a term and the share of their weight that it gets."""


def _with_related(
    postings: Postings,
    own: dict[int, float],
    others: _RelatedTerms,
    covered: list[float],
    telling: float,
) -> dict[int, float]:
    """Return *own* weights of a term, or those of *others* where they are larger.

    The maximum and not the sum: one idea counts once. Rows without the term are *covered* by the
    nearest stem that they hold.
    """
    weights, near = dict(own), dict[int, float]()
    for other, similarity, share in others:
        for row, weight in postings.weights(other).items():
            if (lent := share * weight) > weights.get(row, 0.0):
                weights[row] = lent
            if row not in own and row not in near:
                near[row] = similarity
    for row, similarity in near.items():
        covered[row] += SHARE * similarity * telling
    return weights


def related_terms(postings: Postings, term: str) -> _RelatedTerms:
    """Return the stems related to *term* that the collection holds, nearest first.

    In a large collection frequent ones are left out, as among the query's own.
    """
    found = postings.related.get(term)
    if found is None:
        if len(postings.related) >= _RELATED_TERMS:
            postings.related.clear()
        most = COMMON * postings.count if postings.partial else inf
        idf = postings.idf
        found = postings.related[term] = tuple(
            (other, near, SHARE * near * min(1.0, idf(term) / idf(other)))
            for other, near in chosen(term, postings.df, most)
        )
    return found


def _allowed(postings: Postings, query: RecallQuery, rows: Iterable[int]) -> list[int]:
    """Return those of *rows* that may be recalled."""
    if postings.has_context:
        rows = (row for row in rows if not postings.rows[row].context)
    if query.kinds is not None:
        kinds = frozenset(query.kinds)
        rows = (row for row in rows if postings.rows[row].kind in kinds)
    if query.what == "items":
        rows = (row for row in rows if postings.rows[row].kind is not None)
    elif query.what == "turns" and postings.has_items:
        rows = (row for row in rows if postings.rows[row].kind is None)
    return list(rows)


def _best(lex: list[float], rows: list[int]) -> list[int]:
    if len(rows) <= CANDIDATES:
        return rows
    return sorted(sorted(rows, key=lex.__getitem__, reverse=True)[:CANDIDATES])


def _dates(postings: Postings, question: ParsedQuery, query: RecallQuery) -> dict[int, float]:
    if not question.dates:
        return {}
    found: dict[int, float] = {}
    for day, rows in postings.days.items():
        if close := closeness(question.dates, day):
            found.update(dict.fromkeys(_allowed(postings, query, rows), close))
    return found


def _cosines(postings: Postings, search: RecallSearch) -> tuple[dict[int, float], list[int]]:
    """Return the cosines by row, and the rows with the largest."""
    if not search.cosines:
        return {}, []
    known = postings.numbered(search.cosines)
    allowed = _allowed(postings, search.query, sorted(known))
    return known, sorted(allowed, key=known.__getitem__, reverse=True)[:NEAREST]


def _followed(
    postings: Postings, lex: list[float], worded: list[int], rows: list[int], cues: Cues
) -> list[float]:
    """Return the score of each of *rows*, with shares of the two turns after it."""
    kept = [0.0] * len(lex)
    for row in worded:
        kept[row] = lex[row]
    first, second, _ = postings.next
    one, two = cues.followed
    return [kept[row] + one * kept[first[row]] + two * kept[second[row]] for row in rows]


def _sessions(postings: Postings, rows: list[int], followed: list[float]) -> dict[int, float]:
    """Return the score of each session by the best three of its rows, 0 to 1."""
    by_session: defaultdict[int, list[float]] = defaultdict(list)
    for place, much in zip(map(postings.session.__getitem__, rows), followed, strict=True):
        by_session[place].append(much)
    sizes = postings.session_size
    found: dict[int, float] = {}
    for place, each in by_session.items():
        if len(each) > BEST_OF:
            each.sort(reverse=True)
        found[place] = sum(each[:BEST_OF]) / min(BEST_OF, sizes[place])
    best = max(found.values(), default=0.0) or 1.0
    return {place: much / best for place, much in found.items()}


def _links(postings: Postings, rows: list[int], lex: list[float], best: float) -> dict[int, float]:
    """Return the scores of items that cite a turn, and of turns that an item cites."""
    if not postings.citing:
        return {}
    found: dict[int, float] = {}
    for row in rows:
        linked = postings.citing.get(row) or postings.cited.get(row)
        if linked and (much := max(lex[each] for each in linked)):
            found[row] = much / best
    return found


def _spread(cosine: dict[int, float]) -> dict[int, float]:
    """Scale cosines to 0 (least) to 1 (largest), unless they hardly differ."""
    if not cosine:
        return {}
    least, most = min(cosine.values()), max(cosine.values())
    if most - least < NARROW:
        return {row: max(0.0, each) for row, each in cosine.items()}
    return {row: (each - least) / (most - least) for row, each in cosine.items()}


def _leanings(postings: Postings, question: ParsedQuery, cues: Cues) -> list[float]:
    """Return the part of each row's score that depends on the kind of question alone."""
    who = question.named[0] if len(question.named) == 1 else None
    kind = (question.when, question.asked_of_us, who, cues)
    found = postings.leanings.get(kind)
    if found is None:
        if len(postings.leanings) >= _KINDS_OF_QUESTIONS:
            postings.leanings.clear()
        found = postings.leanings[kind] = [
            _leaning(postings, row, question, cues) for row in range(len(postings))
        ]
    return found


def _leaning(postings: Postings, number: int, question: ParsedQuery, cues: Cues) -> float:
    row = postings.rows[number]
    lean = cues.speaker if is_of(postings, number, question) else 0.0
    if question.when and row.time:
        lean += cues.when
    if row.first_person or row.kind is not None:
        lean += cues.first_person
    if row.question:
        lean += cues.question
    if not postings.has_machine:
        return lean
    if question.asked_of_us:
        return lean + (cues.machine_asked if postings.machine[number] else 0.0)
    return lean + (0.0 if postings.machine[number] else cues.user)


def is_of(postings: Postings, number: int, question: ParsedQuery) -> bool:
    """Check whether the row is by the only participant that *question* names.

    An item also counts if its text names them.
    """
    if len(question.named) != 1:
        return False
    who, row = question.named[0], postings.rows[number]
    if row.kind is None:
        return row.speaker == who
    if who in row.speakers:
        return True
    return calls(row.text, who)


WINDOW = len(LENT)


class FieldLengths(Struct, frozen=True):
    """The mean length of a body, and of a body with the weight lent by its window."""

    length: float
    window: float


def means_of(rows: Sequence[Row]) -> FieldLengths:
    """Return the mean lengths of *rows*, which are in order of recording.

    The columns are: is it a turn, length, thread, session, role, speaker.
    """
    if not rows:
        return FieldLengths(0.0, 0.0)
    mean = sum(row[1] for row in rows) / len(rows)
    floor = 0.9 / max(mean, SHORT)
    whole = 0.0
    lending: dict[tuple[str, str], tuple[float, ...]] = {}
    for is_turn, length, thread, session, role, speaker, *_ in rows:
        own = length / (0.1 + floor * max(length, SHORT))
        whole += own
        if is_turn:
            key = thread, session or thread
            before = lending.get(key, ())
            whole += sum(lent * each for lent, each in zip(LENT, before, strict=False))
            lends = 0.0 if is_machine(role, speaker or None) else own
            lending[key] = (lends, *before)[:WINDOW]
    return FieldLengths(mean, whole / len(rows))


_DAYS = {1.0: "on the day asked about", 0.6: "soon after the day asked about"}
_MONTHS = {1.0: "in the month asked about", 0.5: "in the month after the one asked about"}
_AMONG_MUCH = 0.5
"""From this share of the best session's score on, the session is a reason by itself."""


def why(
    postings: Postings,
    question: ParsedQuery,
    fits: Fits,
    cues: Cues,
    *,
    place: int,
    coverage: float,
) -> dict[str, object]:
    """Return why the row in *place* of *fits* answers *question*, numbers to 4 places.

    Each cue's number is what it added to the fit. Coverage and cosine are unweighted; cosine is
    None if texts were not compared by meaning.
    """
    number = fits.rows[place]
    row = postings.rows[number]
    weighed = [_best_match(postings, number, term, fits) for term in question.terms]
    ordered = sorted((each for each in weighed if each[0]), key=itemgetter(0), reverse=True)
    matches = [(term, found) for _, term, found in ordered]
    theirs = is_of(postings, number, question)
    session = fits.session.get(postings.session[number], 0.0)
    details: dict[str, object] = {
        "terms": [term for term, _ in matches],
        "related": [[term, found] for term, found in matches if term != found],
        "lexical": round(fits.lexical[place], 4),
        "coverage": round(coverage, 4),
        "cosine": round(fits.cosine.get(number, 0.0), 4) if fits.hybrid else None,
        "speaker": cues.speaker if theirs else 0.0,
        "date": round(cues.date * fits.date.get(number, 0.0), 4),
        "session": round(cues.session * session, 4),
        "time": cues.when if question.when and row.time else 0.0,
        "first_person": cues.first_person if row.first_person or row.kind is not None else 0.0,
        "question": cues.question if row.question else 0.0,
        "links": round(cues.link * fits.link.get(number, 0.0), 4),
        "mode": "hybrid" if fits.hybrid else "lexical",
    }
    reasons = [
        *_words(matches, row.body.split()),
        _said_by(postings, number, question) if theirs else "",
        _dated(question, fits.date.get(number, 0.0)),
        "tells a time" if details["time"] else "",
        "close in meaning" if fits.near.get(number, 0.0) >= _AMONG_MUCH else "",
        "linked to what matches" if number in fits.link else "",
        "from a session about it" if session >= _AMONG_MUCH else "",
    ]
    details["text"] = "; ".join(filter(None, reasons)) or "beside what matches"
    return details


def _best_match(postings: Postings, number: int, term: str, fits: Fits) -> tuple[float, str, str]:
    """Return the weight of *term* in the row *number*, the term, and the stem found for it."""
    own = postings.weights(term).get(number, 0.0)
    if not fits.related or f" {term} " in f" {postings.rows[number].body} ":
        return own, term, term
    lent = (
        (share * postings.weights(other).get(number, 0.0), term, other)
        for other, _, share in related_terms(postings, term)
    )
    return max(((own, term, term), *lent), key=itemgetter(0))


def _words(matches: list[tuple[str, str]], body: list[str]) -> Iterator[str]:
    """Yield which terms are in the row, and which only in the turns before it."""
    for verb, held in (("matches", True), ("follows", False)):
        here = [(term, found) for term, found in matches if (found in body) is held]
        exact = ", ".join([term for term, found in here if term == found])
        if exact:
            yield f'{verb} "{exact}"'
        yield from (f'{verb} "{term}" by "{found}"' for term, found in here if term != found)


def _said_by(postings: Postings, number: int, question: ParsedQuery) -> str:
    row = postings.rows[number]
    said = row.kind is None or question.named[0] in row.speakers
    return f"{'said by' if said else 'names'} {question.named[0]}"


def _dated(question: ParsedQuery, close: float) -> str:
    if not close:
        return ""
    names = _DAYS if any(each.day for each in question.dates) else _MONTHS
    return names.get(close, "near the day asked about")


LOOKED_AT = 10
"""If none of this many best rows is relevant, nothing is recalled."""
TELLING = 4
"""Query terms that a row must hold to cover the query whole."""
TIMELY = 0.6
"""A row this close to the query's date is relevant without a matching word."""
_ROUNDING = 1e-9
"""Tolerance between two orders of adding up a score."""

_Scored = tuple[float, float, tuple[str, str], int]
"""A row's score and its similarity, both negative, its age, and its place among those that fit."""


def rank(
    postings: Postings, question: ParsedQuery, search: RecallSearch, cues: Cues = CUES
) -> list[Ranked]:
    """Return the rows that answer *question*, best first, at most `k` of the query."""
    k = search.query.k
    if not (question.terms or question.dates or search.cosines) or k < 1:
        return []
    fits = fit(postings, question, search, cues)
    order = sorted(range(len(fits.rows)), key=fits.fit.__getitem__, reverse=True)
    judge = _Judge(postings, question, search, fits)
    postings.learn([fits.rows[place] for place in order[: LOOKED_AT + k]])
    if not judge.any_answers(order[:LOOKED_AT]):
        return []
    found: list[Ranked] = []
    for score, similarity, _, place in judge.best(order):
        row, coverage = fits.rows[place], judge.coverage(place)
        ranked = Ranked(
            id=postings.rows[row].id,
            score=-score,
            similarity=-similarity,
            relevance=judge.relevance(row, coverage),
            recency=judge.recency(row),
            importance=postings.rows[row].importance,
            why=why(postings, question, fits, cues, place=place, coverage=coverage),
        )
        found.append(ranked)
    return found


class _Judge:
    """Decides which of the rows that fit are recalled."""

    def __init__(
        self, postings: Postings, question: ParsedQuery, search: RecallSearch, fits: Fits
    ) -> None:
        self._postings, self._fits = postings, fits
        self._k, self._options, self._now = search.query.k, search.options, search.now
        self._rate = 1 / (DAY * self._options.half_life_days)
        self._telling = {term: postings.telling(term) for term in question.terms}
        self._whole = sum(sorted(self._telling.values(), reverse=True)[:TELLING]) or 1.0

    def any_answers(self, places: list[int]) -> bool:
        """Check whether a row in *places* is relevant enough for a recall."""
        least = self._options.min_relevance
        return any(least <= 0 or self._reaches(place, least) for place in places)

    def best(self, order: list[int]) -> list[_Scored]:
        """Return the best rows by score, best first.

        *order* is by fit, so the search ends where even the freshest and most important of the
        remaining rows could not score enough.
        """
        k, options, fits, held = self._k, self._options, self._fits, self._postings.rows
        similar, recent, important = _shares(options.weights)
        most = recent + important * self._postings.importance
        row_relevance = options.row_relevance if options.min_relevance > 0 else 0.0
        top = fits.fit[order[0]]
        kept: list[_Scored] = []
        scores: list[float] = []
        for place in order:
            similarity = max(0.0, fits.fit[place]) / top if top > 0 else 0.0
            fitting = similar * similarity
            if len(scores) == k and fitting + most < scores[0] - _ROUNDING:
                break
            if row_relevance > 0 and not self._reaches(place, row_relevance):
                continue
            row = fits.rows[place]
            fresh = recent * self.recency(row) if recent else 0.0
            score = fitting + fresh + important * held[row].importance
            kept.append((-score, -similarity, _age(held[row].id), place))
            if len(scores) < k:
                heappush(scores, score)
            elif score > scores[0]:
                heapreplace(scores, score)
        return nsmallest(k, kept)

    def coverage(self, place: int) -> float:
        """Return the share of the query that the row in *place* covers, or the reverse.

        The larger of the two counts.
        """
        return max(self._of_query(place), self._of_body(place))

    def relevance(self, row: int, coverage: float) -> float:
        """Return how surely a row with that *coverage* relates to the query, 0 to 1."""
        if self._fits.date.get(row, 0.0) >= TIMELY:
            return 1.0
        return min(1.0, max(coverage, self._fits.cosine.get(row, 0.0)))

    def recency(self, row: int) -> float:
        """Return 1 for a row of this moment, half as much after each half-life."""
        since = self._now - self._postings.fresh[row]
        return 2.0 ** (-since * self._rate) if since > 0 else 1.0

    def _reaches(self, place: int, least: float) -> bool:
        row = self._fits.rows[place]
        return (
            self._of_query(place) >= least
            or self._fits.date.get(row, 0.0) >= TIMELY
            or self._fits.cosine.get(row, 0.0) >= self._options.min_cosine
            or self._of_body(place) >= least
        )

    def _of_query(self, place: int) -> float:
        return min(1.0, self._fits.told[self._fits.rows[place]] / self._whole)

    def _of_body(self, place: int) -> float:
        row = self._fits.rows[place]
        whole = self._postings.brief_weight(row)
        if not whole:
            return 0.0
        body = self._postings.rows[row].body.split()
        return sum([much for term, much in self._telling.items() if term in body]) / whole


def _shares(weights: Weights) -> tuple[float, float, float]:
    """Return *weights* as shares of their sum."""
    whole = weights.similarity + weights.recency + weights.importance
    return weights.similarity / whole, weights.recency / whole, weights.importance / whole


def _age(id: str) -> tuple[str, str]:
    """Return the sort key of ids by age, the same for items and turns."""
    return id.partition("_")[2], id
