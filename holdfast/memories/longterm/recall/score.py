"""Rank candidates by BM25 over body and context with cues, and state the reasons.

Measured with `holdfast eval locomo`; docs/recall.md has what each cue is worth. A pure function
of the postings, the question and the options.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import inf
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Row
from holdfast.memories.longterm.recall.analyze import closeness
from holdfast.memories.longterm.recall.index import LENT, SHORT, Postings, QueryWord, is_machine
from holdfast.memories.longterm.recall.query import (
    PERSONAL,
    ParsedQuery,
    Topic,
    asks_for_turns,
    calls,
    chosen,
    topic_of,
)
from holdfast.memories.longterm.records import LongTermOptions, RecallQuery
from holdfast.memories.longterm.rows import EVER, Moment

CANDIDATES, NEAREST = 400, 200
"""Largest number of candidates by words, and by vectors."""
COMMON, RARE_ENOUGH = 0.1, 3
"""In a large collection, terms of more than this share of rows are dropped, if so many remain."""
BEST_OF = 3
"""Rows that make up the score of a session."""
CITED = 0.92
"""Share of its score that a turn keeps which a live item cites: the item stands first."""
NARROW = 0.05
"""Cosines that span less than this are not scaled: the difference would be noise."""
SHARE = 0.6
"""Share of its weight that a stem lends to a query term of the same meaning."""
_KINDS_OF_QUESTIONS, _RELATED_TERMS, _QUERY_WORDS = 64, 1_024, 256


class Cues(Struct, frozen=True, kw_only=True):
    """The most that each cue adds to the best lexical score, which is 1.

    *followed* is the share of the next two turns' scores that a turn gets.
    """

    followed: tuple[float, float] = (0.4, 0.2)
    session: float = 0.30
    speaker: float = 0.40
    near_speaker: float = 0.30
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
    have a vector, by id; None where nothing is compared by meaning. With *noise* rows that are no
    statement are ranked like others. *reach* is the number of rows to return where some of the
    best may say the same, or *repeats* is set; 0 to return `k` of the query in any case.
    """

    query: RecallQuery
    options: LongTermOptions
    now: int
    cosines: Mapping[str, float] | None = None
    moment: Moment | None = None
    topic: Topic = PERSONAL
    noise: bool = False
    reach: int = 0
    repeats: bool = False

    @property
    def related(self) -> bool:
        """Check whether related stems count: not where rows are compared by meaning."""
        return self.options.related and self.cosines is None


def aimed_at(search: RecallSearch, question: ParsedQuery, user: str) -> RecallSearch:
    """Return *search* with the topic of its query, parsed as *question*."""
    text = search.query.query
    return replace(
        search,
        topic=topic_of(text, question, user),
        noise=search.query.noise or asks_for_turns(text, question),
    )


class Fits(Struct, frozen=True, kw_only=True):
    """Candidates in order of recording, with the score of each.

    *fit* and *lexical* are parallel to *rows*. Values of other cues are by row, and of *session*
    by session; a missing one is 0. All but *fit* and *cosine* go up to 1. *covered* has for every
    row the sum of the weights of the query's terms that match it. *crowded* are the sessions of
    several candidates.
    """

    rows: list[int]
    fit: list[float]
    covered: list[float]
    words: list[QueryWord]
    lexical: list[float]
    session: dict[int, float]
    crowded: frozenset[int]
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
    words, lex, covered, touched = _lex(postings, question.terms, related=search.related)
    worded = _best(postings, search, lex, _allowed(postings, search, sorted(touched)))
    date = _dates(postings, question, search) if question.dates else {}
    cosine, nearest = _cosines(postings, search) if search.cosines else ({}, [])
    rows = sorted({*worded, *date, *nearest}) if date or nearest else worded
    followed = _followed(postings, lex, worded, rows, cues)
    best = max(followed, default=0.0) or 1.0
    session, crowded = _sessions(postings, rows, followed)
    link = _links(postings, rows, lex, best) if postings.citing else {}
    near = _spread(cosine, rows) if cosine else {}
    places, lean = postings.session, _leanings(postings, question, cues)
    usual = {each: cues.session * share for each, share in session.items()}
    lexical = [each / best for each in followed]
    fits = [
        share + usual[places[row]] + lean[row] for row, share in zip(rows, lexical, strict=True)
    ]
    for weight, found in ((cues.date, date), (cues.link, link)):
        if found:
            pairs = zip(rows, fits, strict=True)
            fits = [each + weight * found.get(row, 0.0) for row, each in pairs]
    if near:
        weight, whole = search.options.cosine_weight, len(near) == len(rows)
        shares = near.values() if whole else [near.get(row, 0.0) for row in rows]
        fits = [each + weight * share for each, share in zip(fits, shares, strict=True)]
    if near and len(question.named) == 1:
        fits = [
            each + cues.near_speaker * near.get(row, 0.0) * is_of(postings, row, question)
            for row, each in zip(rows, fits, strict=True)
        ]
    if postings.citing:
        shares = (CITED if row in postings.citing else 1.0 for row in rows)
        fits = [share * each for share, each in zip(shares, fits, strict=True)]
    if postings.factors:
        shares = (postings.factors.get(row, 1.0) for row in rows)
        fits = [share * each for share, each in zip(shares, fits, strict=True)]
    return Fits(
        rows=rows, fit=fits, covered=covered, words=words, lexical=lexical, session=session,
        crowded=crowded, date=date, link=link, near=near, cosine=cosine,
        hybrid=search.cosines is not None, related=search.related,
    )  # fmt: skip


def _lex(
    postings: Postings, terms: Sequence[str], *, related: bool
) -> tuple[list[QueryWord], list[float], list[float], set[int]]:
    """Return the query's words, lexical scores, term weights, and the rows that match.

    Lists have one entry for each row and a 0 in place -1.
    """
    lex, covered = [0.0] * (len(postings.rows) + 1), [0.0] * (len(postings.rows) + 1)
    words = [_word(postings, term, related=related) for term in terms]
    touched: set[int] = set()
    for word in words:
        telling = word.telling
        for row in word.weights:
            covered[row] += telling
        for row, share in word.near.items():
            covered[row] += share
        for row, weight in word.best.items():
            lex[row] += weight
        touched.update(word.best)
    return words, lex, covered, touched


def _word(postings: Postings, term: str, *, related: bool) -> QueryWord:
    """Return *term* with its rows, cached with the *postings*."""
    found = postings.words.get((term, related))
    if found is not None:
        return found
    if len(postings.words) >= _QUERY_WORDS:
        postings.words.clear()
    own, telling = postings.weights(term), postings.telling(term)
    others = related_terms(postings, term) if related else ()
    lent = [(other, near, share, postings.weights(other)) for other, near, share in others]
    best, near_rows = own, dict[int, float]()
    if lent:
        best = dict(own)
        for _, near, share, theirs in lent:
            for row, weight in theirs.items():
                if (much := share * weight) > best.get(row, 0.0):
                    best[row] = much
                if row not in own and row not in near_rows:
                    near_rows[row] = SHARE * near * telling
    found = postings.words[term, related] = QueryWord(
        term=term,
        telling=telling,
        weights=own,
        related=[(other, share, theirs) for other, _, share, theirs in lent],
        best=best,
        near=near_rows,
    )
    return found


_RelatedTerms = tuple[tuple[str, float, float], ...]
"""Stems with their similarity to a term and the share of their weight that it gets."""


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


def _allowed(postings: Postings, search: RecallSearch, rows: Iterable[int]) -> list[int]:
    """Return those of *rows* that may be recalled."""
    query = search.query
    if postings.has_ends and search.moment is None:
        now = search.now
        rows = (row for row in rows if (postings.rows[row].until or EVER) > now)
    if postings.has_context:
        rows = (row for row in rows if not postings.rows[row].context)
    if not postings.tiers.issubset(query.tiers):
        tiers = frozenset(query.tiers)
        rows = (row for row in rows if postings.rows[row].tier in tiers)
    if query.kinds is not None:
        kinds = frozenset(query.kinds)
        rows = (row for row in rows if postings.rows[row].kind in kinds)
    if query.what == "items":
        rows = (row for row in rows if postings.rows[row].kind is not None)
    elif query.what == "turns" and postings.has_items:
        rows = (row for row in rows if postings.rows[row].kind is None)
    return list(rows)


def _best(postings: Postings, search: RecallSearch, lex: list[float], rows: list[int]) -> list[int]:
    """Return the best of *rows*, with the best statements among them."""
    if len(rows) <= CANDIDATES:
        return rows
    ordered = sorted(rows, key=lex.__getitem__, reverse=True)
    best = ordered[:CANDIDATES]
    if postings.noise and not search.noise:
        noise = postings.noise
        best = {*best, *islice((row for row in ordered if row not in noise), CANDIDATES)}
    return sorted(best)


def _dates(postings: Postings, question: ParsedQuery, search: RecallSearch) -> dict[int, float]:
    found: dict[int, float] = {}
    for day, rows in postings.days.items():
        if close := closeness(question.dates, day):
            found.update(dict.fromkeys(_allowed(postings, search, rows), close))
    return found


def _cosines(postings: Postings, search: RecallSearch) -> tuple[dict[int, float], list[int]]:
    """Return the cosines by row, and the rows with the largest."""
    known = postings.numbered(search.cosines or {})
    allowed = _allowed(postings, search, sorted(known))
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


def _sessions(
    postings: Postings, rows: list[int], followed: list[float]
) -> tuple[dict[int, float], frozenset[int]]:
    """Return the score of each session by the best three of its rows, 0 to 1.

    The other result are the sessions of several rows.
    """
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
    crowded = frozenset([place for place, each in by_session.items() if len(each) > 1])
    return {place: much / best for place, much in found.items()}, crowded


def _links(postings: Postings, rows: list[int], lex: list[float], best: float) -> dict[int, float]:
    """Return the scores of items that cite a turn, and of turns that an item cites."""
    found: dict[int, float] = {}
    for row in rows:
        linked = postings.citing.get(row) or postings.cited.get(row)
        if linked and (much := max(lex[each] for each in linked)):
            found[row] = much / best
    return found


def _spread(cosine: dict[int, float], rows: list[int]) -> dict[int, float]:
    """Scale the cosines of *rows* to 0 to 1, unless they hardly differ.

    The least becomes 0. They are in the order of *rows*; one without a cosine is left out.
    """
    there = [row for row in rows if row in cosine]
    found = list(map(cosine.__getitem__, there))
    least, most = min(found, default=0.0), max(found, default=0.0)
    span = most - least
    if span < NARROW:
        return dict(zip(there, (max(0.0, each) for each in found), strict=True))
    return dict(zip(there, [(each - least) / span for each in found], strict=True))


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
    body = row.body.split()
    matches = _matches(fits.words, number, body)
    theirs = len(question.named) == 1 and is_of(postings, number, question)
    near, close = fits.near.get(number, 0.0), fits.date.get(number, 0.0)
    among = postings.session[number]
    session = fits.session.get(among, 0.0)
    details: dict[str, object] = {
        "terms": [term for term, _ in matches],
        "related": [[term, found] for term, found in matches if term != found],
        "lexical": round(fits.lexical[place], 4),
        "coverage": round(coverage, 4),
        "cosine": round(fits.cosine.get(number, 0.0), 4) if fits.hybrid else None,
        "speaker": round(cues.speaker + cues.near_speaker * near, 4) if theirs else 0.0,
        "date": round(cues.date * close, 4),
        "session": round(cues.session * session, 4),
        "time": cues.when if question.when and row.time else 0.0,
        "first_person": cues.first_person if row.first_person or row.kind is not None else 0.0,
        "question": cues.question if row.question else 0.0,
        "links": round(cues.link * fits.link.get(number, 0.0), 4),
        "tier": row.tier,
        "also": 0,
        "mode": "hybrid" if fits.hybrid else "lexical",
    }
    reasons = _words(matches, body)
    if theirs:
        reasons.append(_said_by(postings, number, question))
    if close:
        reasons.append(_dated(question, close))
    if details["time"]:
        reasons.append("tells a time")
    if near >= _AMONG_MUCH:
        reasons.append("close in meaning")
    if number in fits.link:
        reasons.append("linked to what matches")
    if session >= _AMONG_MUCH and among in fits.crowded:
        reasons.append("from a session about it")
    details["text"] = "; ".join(reasons) or "beside what matches"
    return details


def _matches(words: Sequence[QueryWord], number: int, body: list[str]) -> list[tuple[str, str]]:
    """Return the terms that match a row with that *body*, and the stem found for each.

    They are in order of weight, the largest first.
    """
    found: list[tuple[float, str, str]] = []
    for word in words:
        stem, much = word.term, word.weights.get(number, 0.0)
        if word.related and stem not in body:
            for other, share, weights in word.related:
                if (lent := share * weights.get(number, 0.0)) > much:
                    stem, much = other, lent
        if much:
            found.append((much, word.term, stem))
    found.sort(key=itemgetter(0), reverse=True)
    return [(term, stem) for _, term, stem in found]


def _words(matches: list[tuple[str, str]], body: list[str]) -> list[str]:
    """Return which terms are in the row, and which only in the turns before it."""
    found: list[str] = []
    for verb, held in (("matches", True), ("follows", False)):
        here = [(term, stem) for term, stem in matches if (stem in body) is held]
        exact = [term for term, stem in here if term == stem]
        if exact:
            found.append(f'{verb} "{", ".join(exact)}"')
        found += [f'{verb} "{term}" by "{stem}"' for term, stem in here if term != stem]
    return found


def _said_by(postings: Postings, number: int, question: ParsedQuery) -> str:
    row = postings.rows[number]
    said = row.kind is None or question.named[0] in row.speakers
    return f"{'said by' if said else 'names'} {question.named[0]}"


def _dated(question: ParsedQuery, close: float) -> str:
    names = _DAYS if any(each.day for each in question.dates) else _MONTHS
    return names.get(close, "near the day asked about")
