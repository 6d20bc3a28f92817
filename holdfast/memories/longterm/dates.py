"""Dates that a query names, and how close a day is to one."""

import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache

from msgspec import Struct

from holdfast.memories.longterm.flags import MONTHS

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
"""How close a day is that is so many days after the one asked about."""


class AskedDate(Struct, frozen=True, kw_only=True):
    """A day or a month, of one year or of any."""

    year: int | None
    month: int
    day: int | None


def dates_in(text: str) -> tuple[AskedDate, ...]:
    """Return the dates that *text* names; a month alone only where it has its capital."""
    found = (_asked(match) for match in _DATE.finditer(text))
    return tuple(dict.fromkeys(each for each in found if each))


def _asked(match: re.Match[str]) -> AskedDate | None:
    parts = {name[2:] if name[1] == "_" else name[4:]: value for name, value in _given(match)}
    month = parts["month"]
    number = int(month) if month.isdigit() else _NUMBERS[month.lower()]
    day, year = (int(parts[name]) if name in parts else None for name in ("day", "year"))
    try:
        date(year or 2000, number, day or 1)
    except ValueError:
        return None
    return AskedDate(year=year, month=number, day=day)


def _given(match: re.Match[str]) -> Iterable[tuple[str, str]]:
    return ((name, value) for name, value in match.groupdict().items() if value is not None)


def closeness(asked: Iterable[AskedDate], day: int) -> float:
    """Return how close *day*, counted from 1970, is to the nearest of the dates *asked*: 0 to 1.

    What happened on a day is mostly told on it or soon after, seldom before.
    """
    there = _day(day)
    return max((_closeness(each, there) for each in asked), default=0.0)


def _closeness(asked: AskedDate, day: date) -> float:
    if asked.day is None:
        return _in_month(asked, day)
    try:
        wanted = date(asked.year or day.year, asked.month, asked.day)
    except ValueError:
        return 0.0
    after = (day - wanted).days
    return next((close for span, close in _NEARNESS if after in span), 0.0)


def _in_month(asked: AskedDate, day: date) -> float:
    after = day.month - asked.month
    after = after % 12 if asked.year is None else after + 12 * (day.year - asked.year)
    return {0: 1.0, 1: 0.5}.get(after, 0.0)


@lru_cache(4_096)
def _day(day: int) -> date:
    return date.fromordinal(EPOCH_ORDINAL + day)
