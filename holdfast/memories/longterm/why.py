"""Why a row was recalled: what each cue added, and a sentence for a person."""

from holdfast.memories.longterm.recall.index import Postings
from holdfast.memories.longterm.recall.query import Question
from holdfast.memories.longterm.recall.score import Cues, Fits, is_of

_DAYS = {1.0: "on the day asked about", 0.6: "soon after the day asked about"}
_MONTHS = {1.0: "in the month asked about", 0.5: "in the month after the one asked about"}
_AMONG_MUCH = 0.5
"""Of the best session: so much of a session is a reason by itself."""


def why(
    postings: Postings, question: Question, fits: Fits, cues: Cues, *, place: int, coverage: float
) -> dict[str, object]:
    """Return why the row in *place* of *fits* answers *question*, numbers to 4 places.

    Each cue's number is what it added to the fit; but coverage and cosine are as they are, and
    cosine is None where nothing was compared by meaning.
    """
    number = fits.rows[place]
    row = postings.rows[number]
    weighed = ((postings.weights(term).get(number, 0.0), term) for term in question.terms)
    ordered = sorted(((much, term) for much, term in weighed if much), key=lambda each: -each[0])
    terms = [term for _, term in ordered]
    theirs = is_of(postings, number, question)
    session = fits.session.get(postings.session[number], 0.0)
    told: dict[str, object] = {
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
        "tells a time" if told["time"] else "",
        "close in meaning" if fits.near.get(number, 0.0) >= _AMONG_MUCH else "",
        "linked to what matches" if number in fits.link else "",
        "from a session about it" if session >= _AMONG_MUCH else "",
    ]
    told["text"] = "; ".join(filter(None, reasons)) or "beside what matches"
    return told


def _words(terms: list[str], body: list[str]) -> tuple[str, str]:
    """Return what of *terms* a row holds itself, and what was said just before it."""
    own = ", ".join(term for term in terms if term in body)
    lent = ", ".join(term for term in terms if term not in body)
    return (f'matches "{own}"' if own else "", f'follows "{lent}"' if lent else "")


def _said_by(postings: Postings, number: int, question: Question) -> str:
    row = postings.rows[number]
    said = row.kind is None or question.named[0] in row.speakers
    return f"{'said by' if said else 'names'} {question.named[0]}"


def _dated(question: Question, close: float) -> str:
    if not close:
        return ""
    names = _DAYS if any(asked.day for asked in question.dates) else _MONTHS
    return names.get(close, "near the day asked about")
