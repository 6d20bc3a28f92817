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
from holdfast.memories.longterm.records import RecallOptions

CANDIDATES, NEAREST = 400, 200
"""Rows that are looked at closely for their words, and for their vectors."""
COMMON, RARE_ENOUGH = 0.1, 3
"""In a large collection terms of more rows than this share go, if so many rarer ones remain."""
BEST_OF = 3
"""Rows by which a session counts."""
NARROW = 0.05
"""Cosines that span less than this are not spread out: the difference would be noise."""
_KINDS_OF_QUESTIONS = 64


class Cues(Struct, frozen=True, kw_only=True):
    """What each cue adds at most to the 1 of the best words; *followed* to those of a turn."""

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


class Fits(Struct, frozen=True, kw_only=True):
    """The rows that may be recalled, in order of recording, and how well each answers.

    *fit* and *lexical* stand beside *rows*. What other cues found is by row, and for *session*
    by session; absent for nothing. All but *fit* and *cosine* go up to 1. *told* has of every row
    how much the terms of the query tell that it is about.
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
    """Return *terms* without those that many rows hold, where enough rarer ones remain."""
    rare = tuple(term for term in terms if df(term) <= COMMON * rows)
    return rare if len(rare) >= RARE_ENOUGH else tuple(terms)


def fit(
    postings: Postings,
    question: Question,
    wanted: RecallOptions,
    cosines: Mapping[str, float] | None = None,
    cues: Cues = CUES,
) -> Fits:
    """Return how well each row answers *question* that *wanted* allows.

    *cosines* are those of rows that have a vector, by id; None where nothing is compared by
    meaning.
    """
    lex, told, touched = _lex(postings, question.terms)
    worded = _best(lex, _allowed(postings, wanted, sorted(touched)))
    date = _dates(postings, question, wanted)
    cosine, nearest = _cosines(postings, wanted, cosines)
    rows = sorted({*worded, *date, *nearest}) if date or nearest else worded
    heard = _heard(postings, lex, worded, rows, cues)
    best = max(heard, default=0.0) or 1.0
    session = _sessions(postings, rows, heard)
    link = _links(postings, rows, lex, best)
    near = _spread({row: cosine[row] for row in rows if row in cosine})
    places, lean = postings.session, _leanings(postings, question, cues)
    usual = {each: cues.session * share for each, share in session.items()}
    lexical = [each / best for each in heard]
    fits = [
        share + usual[places[row]] + lean[row] for row, share in zip(rows, lexical, strict=True)
    ]
    for weight, found in ((cues.date, date), (cues.link, link), (wanted.cosine_weight, near)):
        if found:
            pairs = zip(rows, fits, strict=True)
            fits = [each + weight * found.get(row, 0.0) for row, each in pairs]
    return Fits(
        rows=rows, fit=fits, told=told, lexical=lexical, session=session,
        date=date, link=link, near=near, cosine=cosine, hybrid=cosines is not None,
    )  # fmt: skip


def _lex(postings: Postings, terms: Sequence[str]) -> tuple[list[float], list[float], set[int]]:
    """Return how much each row is about *terms*, what they tell, and the rows; 0 in place -1."""
    lex, told = [0.0] * (len(postings) + 1), [0.0] * (len(postings) + 1)
    touched: set[int] = set()
    for term in terms:
        weights, telling = postings.weights(term), postings.telling(term)
        touched.update(weights)
        for row, weight in weights.items():
            lex[row] += weight
            told[row] += telling
    return lex, told, touched


def _allowed(postings: Postings, wanted: RecallOptions, rows: Iterable[int]) -> list[int]:
    """Return those of *rows* that may be recalled."""
    if postings.has_context:
        rows = (row for row in rows if not postings.rows[row].context)
    if wanted.kinds is not None:
        kinds = wanted.kinds
        rows = (row for row in rows if postings.rows[row].kind in kinds)
    if wanted.what == "items":
        rows = (row for row in rows if postings.rows[row].kind is not None)
    elif wanted.what == "turns" and postings.has_items:
        rows = (row for row in rows if postings.rows[row].kind is None)
    return list(rows)


def _best(lex: list[float], rows: list[int]) -> list[int]:
    if len(rows) <= CANDIDATES:
        return rows
    return sorted(sorted(rows, key=lex.__getitem__, reverse=True)[:CANDIDATES])


def _dates(postings: Postings, question: Question, wanted: RecallOptions) -> dict[int, float]:
    if not question.dates:
        return {}
    found: dict[int, float] = {}
    for day, rows in postings.days.items():
        if close := closeness(question.dates, day):
            found.update(dict.fromkeys(_allowed(postings, wanted, rows), close))
    return found


def _cosines(
    postings: Postings, wanted: RecallOptions, cosines: Mapping[str, float] | None
) -> tuple[dict[int, float], list[int]]:
    """Return the cosines by row, and the rows of the largest."""
    if not cosines:
        return {}, []
    known = postings.numbered(cosines)
    allowed = _allowed(postings, wanted, sorted(known))
    return known, sorted(allowed, key=known.__getitem__, reverse=True)[:NEAREST]


def _heard(
    postings: Postings, lex: list[float], worded: list[int], rows: list[int], cues: Cues
) -> list[float]:
    """Return how much each of *rows* is about the question with what was answered to it."""
    kept = [0.0] * len(lex)
    for row in worded:
        kept[row] = lex[row]
    first, second, _ = postings.next
    one, two = cues.followed
    return [kept[row] + one * kept[first[row]] + two * kept[second[row]] for row in rows]


def _sessions(postings: Postings, rows: list[int], heard: list[float]) -> dict[int, float]:
    """Return how much each sitting is about the question, by the best three of its rows."""
    by_session: defaultdict[int, list[float]] = defaultdict(list)
    for place, much in zip(map(postings.session.__getitem__, rows), heard, strict=True):
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
    """Return how much the items that cite a turn, or the turns that an item cites, are about it."""
    if not postings.citing:
        return {}
    found: dict[int, float] = {}
    for row in rows:
        linked = postings.citing.get(row) or postings.cited.get(row)
        if linked and (much := max(lex[each] for each in linked)):
            found[row] = much / best
    return found


def _spread(cosine: dict[int, float]) -> dict[int, float]:
    """Return cosines from 0 for the least to 1 for the largest, unless they hardly differ."""
    if not cosine:
        return {}
    least, most = min(cosine.values()), max(cosine.values())
    if most - least < NARROW:
        return {row: max(0.0, each) for row, each in cosine.items()}
    return {row: (each - least) / (most - least) for row, each in cosine.items()}


def _leanings(postings: Postings, question: Question, cues: Cues) -> list[float]:
    """Return what each row has of its own for a question of this kind, whatever its words."""
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
    """Tell whether the one participant that *question* names said a row, or is named in an item."""
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
    """The mean length of a body, and of a body with what its window lends it."""

    length: float
    window: float


def means_of(rows: Sequence[Row]) -> FieldLengths:
    """Return the means of *rows*, which stand in order of recording.

    Each is whether it is a turn, its length, its thread, its session, its role and its speaker.
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
