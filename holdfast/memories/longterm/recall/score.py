"""Score candidates by BM25 over body and context.

Measured with `holdfast eval locomo`; docs/recall.md has what each cue is worth. A pure function
of the postings, the question and the options.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.engines.base import Row
from holdfast.memories.longterm.recall.analyze import closeness
from holdfast.memories.longterm.recall.index import LENT, SHORT, Postings, is_machine
from holdfast.memories.longterm.recall.query import Question, calls
from holdfast.memories.longterm.records import LongTermOptions, RecallQuery

CANDIDATES, NEAREST = 400, 200
"""Largest number of candidates by words, and by vectors."""
COMMON, RARE_ENOUGH = 0.1, 3
"""In a large collection, terms of more than this share of rows are dropped, if so many remain."""
BEST_OF = 3
"""Rows that make up the score of a session."""
NARROW = 0.05
"""Cosines that span less than this are not scaled: the difference would be noise."""
_KINDS_OF_QUESTIONS = 64


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


def rare_terms(terms: Sequence[str], df: Callable[[str], int], rows: int) -> tuple[str, ...]:
    """Return *terms* without frequent ones, if enough rare ones remain."""
    rare = tuple(term for term in terms if df(term) <= COMMON * rows)
    return rare if len(rare) >= RARE_ENOUGH else tuple(terms)


def fit(postings: Postings, question: Question, search: RecallSearch, cues: Cues = CUES) -> Fits:
    """Score the rows that *search* allows against *question*."""
    lex, covered, touched = _lex(postings, question.terms)
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
    )  # fmt: skip


def _lex(postings: Postings, terms: Sequence[str]) -> tuple[list[float], list[float], set[int]]:
    """Return lexical scores, term weights and matched rows.

    Lists have one entry for each row and a 0 in place -1.
    """
    lex, covered = [0.0] * (len(postings) + 1), [0.0] * (len(postings) + 1)
    touched: set[int] = set()
    for term in terms:
        weights, telling = postings.weights(term), postings.telling(term)
        touched.update(weights)
        for row, weight in weights.items():
            lex[row] += weight
            covered[row] += telling
    return lex, covered, touched


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


def _dates(postings: Postings, question: Question, query: RecallQuery) -> dict[int, float]:
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


def _leanings(postings: Postings, question: Question, cues: Cues) -> list[float]:
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


def _leaning(postings: Postings, number: int, question: Question, cues: Cues) -> float:
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


def is_of(postings: Postings, number: int, question: Question) -> bool:
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
