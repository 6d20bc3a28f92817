"""Tokens, flags and dates of a text.

English words are stemmed; a language without spaces is split into characters and their pairs;
any other word stays whole. `VERSION` is stored with each collection: terms of two versions must
not be compared.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import date
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from threading import local
from typing import Protocol, cast

import msgspec
import Stemmer
from msgspec import Struct

VERSION = 1
"""Raised with every change of the terms of a text."""


class Words(msgspec.Struct, frozen=True):
    """Lists of stop words, irregular forms and negations."""

    stop: frozenset[str]
    irregular: dict[str, str]
    negations: frozenset[str]


WORDS = msgspec.json.decode(
    files("holdfast.memories.longterm").joinpath("words.json").read_bytes(), type=Words
)


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  (its own name)


_TOKEN = re.compile(r"[^\W_]+(?:'[a-z]+)?")
LONGEST = 64
"""Characters of a word that are indexed; the rest is cut off."""
UNSPACED = (
    "\u0e00-\u0e7f\u1100-\u11ff\u3005\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters of Thai, Hangul, Kana and Han, for a set of a pattern: words have no spaces there."""
_UNSPACED = re.compile(f"[{UNSPACED}]+")
_stemmers = local()


def analyze(text: str) -> list[str]:
    """Return the terms of *text* in order, each as often as it occurs.

    No term contains white space.
    """
    if text.isascii():
        found = [_term(token[:LONGEST]) for token in _TOKEN.findall(text.lower())]
    else:
        found = [term for token in _TOKEN.findall(plain(text).lower()) for term in _terms(token)]
    return [term for term in found if term]


def plain(text: str) -> str:
    """Normalise *text* for matching: NFKC, with a plain apostrophe."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).replace("\u2019", "'")


def _terms(token: str) -> Iterator[str]:
    """Yield the terms of one token of any script."""
    if token.isascii():
        yield _term(token[:LONGEST])
        return
    start = 0
    for run in _UNSPACED.finditer(token):
        yield _word(token[start : run.start()])
        yield from run[0]
        yield from map("".join, zip(run[0], run[0][1:], strict=False))
        start = run.end()
    yield _word(token[start:])


def _word(piece: str) -> str:
    """Return the term of a piece of a token in a script with spaces."""
    piece = piece[:LONGEST]
    return _term(piece) if piece.isascii() else piece.removesuffix("'s").partition("'")[0]


@lru_cache(16_384)
def _term(token: str) -> str:
    """Return the term of an ASCII token; "" for a stop word."""
    if token in WORDS.stop:
        return ""
    word = token.removesuffix("'s").partition("'")[0]
    if not word or word in WORDS.stop:
        return ""
    return _stemmer().stemWord(WORDS.irregular.get(word, word))


def _stemmer() -> _Stemmer:
    # A stemmer must not be used by two threads.
    stemmer: _Stemmer | None = getattr(_stemmers, "english", None)
    if stemmer is None:
        stemmer = _stemmers.english = cast("_Stemmer", Stemmer.Stemmer("english"))  # pyright: ignore[reportUnknownMemberType] (it has no types)
    return stemmer


MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip

_FIRST_PERSON = re.compile(r"\b(i|i'm|i've|my|we|our|me)\b")
_TIME = re.compile(
    r"\b(yesterday|today|tonight|tomorrow"
    r"|last (?:week|month|year|night|summer|winter|spring|fall|weekend"
    r"|(?:mon|tue|wed|thu|fri|sat|sun)\w*)"
    r"|next \w+|this (?:week|month|year|weekend|morning)|ago"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    rf"|{'|'.join(MONTHS)}|since|recently|weekend|just|in \d{{4}}|\d{{4}})\b"
)


class Flags(Struct, frozen=True):
    """Properties of a text that its terms do not show."""

    question: bool
    first_person: bool
    time: bool


def flags_of(text: str, caption: str | None = None) -> Flags:
    """Return the flags of *text*, with the *caption* of the image that came with it."""
    whole = " ".join(filter(None, chain((text,), (caption,)))).lower().replace("\u2019", "'")
    return Flags(
        question=text.rstrip().endswith(("?", "\uff1f")),
        first_person=_FIRST_PERSON.search(whole) is not None,
        time=_TIME.search(whole) is not None,
    )


EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

_NUMBERS = {
    written: number
    for number, name in enumerate(MONTHS, 1)
    for written in (name, name[:3], *(["sept"] if name == "september" else []))
}
_ANY = "|".join(sorted(_NUMBERS, key=len, reverse=True))
_WHOLE = "|".join(name.title() for name in MONTHS)
_DATE = re.compile(
    r"\b(?P<iso_year>\d{4})-(?P<iso_month>\d{1,2})-(?P<iso_day>\d{1,2})\b"
    rf"|\b(?P<a_day>\d{{1,2}})(?i:st|nd|rd|th)?(?i:\s+of)?\s+(?P<a_month>(?i:{_ANY}))\b"
    r"(?:,?\s+(?P<a_year>\d{4})\b)?"
    rf"|\b(?P<b_month>(?i:{_ANY}))\.?\s+(?P<b_day>\d{{1,2}})(?i:st|nd|rd|th)?\b"
    r"(?:,?\s+(?P<b_year>\d{4})\b)?"
    r"|(?<!\d)(?:(?P<d_year>\d{4})\s?[\u5e74\ub144]\s?)?(?P<d_month>\d{1,2})\s?[\u6708\uc6d4]"
    r"(?:\s?(?P<d_day>\d{1,2})\s?[\u65e5\u53f7\u865f\uc77c])?"
    rf"|\b(?P<c_month>{_WHOLE})\b(?!\s+(?:I|you|we|they|he|she|it)\b)"
    r"(?:(?:,|\s+of)?\s+(?P<c_year>\d{4})\b)?"
)

_NEARNESS = ((range(-1, 2), 1.0), (range(11), 0.6), (range(-7, 31), 0.2))
"""Closeness of a day by the number of days after the query's date."""


class QueryDate(Struct, frozen=True, kw_only=True):
    """A day or a month, of one year or of any."""

    year: int | None
    month: int
    day: int | None


def dates_in(text: str) -> tuple[QueryDate, ...]:
    """Return the dates that *text* names; a month alone only if it is capitalised."""
    found = [_date_of(match) for match in _DATE.finditer(text)]
    return tuple(dict.fromkeys([each for each in found if each]))


def _date_of(match: re.Match[str]) -> QueryDate | None:
    parts = {name[2:] if name[1] == "_" else name[4:]: value for name, value in _given(match)}
    month = parts["month"]
    number = int(month) if month.isdigit() else _NUMBERS[month.lower()]
    day, year = (int(parts[name]) if name in parts else None for name in ("day", "year"))
    try:
        date(year or 2000, number, day or 1)
    except ValueError:
        return None
    return QueryDate(year=year, month=number, day=day)


def _given(match: re.Match[str]) -> Iterable[tuple[str, str]]:
    return ((name, value) for name, value in match.groupdict().items() if value is not None)


def closeness(dates: Iterable[QueryDate], day: int) -> float:
    """Return how close *day* is to the nearest of *dates*, 0 to 1.

    *day* is counted from 1970. People mostly mention an event on its day or soon after, seldom
    before.
    """
    there = _day(day)
    return max((_closeness(each, there) for each in dates), default=0.0)


def _closeness(query_date: QueryDate, day: date) -> float:
    if query_date.day is None:
        return _in_month(query_date, day)
    try:
        wanted = date(query_date.year or day.year, query_date.month, query_date.day)
    except ValueError:
        return 0.0
    after = (day - wanted).days
    return next((close for span, close in _NEARNESS if after in span), 0.0)


def _in_month(query_date: QueryDate, day: date) -> float:
    after = day.month - query_date.month
    after = after % 12 if query_date.year is None else after + 12 * (day.year - query_date.year)
    return {0: 1.0, 1: 0.5}.get(after, 0.0)


@lru_cache(4_096)
def _day(day: int) -> date:
    return date.fromordinal(EPOCH_ORDINAL + day)
