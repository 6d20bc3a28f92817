"""Fuse the scores of candidates, and state the reasons."""

from heapq import heappush, heapreplace, nsmallest
from operator import itemgetter

from holdfast.memories.longterm.recall.index import DAY, Postings
from holdfast.memories.longterm.recall.query import Question
from holdfast.memories.longterm.recall.score import CUES, Cues, Fits, RecallSearch, fit, is_of
from holdfast.memories.longterm.records import Ranked, Weights

_DAYS = {1.0: "on the day asked about", 0.6: "soon after the day asked about"}
_MONTHS = {1.0: "in the month asked about", 0.5: "in the month after the one asked about"}
_AMONG_MUCH = 0.5
"""From this share of the best session's score on, the session is a reason by itself."""


def why(
    postings: Postings, question: Question, fits: Fits, cues: Cues, *, place: int, coverage: float
) -> dict[str, object]:
    """Return why the row in *place* of *fits* answers *question*, numbers to 4 places.

    Each cue's number is what it added to the fit. Coverage and cosine are unweighted; cosine is
    None if texts were not compared by meaning.
    """
    number = fits.rows[place]
    row = postings.rows[number]
    weighed = [(postings.weights(term).get(number, 0.0), term) for term in question.terms]
    matched = [(much, term) for much, term in weighed if much]
    ordered = sorted(matched, key=itemgetter(0), reverse=True)
    terms = [term for _, term in ordered]
    theirs = is_of(postings, number, question)
    session = fits.session.get(postings.session[number], 0.0)
    details: dict[str, object] = {
        "terms": terms,
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
        *_words(terms, row.body.split()),
        _said_by(postings, number, question) if theirs else "",
        _dated(question, fits.date.get(number, 0.0)),
        "tells a time" if details["time"] else "",
        "close in meaning" if fits.near.get(number, 0.0) >= _AMONG_MUCH else "",
        "linked to what matches" if number in fits.link else "",
        "from a session about it" if session >= _AMONG_MUCH else "",
    ]
    details["text"] = "; ".join(filter(None, reasons)) or "beside what matches"
    return details


def _words(terms: list[str], body: list[str]) -> tuple[str, str]:
    """Return which of *terms* are in the row, and which only in the turns before it."""
    own = ", ".join([term for term in terms if term in body])
    lent = ", ".join([term for term in terms if term not in body])
    return (f'matches "{own}"' if own else "", f'follows "{lent}"' if lent else "")


def _said_by(postings: Postings, number: int, question: Question) -> str:
    row = postings.rows[number]
    said = row.kind is None or question.named[0] in row.speakers
    return f"{'said by' if said else 'names'} {question.named[0]}"


def _dated(question: Question, close: float) -> str:
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
    postings: Postings, question: Question, search: RecallSearch, cues: Cues = CUES
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
        self, postings: Postings, question: Question, search: RecallSearch, fits: Fits
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
