"""Order the rows that fit a query, and leave out those that do not answer it.

Turns that are no statement, rows beside the topic, and turns for which a mined item stands are left
out and counted. With `min_relevance=0` nothing is left out, and turns that are no statement come
last.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from heapq import heappush, heapreplace, nsmallest
from itertools import chain
from typing import Final

from msgspec import Struct

from holdfast.memories.longterm.recall.analyze import analyze
from holdfast.memories.longterm.recall.collapse import covers, may_repeat
from holdfast.memories.longterm.recall.index import DAY, Postings, Row
from holdfast.memories.longterm.recall.query import ParsedQuery
from holdfast.memories.longterm.recall.score import CUES, Cues, Fits, RecallSearch, fit, why
from holdfast.memories.longterm.recall.topic import TELLING, GeneralGate
from holdfast.memories.longterm.records import Ranked, SuppressReason, Weights

LOOKED_AT: Final = 10
"""If none of this many best rows is relevant, nothing is recalled."""
TIMELY: Final = 0.6
"""A row this close to the query's date is relevant without a matching word."""
RELATED_MORE: Final = 0.06
"""How much more must be covered for an answer where related stems cover it.

With 0 foreign.empty is .540, with .06 it is .551; as shipped recall@10 is .761 with both.
"""
_ROUNDING: Final = 1e-9
"""Tolerance between two orders of adding up a score."""

Suppressions = Counter[SuppressReason]

_Scored = tuple[float, float, bool, tuple[str, str], int]
"""A row's score and similarity, both negative; is it a turn; its age, and its place in the fits.

At equal score an item stands first, then the older row.
"""


class Ranking(Struct, frozen=True, kw_only=True):
    """Rows, best first, and how many were left out, by reason.

    There are more than `k` of the query only if some *repeats* another or the query, as far as
    their terms show. *more*: other rows remain.
    """

    found: list[Ranked]
    suppressed: Suppressions
    repeats: bool = False
    more: bool = False


def rank(
    postings: Postings, question: ParsedQuery, search: RecallSearch, cues: Cues = CUES
) -> list[Ranked]:
    """Return the rows that answer *question*, best first, at most `k` of the query."""
    return ranking(postings, question, search, cues).found[: search.query.k]


def ranking(
    postings: Postings, question: ParsedQuery, search: RecallSearch, cues: Cues = CUES
) -> Ranking:
    """Rank the rows that answer *question*, up to `reach` of *search* if they repeat."""
    topic = search.topic.kind
    if not (question.terms or question.dates or search.cosines) or search.query.k < 1:
        return Ranking(found=[], suppressed=Suppressions())
    if search.options.min_relevance > 0 and topic in ("phatic", "at_hand"):
        return Ranking(found=[], suppressed=Suppressions({topic: 1}))
    judge = _Judge(postings, question, search, fit(postings, question, search, cues))
    scored = judge.chosen()
    leads = judge.leads(scored)
    suppressed = judge.left_out(scored)
    suppressed["duplicate"] += sum(map(len, leads.values()))
    places = list(leads) if judge.repeats else list(leads)[: search.query.k]
    return Ranking(
        found=[judge.ranked(place, cues, also=leads[place]) for place in places],
        suppressed=+suppressed,
        repeats=judge.repeats,
        more=judge.more,
    )


class _Judge:
    """Decides which of the rows that fit are recalled, and in which order."""

    def __init__(
        self, postings: Postings, question: ParsedQuery, search: RecallSearch, fits: Fits
    ) -> None:
        self._postings, self._question, self._search, self._fits = postings, question, search, fits
        self._options, self._now = search.options, search.now
        self._weights = _shares(search.options.weights)
        self._rate = 1 / (DAY * self._options.half_life_days)
        self._telling = {term: postings.telling(term) for term in question.terms}
        self._whole = sum(sorted(self._telling.values(), reverse=True)[:TELLING]) or 1.0
        self._filters = self._options.min_relevance > 0
        self.repeats = self.more = False
        """Whether some of the rows chosen may repeat others, and whether other rows remain."""
        self._gate = (
            GeneralGate(postings, search.topic, self._options)
            if self._filters and search.topic.kind == "general"
            else None
        )
        self._order = sorted(range(len(fits.rows)), key=fits.fit.__getitem__, reverse=True)
        self._noise: list[int] = []
        if postings.has_noise and not search.noise:
            self._noise = [place for place in self._order if self._row(place).noise]
            noise = frozenset(self._noise)
            self._order = [place for place in self._order if place not in noise]
        first = self._order[0] if self._order else (self._noise or [None])[0]
        self._top = 0.0 if first is None else fits.fit[first]

    def chosen(self) -> list[_Scored]:
        """Return the best rows by score, best first; none if none is relevant enough."""
        k, least = self._search.query.k, self._options.min_relevance
        first = self._order[:LOOKED_AT]
        self._postings.learn([self._fits.rows[place] for place in self._order[: LOOKED_AT + k]])
        if not self._filters:
            scored = self._best(self._order, k)
            return scored + self._best(self._noise, k - len(scored))
        if not any(self._answers(place, least) for place in first):
            return []
        wanted = k
        scored = self._best(self._order, k)
        if self._search.reach > k:
            places = [place for *_, place in scored]
            self.repeats = self._search.repeats or self._may_repeat(places)
            if len(scored) == k and (self.repeats or self._is_cited(places)):
                wanted = self._search.reach
                scored = self._best(self._order, wanted)
                self.repeats = self.repeats or self._may_repeat([place for *_, place in scored])
        self.more = len(scored) == wanted
        return scored

    def leads(self, scored: Sequence[_Scored]) -> dict[int, list[str]]:
        """Return the places of results in order, with the turns left out for each.

        Of an item and the turns that it was mined from, only the item stands.
        """
        found: dict[int, list[str]] = {}
        for *_, place in scored:
            item = self._stand_in(place) if self._filters and self._postings.citing else None
            if item is None:
                found.setdefault(place, [])
            else:
                found.setdefault(item, []).append(self._row(place).id)
        return found

    def left_out(self, scored: Sequence[_Scored]) -> Suppressions:
        """Count what was left out: among the rows before the last result, or the ten best.

        If the query asks for an explanation, among all candidates.
        """
        found = Suppressions()
        if not self._postings.tiers.issubset(self._search.query.tiers):
            found["tier"] = self._other_tiers()
        if not self._filters:
            return found
        fits, least = self._fits.fit, self._options.min_relevance
        noise, says = self._noise, self._order
        if not self._search.query.explain:
            last = min((fits[place] for *_, place in scored), default=None)
            if last is None:
                noise, says = noise[:LOOKED_AT], says[:LOOKED_AT]
            else:
                noise = [place for place in noise if fits[place] >= last]
                says = [place for place in says[:LOOKED_AT] if fits[place] >= last]
        found["noise"] = sum(self._answers(place, least) for place in noise)
        if self._gate is not None:
            found["general"] = sum(
                self._matches(place, least) and not self._reaches(place, least) for place in says
            )
        return found

    def _other_tiers(self) -> int:
        """Count the rows of other tiers that hold a term of the query."""
        weights = map(self._postings.weights, self._question.terms)
        tiers = frozenset(self._search.query.tiers)
        rows = frozenset(chain.from_iterable(weights))
        return sum(self._postings.rows[row].tier not in tiers for row in rows)

    def ranked(self, place: int, cues: Cues, *, also: Sequence[str]) -> Ranked:
        """Return the row in *place*, for which the rows *also* were left out."""
        row, coverage = self._fits.rows[place], self._coverage(place)
        score, similarity = self._score(place)
        reasons = why(
            self._postings, self._question, self._fits, cues, place=place, coverage=coverage
        )
        return Ranked(
            id=self._postings.rows[row].id,
            score=score,
            similarity=similarity,
            relevance=self._relevance(row, coverage),
            recency=self._recency(row),
            importance=self._postings.rows[row].importance,
            why=reasons,
            also=tuple(also),
        )

    def _row(self, place: int) -> Row:
        return self._postings.rows[self._fits.rows[place]]

    def _may_repeat(self, places: Sequence[int]) -> bool:
        query = " ".join(analyze(self._search.query.query))
        return may_repeat([self._row(place).body for place in places], query)

    def _is_cited(self, places: Sequence[int]) -> bool:
        citing = self._postings.citing
        return bool(citing) and any(self._fits.rows[place] in citing for place in places)

    def _stand_in(self, place: int) -> int | None:
        """Return the place of the item that stands for the turn in *place*, or None."""
        postings, rows = self._postings, self._fits.rows
        turn = rows[place]
        found: list[tuple[float, int]] = []
        for item in postings.citing.get(turn, ()):
            other = bisect_left(rows, item)
            if other == len(rows) or rows[other] != item or not covers(postings, item, turn):
                continue
            if self._reaches(other, self._options.row_relevance):
                found.append((self._fits.fit[other], -other))
        return -max(found)[1] if found else None

    def _best(self, order: Sequence[int], k: int) -> list[_Scored]:
        """Return the *k* best rows by score, best first.

        *order* is by fit, so the search ends where even the freshest and most important of the
        remaining rows could not score enough.
        """
        if k < 1:
            return []
        similar, recent, important = self._weights
        most = recent + important * self._postings.importance
        row_relevance = self._options.row_relevance if self._filters else 0.0
        gate, cosine = self._gate, self._fits.cosine
        top, fits, rows, held = self._top, self._fits.fit, self._fits.rows, self._postings.rows
        kept: list[_Scored] = []
        scores: list[float] = []
        for place in order:
            similarity = max(0.0, fits[place]) / top if top > 0 else 0.0
            fitting = similar * similarity
            if len(scores) == k and fitting + most < scores[0] - _ROUNDING:
                break
            if gate is not None:
                if not gate.admits(rows[place], cosine.get(rows[place], 0.0)):
                    continue
            elif row_relevance > 0 and not self._matches(place, row_relevance):
                continue
            row = held[rows[place]]
            fresh = recent * self._recency(rows[place]) if recent else 0.0
            score = fitting + fresh + important * row.importance
            kept.append((-score, -similarity, row.kind is None, _age(row.id), place))
            if len(scores) < k:
                heappush(scores, score)
            elif score > scores[0]:
                heapreplace(scores, score)
        return nsmallest(k, kept)

    def _score(self, place: int) -> tuple[float, float]:
        """Return the score and the similarity of the row in *place*."""
        similar, recent, important = self._weights
        row = self._fits.rows[place]
        similarity = max(0.0, self._fits.fit[place]) / self._top if self._top > 0 else 0.0
        fresh = recent * self._recency(row) if recent else 0.0
        return (
            similar * similarity + fresh + important * self._postings.rows[row].importance,
            similarity,
        )

    def _coverage(self, place: int) -> float:
        """Return the share of the query that the row in *place* covers, or the reverse.

        The larger of the two counts.
        """
        return max(self._of_query(place), self._of_body(place))

    def _relevance(self, row: int, coverage: float) -> float:
        """Return how surely a row with that *coverage* relates to the query, 0 to 1."""
        if self._fits.date.get(row, 0.0) >= TIMELY:
            return 1.0
        return min(1.0, max(coverage, self._fits.cosine.get(row, 0.0)))

    def _recency(self, row: int) -> float:
        """Return 1 for a row of this moment, half as much after each half-life."""
        since = self._now - self._postings.fresh[row]
        return 2.0 ** (-since * self._rate) if since > 0 else 1.0

    def _reaches(self, place: int, least: float) -> bool:
        """Check whether the row in *place* is relevant enough for this query."""
        if self._gate is None:
            return self._matches(place, least)
        row = self._fits.rows[place]
        return self._gate.admits(row, self._fits.cosine.get(row, 0.0))

    def _answers(self, place: int, least: float) -> bool:
        """Check whether the row in *place* is relevant enough for a recall at all."""
        if self._gate is not None or not self._fits.related:
            return self._reaches(place, least)
        if not self._matches(place, least):
            return False
        return self._of_query(place) < least or (
            self._of_query(place) >= least + RELATED_MORE or self._of_own_words(place) >= least
        )

    def _of_own_words(self, place: int) -> float:
        row, weights = self._fits.rows[place], self._postings.weights
        return (
            sum(much for term, much in self._telling.items() if row in weights(term)) / self._whole
        )

    def _matches(self, place: int, least: float) -> bool:
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
