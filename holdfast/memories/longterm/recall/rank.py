"""From rows that fit a question to what is recalled: whether at all, in which order, and why."""

from collections.abc import Mapping
from heapq import heappush, heapreplace, nsmallest

from holdfast.memories.longterm.recall.index import DAY, Postings
from holdfast.memories.longterm.recall.query import Question
from holdfast.memories.longterm.recall.score import CUES, Cues, Fits, fit
from holdfast.memories.longterm.records import Ranked, RecallOptions, Weights
from holdfast.memories.longterm.why import why

LOOKED_AT = 10
"""If none of so many best rows is relevant, nothing is."""
TELLING = 4
"""Query terms that a row must hold to cover the query whole."""
TIMELY = 0.6
"""A row so close to the date asked about is relevant whatever its words."""
_ROUNDING = 1e-9
"""What two ways of adding up a score may differ by."""

_Scored = tuple[float, float, tuple[str, str], int]
"""A row's score and its similarity, both negative, its age, and its place among those that fit."""


def rank(
    postings: Postings,
    question: Question,
    wanted: RecallOptions,
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
    postings.learn(fits.rows[place] for place in order[: LOOKED_AT + wanted.k])
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
        self, postings: Postings, question: Question, wanted: RecallOptions, fits: Fits, now: int
    ) -> None:
        self._postings, self._wanted, self._fits, self._now = postings, wanted, fits, now
        self._rate = 1 / (DAY * wanted.half_life_days)
        self._telling = {term: postings.telling(term) for term in question.terms}
        self._whole = sum(sorted(self._telling.values(), reverse=True)[:TELLING]) or 1.0

    def any_answers(self, places: list[int]) -> bool:
        """Tell whether a row in *places* is relevant enough for the query to be answered."""
        least = self._wanted.min_relevance
        return any(least <= 0 or self._reaches(place, least) for place in places)

    def best(self, order: list[int]) -> list[_Scored]:
        """Return the best rows by score, best first.

        They come best fitting first, so that the others need no look once even the freshest and
        most important of them could not score enough.
        """
        wanted, fits, held = self._wanted, self._fits, self._postings.rows
        similar, recent, important = _shares(wanted.weights)
        most = recent + important * self._postings.importance
        row_relevance = wanted.row_relevance if wanted.min_relevance > 0 else 0.0
        top = fits.fit[order[0]]
        kept: list[_Scored] = []
        scores: list[float] = []
        for place in order:
            similarity = max(0.0, fits.fit[place]) / top if top > 0 else 0.0
            fitting = similar * similarity
            if len(scores) == wanted.k and fitting + most < scores[0] - _ROUNDING:
                break
            if row_relevance > 0 and not self._reaches(place, row_relevance):
                continue
            row = fits.rows[place]
            fresh = recent * self.recency(row) if recent else 0.0
            score = fitting + fresh + important * held[row].importance
            kept.append((-score, -similarity, _age(held[row].id), place))
            if len(scores) < wanted.k:
                heappush(scores, score)
            elif score > scores[0]:
                heapreplace(scores, score)
        return nsmallest(wanted.k, kept)

    def coverage(self, place: int) -> float:
        """Return how much of what the query asks the row in *place* is about, or the reverse."""
        return max(self._of_query(place), self._of_body(place))

    def relevance(self, row: int, coverage: float) -> float:
        """Return how surely a row has to do with the query that is covered so much, 0 to 1."""
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
            or self._fits.cosine.get(row, 0.0) >= self._wanted.min_cosine
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
        return sum(much for term, much in self._telling.items() if term in body) / whole


def _shares(weights: Weights) -> tuple[float, float, float]:
    """Return *weights* as shares of their sum."""
    whole = weights.similarity + weights.recency + weights.importance
    return weights.similarity / whole, weights.recency / whole, weights.importance / whole


def _age(id: str) -> tuple[str, str]:
    """Return what orders ids by when they were given, whatever they are of."""
    return id.partition("_")[2], id
