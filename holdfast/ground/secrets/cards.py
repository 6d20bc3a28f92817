"""Numbers of payment cards: an issuer's prefix, a length that goes with it, and the check digit."""

import re
from collections.abc import Iterable, Iterator

from holdfast.ground.secrets.normalise import Shadow, Span

_RUN = re.compile(r"(?<![A-Za-z0-9+])[0-9](?:[0-9]|[ .-]{1,2}(?=[0-9])){12,255}(?![A-Za-z0-9])")
_GROUP = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"[0-9]{1,15}\.[0-9]+")
_PREFIXES = (
    ("4", (13, 16, 19)),  # Visa
    ("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720", (16,)),  # Mastercard
    ("3[47]", (15,)),  # American Express
    ("6011|65|64[4-9]", (16, 17, 18, 19)),  # Discover
    ("35(?:2[89]|[3-8])", (16, 17, 18, 19)),  # JCB
    ("30[0-5]|309|36|3[89]", (14, 15, 16, 17, 18, 19)),  # Diners Club
    ("62|81", (16, 17, 18, 19)),  # UnionPay
    ("5018|5020|5038|5893|6304|6759|676[1-3]", (13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("60|82|508", (16,)),  # RuPay
    ("220[0-4]", (16, 17, 18, 19)),  # Mir
)
_LEAST, _MOST_DIGITS = 13, 19
_LEAST_GROUP = 3
_ISSUED = {
    length: re.compile("|".join(prefix for prefix, lengths in _PREFIXES if length in lengths))
    for length in range(_LEAST, _MOST_DIGITS + 1)
}
_DOUBLED = str.maketrans("0123456789", "0246813579")


def card_spans(shadow: Shadow) -> Iterable[Span]:
    """Give where numbers of cards stand."""
    for run in _RUN.finditer(shadow.text):
        if not _DECIMAL.fullmatch(run[0]):
            yield from _cards(run)


def _cards(run: "re.Match[str]") -> Iterator[Span]:
    """Give the cards among the groups of digits of *run*.

    A group has three digits or more, but for the last; or the whole run is one number, digit
    by digit: so few sets of groups are tried.
    """
    groups = [(found.start(), found[0]) for found in _GROUP.finditer(run[0])]
    whole = "".join(digits for _, digits in groups)
    if len(whole) <= _MOST_DIGITS and is_card(whole):
        yield run.span()
        return
    if all(len(digits) < _LEAST_GROUP for _, digits in groups):
        return
    first = 0
    while first < len(groups):
        last = _last_of_card(groups, first)
        if last is None:
            first += 1
            continue
        start, (place, digits) = groups[first][0], groups[last]
        yield run.start() + start, run.start() + place + len(digits)
        first = last + 1


def _last_of_card(groups: list[tuple[int, str]], first: int) -> int | None:
    """Return the last group of the card that begins with group *first*, or None."""
    digits = ""
    for last in range(first, len(groups)):
        digits += groups[last][1]
        if len(digits) > _MOST_DIGITS:
            return None
        if len(digits) >= _LEAST and is_card(digits):
            return last
        if len(groups[last][1]) < _LEAST_GROUP:
            return None
    return None


def is_card(digits: str) -> bool:
    """Tell whether *digits* are the number of a card some issuer may have given."""
    issued = _ISSUED.get(len(digits))
    return issued is not None and issued.match(digits) is not None and _luhn(digits)


def _luhn(digits: str) -> bool:
    """Tell whether the last digit checks the others (ISO/IEC 7812-1, annex B)."""
    doubled = digits[-2::-2].translate(_DOUBLED)
    return (sum(map(int, digits[-1::-2])) + sum(map(int, doubled))) % 10 == 0
