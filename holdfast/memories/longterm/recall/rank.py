"""Order the rows that fit a query, and leave out those that do not answer it.

Turns that are no statement, rows beside the topic, and turns for which a mined item stands are left
out and counted. With `min_relevance=0` nothing is left out, and turns that are no statement come
last.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappush, heapreplace, nsmallest
from itertools import chain
from math import log
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.trust import RANKS
from holdfast.memories.longterm.recall.analyze import analyze
from holdfast.memories.longterm.recall.dedupe import similarity
from holdfast.memories.longterm.recall.index import DAY, Postings, Row
from holdfast.memories.longterm.recall.query import ParsedQuery, Topic
from holdfast.memories.longterm.recall.score import CUES, Cues, Fits, RecallSearch, fit, why
from holdfast.memories.longterm.records import LongTermOptions, Ranked, SuppressReason

FEWEST_ROWS: Final = 400
"""A smaller collection counts as this large, so that one rare word of it is evidence."""
NEARER: Final = 0.15
"""How much nearer than `min_cosine` a row must be to answer a general query by its meaning."""
TELLING: Final = 4
"""Query terms that a row must hold to cover the query whole."""
DUPLICATE: Final = 0.92
"""Share of common terms in order from which on two rows say the same."""
COVERED: Final = 0.6
"""Share of a turn's idf mass that an item mined from it must hold to stand for it."""
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

Neighbours = tuple[int, int]
"""The numbers of the turns before a turn and after it, 0 for none."""

_Scored = tuple[float, float, bool, tuple[str, str], int]
"""A row's score and similarity, both negative; is it a turn; its age, and its place in the fits.

At equal score an item stands first, then the older row.
"""


class Ranking(Struct, frozen=True, kw_only=True):
    """Rows with their scores, best first, and how many were left out, by reason.

    *beside* has the neighbours of a turn by its number; the rows lack them.

    There are more than `k` of the query only if some *repeats* another or the query, as far as
    their terms show. *more*: other rows remain.
    """

    found: list[Ranked]
    rows: list[Row]
    suppressed: Suppressions
    beside: Mapping[int, Neighbours] = {}
    repeats: bool = False
    more: bool = False


NOTHING: Final = Ranking(found=[], rows=[], suppressed=Suppressions())


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
        return NOTHING
    if search.options.min_relevance > 0 and topic in ("phatic", "at_hand"):
        return replace(NOTHING, suppressed=Suppressions({topic: 1}))
    judge = _Judge(postings, question, search, fit(postings, question, search, cues))
    scored = judge.chosen()
    leads = judge.leads(scored)
    suppressed = judge.left_out(scored)
    suppressed["duplicate"] += sum(map(len, leads.values()))
    places = list(leads) if judge.repeats else list(leads)[: search.query.k]
    return Ranking(
        found=[judge.ranked(place, cues, also=leads[place]) for place in places],
        rows=[postings.rows[judge.rows[place]] for place in places],
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
        weights = search.options.weights
        whole = weights.similarity + weights.recency + weights.importance
        self._shares = (
            weights.similarity / whole, weights.recency / whole, weights.importance / whole
        )  # fmt: skip
        self._rate = 1 / (DAY * self._options.half_life_days)
        self._telling = {term: postings.telling(term) for term in question.terms}
        self.rows = fits.rows
        self._whole = sum(sorted(self._telling.values(), reverse=True)[:TELLING]) or 1.0
        self._filters = self._options.min_relevance > 0
        self.repeats = self.more = False
        """Whether some of the rows chosen may repeat others, and whether other rows remain."""
        self._gate = (
            GeneralGate(postings, search.topic, self._options)
            if self._filters and search.topic.kind == "general"
            else None
        )
        self._least_covered = self._options.row_relevance * self._whole if self._filters else 0.0
        if self._gate is not None:
            self._least_covered = self._gate.least - _ROUNDING
        rows, noise = fits.rows, postings.noise
        self._order = sorted(range(len(rows)), key=fits.fit.__getitem__, reverse=True)
        self._noise: list[int] = []
        if noise and not search.noise:
            self._noise = [place for place in self._order if rows[place] in noise]
            self._order = [place for place in self._order if rows[place] not in noise]
        first = (self._order or self._noise or [-1])[0]
        self._top = fits.fit[first] if first >= 0 else 0.0

    def chosen(self) -> list[_Scored]:
        """Return the best rows by score, best first; none if none is relevant enough."""
        k, least = self._search.query.k, self._options.min_relevance
        if self._postings.partial:
            first = self._order[: LOOKED_AT + k]
            self._postings.learn([self._fits.rows[place] for place in first])
        if not self._filters:
            scored = self._best(self._order, k)
            more = self._noise if len(scored) < k else ()
            return scored + self._best(more, k - len(scored)) if more else scored
        for place in self._order[:LOOKED_AT]:
            if self._answers(place, least):
                break
        else:
            return []
        wanted = k
        scored = self._best(self._order, k)
        if self._search.reach > k:
            self.repeats = self._search.repeats or self._may_repeat(scored)
            if len(scored) == k and (self.repeats or self._is_cited(scored)):
                wanted = self._search.reach
                scored = self._best(self._order, wanted)
                self.repeats = self.repeats or self._may_repeat(scored)
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
        if not self._filters or not (self._noise or self._gate):
            return found
        fits, least = self._fits.fit, self._options.min_relevance
        noise, says = self._noise, self._order
        if not self._search.query.explain:
            last = min([fits[place] for *_, place in scored], default=None)
            if last is None:
                noise, says = noise[:LOOKED_AT], says[:LOOKED_AT]
            else:
                noise = [place for place in noise if fits[place] >= last]
                says = [place for place in says[:LOOKED_AT] if fits[place] >= last]
        found["noise"] = sum([self._answers(place, least) for place in noise])
        if self._gate is not None:
            found["general"] = sum(
                [self._matches(place, least) and not self._reaches(place, least) for place in says]
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
        number = self._fits.rows[place]
        row = self._postings.rows[number]
        similar, recent, important = self._shares
        similarity = max(0.0, self._fits.fit[place]) / self._top if self._top > 0 else 0.0
        since = self._now - self._postings.fresh[number]
        recency = 2.0 ** (-since * self._rate) if since > 0 else 1.0
        # How much of the query the row covers, or the reverse: the larger counts.
        coverage = max(min(1.0, self._fits.covered[number] / self._whole), self._of_body(place))
        timely = self._fits.date.get(number, 0.0) >= TIMELY
        nearness = self._fits.cosine.get(number, 0.0)
        fresh = recent * recency if recent else 0.0
        reasons = why(
            self._postings, self._question, self._fits, cues, place=place, coverage=coverage
        )
        return Ranked(
            id=row.id,
            score=similar * similarity + fresh + important * row.importance,
            similarity=similarity,
            relevance=1.0 if timely else min(1.0, max(coverage, nearness)),
            recency=recency,
            importance=row.importance,
            why=reasons,
            also=tuple(also),
        )

    def _row(self, place: int) -> Row:
        return self._postings.rows[self._fits.rows[place]]

    def _may_repeat(self, scored: Sequence[_Scored]) -> bool:
        query = " ".join(analyze(self._search.query.query))
        return may_repeat([self._row(place) for *_, place in scored], query)

    def _is_cited(self, scored: Sequence[_Scored]) -> bool:
        citing = self._postings.citing
        return bool(citing) and any(self._fits.rows[place] in citing for *_, place in scored)

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
        similar, recent, important = self._shares
        most = recent + important * self._postings.importance
        gate, cosine, covered = self._gate, self._fits.cosine, self._fits.covered
        top, fits, rows, held = self._top, self._fits.fit, self._fits.rows, self._postings.rows
        now, rate, said = self._now, self._rate, self._postings.fresh
        least = self._least_covered
        kept: list[_Scored] = []
        scores: list[float] = []
        for place in order:
            similarity = max(0.0, fits[place]) / top if top > 0 else 0.0
            score = similar * similarity
            if len(scores) == k and score + most < scores[0] - _ROUNDING:
                break
            number = rows[place]
            if gate is not None:
                # No row covers more of some terms than of all.
                if covered[number] < least and cosine.get(number, 0.0) < gate.cosine:
                    continue
                if not gate.admits(number, cosine.get(number, 0.0)):
                    continue
            elif covered[number] < least and not self._matches(place, self._options.row_relevance):
                continue
            row = held[number]
            if recent:
                since = now - said[number]
                score += recent * (2.0 ** (-since * rate) if since > 0 else 1.0)
            score += important * row.importance
            age = row.id.partition("_")[2], row.id
            kept.append((-score, -similarity, row.kind is None, age, place))
            if len(scores) < k:
                heappush(scores, score)
            elif score > scores[0]:
                heapreplace(scores, score)
        return nsmallest(k, kept)

    def _reaches(self, place: int, least: float) -> bool:
        """Check whether the row in *place* is relevant enough for this query."""
        if self._gate is None:
            return self._matches(place, least)
        row = self._fits.rows[place]
        return self._gate.admits(row, self._fits.cosine.get(row, 0.0))

    def _answers(self, place: int, least: float) -> bool:
        """Check whether the row in *place* is relevant enough for a recall at all."""
        row, weights = self._fits.rows[place], self._postings.weights
        if self._gate is not None:
            return self._gate.admits(row, self._fits.cosine.get(row, 0.0))
        if not self._matches(place, least):
            return False
        if not self._fits.related:
            return True
        covered = min(1.0, self._fits.covered[row] / self._whole)
        if covered < least or covered >= least + RELATED_MORE:
            return True
        own = [much for term, much in self._telling.items() if row in weights(term)]
        return sum(own) / self._whole >= least

    def _matches(self, place: int, least: float) -> bool:
        row = self._fits.rows[place]
        return (
            min(1.0, self._fits.covered[row] / self._whole) >= least
            or self._fits.date.get(row, 0.0) >= TIMELY
            or self._fits.cosine.get(row, 0.0) >= self._options.min_cosine
            or self._of_body(place) >= least
        )

    def _of_body(self, place: int) -> float:
        """Return the share of a short row that the query covers; 0 for a long one."""
        row = self._fits.rows[place]
        whole = self._postings.brief_weight(row)
        if not whole:
            return 0.0
        body = self._postings.rows[row].body.split()
        return sum([much for term, much in self._telling.items() if term in body]) / whole


def may_repeat(rows: Sequence[Row], query: str = "") -> bool:
    """Check whether two of *rows* may say the same, or a turn the same as the *query*.

    Their bodies decide, and the query's terms as such a body.
    """
    if query and [row for row in rows if row.kind is None and row.body.startswith(query)]:
        return True
    split = sorted([row.body.split(" ") for row in rows if row.body], key=len)
    bodies = [(terms, frozenset(terms)) for terms in split]
    for place, (one, words) in enumerate(bodies):
        for other, others in bodies[place + 1 :]:
            common = DUPLICATE * (len(one) + len(other)) / 2
            if len(one) < common:
                break
            # Terms of one text alone are outside of what both have in common.
            if len(words - others) <= len(one) - common and similarity(one, other) >= DUPLICATE:
                return True
    return False


def covers(postings: Postings, item: int, turn: int) -> bool:
    """Check whether the row *item* holds most of what the row *turn* says.

    A small collection counts as one of 100 rows, as for relevance. No item of a lower tier stands
    for a turn.
    """
    if RANKS[postings.rows[item].tier] < RANKS[postings.rows[turn].tier]:
        return False
    terms = frozenset(postings.rows[turn].body.split())
    held = frozenset(postings.rows[item].body.split())
    postings.learn((turn,), whole=True)
    idf = {term: postings.telling(term) ** 0.5 for term in sorted(terms)}
    whole = sum(idf.values())
    return sum(idf[term] for term in sorted(terms & held)) >= COVERED * whole


class GeneralGate:
    """Decides which rows hold enough telling words of a general query."""

    def __init__(self, postings: Postings, topic: Topic, options: LongTermOptions) -> None:
        self._evidence = options.min_evidence
        self.cosine = options.min_cosine + NEARER
        """Cosine from which on a row is admitted whatever it holds."""
        whole = _weight(postings.count, 1)
        self._terms = [
            (
                postings.weights(term),
                postings.telling(term),
                _weight(postings.count, postings.df(term)) / whole,
            )
            for term in topic.terms
        ]
        telling = sorted([each for _, each, _ in self._terms], reverse=True)
        self.least = options.min_relevance_general * (sum(telling[:TELLING]) or 1.0)
        """Weight of the query's terms that a row must hold."""

    def admits(self, row: int, cosine: float) -> bool:
        """Check whether *row*, this near to the query in meaning, answers it."""
        if cosine >= self.cosine:
            return True
        # Coverage is the share of the query's words that the row holds, rare ones counting most;
        # evidence is how rare they are, 1 for a word of no other row.
        coverage = evidence = 0.0
        for rows, telling, weight in self._terms:
            if row in rows:
                coverage += telling
                evidence += weight
        return coverage >= self.least and evidence >= self._evidence


def _weight(rows: int, df: int) -> float:
    count = max(rows, FEWEST_ROWS)
    return log(1 + (count - max(df, 1) + 0.5) / (max(df, 1) + 0.5)) ** 2
