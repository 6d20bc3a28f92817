"""From rows that fit a question to what is recalled: whether at all, in which order, and why."""

from collections.abc import Mapping
from heapq import heappush, heapreplace

from holdfast.memories.longterm.lexical import CUES, Cues, Fits, fit
from holdfast.memories.longterm.postings import DAY, Postings
from holdfast.memories.longterm.question import Question
from holdfast.memories.longterm.score import Ranked, Wanted
from holdfast.memories.longterm.why import why

LOOKED_AT = 10
"""If none of so many best rows is relevant, nothing is."""
TELLING = 4
"""Query terms that a row must hold to cover the query whole."""
TIMELY = 0.6
"""A row so close to the date asked about is relevant whatever its words."""


def rank(
    postings: Postings,
    question: Question,
    wanted: Wanted,
    *,
    now: int,
    cosines: Mapping[str, float] | None = None,
    cues: Cues = CUES,
) -> list[Ranked]:
    """Return the rows that answer *question*, best first, at most `wanted.k`.

    *cosines* are those of rows that have a vector, by id; None where nothing is compared by
    meaning. *now* is in microseconds since 1970.
    """
    if not (question.terms or question.dates or cosines) or wanted.k < 1:
        return []
    fits = fit(postings, question, wanted, cosines, cues)
    order = sorted(range(len(fits.rows)), key=fits.fit.__getitem__, reverse=True)
    judge = _Judge(postings, question, wanted, fits, now)
    if wanted.min_relevance > 0 and not judge.any_answers(order[:LOOKED_AT]):
        return []
    return [
        Ranked(
            id=postings.rows[fits.rows[place]].id,
            score=-score,
            similarity=-similarity,
            relevance=judge.relevance(place),
            recency=judge.recency(fits.rows[place]),
            importance=postings.rows[fits.rows[place]].importance,
            why=why(postings, question, fits, cues, place=place, coverage=judge.coverage(place)),
        )
        for score, similarity, _, place in judge.best(order)
    ]


class _Judge:
    """Decides which of the rows that fit are recalled."""

    def __init__(
        self, postings: Postings, question: Question, wanted: Wanted, fits: Fits, now: int
    ) -> None:
        self._postings, self._wanted, self._fits, self._now = postings, wanted, fits, now
        self._terms = [
            (postings.telling(term), term, postings.weights(term)) for term in question.terms
        ]
        telling = sorted((much for much, _, _ in self._terms), reverse=True)
        self._whole = sum(telling[:TELLING]) or 1.0

    def any_answers(self, places: list[int]) -> bool:
        """Tell whether a row in *places* is relevant enough for the query to be answered."""
        return any(self._reaches(place, self._wanted.min_relevance) for place in places)

    def best(self, order: list[int]) -> list[tuple[float, float, tuple[str, str], int]]:
        """Return the best rows by score: its negative, that of similarity, their age, their place.

        Rows come best fitting first, so that the others need no look once even the freshest and
        most important of them could not score enough.
        """
        weights, wanted, fits = self._wanted.weights, self._wanted, self._fits
        whole = weights.similarity + weights.recency + weights.importance
        top = max((fits.fit[place] for place in order[:1]), default=0.0)
        kept: list[tuple[float, float, tuple[str, str], int]] = []
        scores: list[float] = []
        for place in order:
            similarity = max(0.0, fits.fit[place]) / top if top > 0 else 0.0
            fitting = weights.similarity * similarity
            possible = (fitting + weights.recency + weights.importance) / whole
            if len(scores) == wanted.k and possible < scores[0]:
                break
            if wanted.min_relevance > 0 and not self._reaches(place, wanted.row_relevance):
                continue
            row = fits.rows[place]
            fresh = weights.recency * self.recency(row) if weights.recency else 0.0
            held = self._postings.rows[row]
            score = (fitting + fresh + weights.importance * held.importance) / whole
            kept.append((-score, -similarity, _age(held.id), place))
            if len(scores) < wanted.k:
                heappush(scores, score)
            elif score > scores[0]:
                heapreplace(scores, score)
        return sorted(kept)[: wanted.k]

    def coverage(self, place: int) -> float:
        """Return how much of what the query asks the row in *place* is about, or the reverse."""
        return max(self._of_query(place), self._of_body(place))

    def relevance(self, place: int) -> float:
        """Return how surely the row in *place* has to do with the query, 0 to 1."""
        row = self._fits.rows[place]
        if self._fits.date.get(row, 0.0) >= TIMELY:
            return 1.0
        return min(1.0, max(self.coverage(place), self._fits.cosine.get(row, 0.0)))

    def recency(self, row: int) -> float:
        """Return 1 for a row of this moment, half as much after each half-life."""
        at = self._postings.rows[row].at
        since = self._now - max(at, self._postings.last_accessed.get(row, at))
        return 2.0 ** (-max(0, since) / (DAY * self._wanted.half_life_days))

    def _reaches(self, place: int, least: float) -> bool:
        row = self._fits.rows[place]
        return (
            self._of_query(place) >= least
            or self._fits.date.get(row, 0.0) >= TIMELY
            or self._fits.cosine.get(row, 0.0) >= self._wanted.min_cosine
            or self._of_body(place) >= least
        )

    def _of_query(self, place: int) -> float:
        row = self._fits.rows[place]
        found = sum(much for much, _, weights in self._terms if row in weights)
        return min(1.0, found / self._whole)

    def _of_body(self, place: int) -> float:
        row = self._fits.rows[place]
        whole = self._postings.brief_weight(row)
        if not whole:
            return 0.0
        body = self._postings.rows[row].body.split()
        return sum(much for much, term, _ in self._terms if term in body) / whole


def _age(id: str) -> tuple[str, str]:
    """Return what orders ids by when they were given, whatever they are of."""
    return id.partition("_")[2], id
