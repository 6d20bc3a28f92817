"""Find duplicates by hash, terms and vectors.

Two texts are duplicates if they have nearly the same terms in the same order, and the same numbers
and negations. A pure rule: "tabs over spaces" is not "spaces over tabs".
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from math import ceil

from msgspec import Struct

from holdfast.memories.longterm.recall.analyze import WORDS, analyze

_NUMBER_WORDS = {
    "zero": "0",
    "one": "1",
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
    "eleven": "11",
    "twelve": "12",
    "twenty": "20",
    "thirty": "30",
    "fifty": "50",
    "hundred": "100",
    "thousand": "1000",
}
"""Numbers in words."""
_NUMBER = re.compile(rf"\d+(?:[.,:]\d+)*|\b(?:{'|'.join(_NUMBER_WORDS)})\b")
_WORD = re.compile(r"[^\W_]+(?:'[a-z]+)?")
ANY, EVERY = "%", 2**31 - 1
BOTH_ENDS = 2
"""From this many terms on, those of one text alone may be at both of its ends."""
TINY = 1e-9

_LEFT_OUT = frozenset("PZ")
"""The first letters of the categories of punctuation and white space."""


class ComparedText(Struct, frozen=True, kw_only=True):
    """A text analysed for comparison."""

    terms: tuple[str, ...]
    fold: bytes
    """The same for texts that differ in case, punctuation and white space alone."""
    numbers: tuple[str, ...]
    negations: int


class Like(Struct, frozen=True, kw_only=True):
    """An item that may be a duplicate: its number, and its text as stored."""

    number: int
    id: str
    fold: bytes
    body: str
    text: str


def said(text: str) -> ComparedText:
    """Analyse *text* for comparison."""
    return ComparedText(
        terms=tuple(analyze(text)),
        fold=fold_of(text),
        numbers=numbers_of(text),
        negations=negations_of(text),
    )


def fold_of(text: str) -> bytes:
    """Return a hash of *text* without case, punctuation and white space."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    letters = "".join(char for char in plain if unicodedata.category(char)[0] not in _LEFT_OUT)
    return blake2b("".join(letters.split()).encode(), digest_size=8).digest()


def numbers_of(text: str) -> tuple[str, ...]:
    """Return the numbers in *text*, in order, those in words too."""
    found: list[str] = _NUMBER.findall(_plain(text))
    return tuple(_NUMBER_WORDS.get(each, each) for each in found)


def negations_of(text: str) -> int:
    """Return the number of negations in *text*."""
    words: list[str] = _WORD.findall(_plain(text))
    return sum(word in WORDS.negations or word.endswith("n't") for word in words)


class SimilarityBounds(Struct, frozen=True, kw_only=True):
    """Bounds that a similar text must meet: number of terms, and start and end.

    The two patterns are of SQL; one of them must match.
    """

    least: int
    most: int
    head: str = ANY
    tail: str = ANY


def bounds(terms: Sequence[str], least: float) -> SimilarityBounds:
    """Return bounds of all texts that are at least *least* similar to *terms*.

    If only a single term may differ, the texts begin or end with the same term.
    """
    count = len(terms)
    fewest = ceil(count * least / (2 - least) - TINY)
    most = int(count * (2 - least) / least + TINY)
    if not terms or (1 - least) * (count + most) >= BOTH_ENDS:
        return SimilarityBounds(least=max(1, fewest), most=most)
    return SimilarityBounds(
        least=max(1, fewest), most=most, head=f"{terms[0]}%", tail=f"%{terms[-1]}"
    )


def similarity(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the share of terms that both have in the same order, 0 to 1.

    It is 0 if neither has any.
    """
    together = len(one) + len(other)
    return 2 * _common(one, other) / together if together else 0.0


def twin(
    new: ComparedText,
    others: Iterable[Like],
    least: float,
    cosines: Mapping[str, float] | None = None,
) -> Like | None:
    """Return the duplicate of *new* among *others*, or None.

    None also if *least* is 0.

    With *cosines*, by id, texts are compared by those instead of by their terms.
    """
    if not least:
        return None
    known = list(others)
    for each in known:
        if each.fold == new.fold:
            return each
    near = _by_terms(new, least)
    shares = [
        (near(each) if cosines is None else cosines.get(each.id, 0.0), each) for each in known
    ]
    enough = sorted(
        (pair for pair in shares if pair[0] >= least), key=lambda pair: (-pair[0], pair[1].number)
    )
    return next((each for _, each in enough if _guarded(new, each.text)), None)


def _by_terms(new: ComparedText, least: float) -> Callable[[Like], float]:
    wanted = frozenset(new.terms)

    def share(each: Like) -> float:
        terms = each.body.split()
        # Most have too few terms in common, in any order.
        shared = sum(term in wanted for term in terms)
        if 2 * shared < least * (len(terms) + len(new.terms)):
            return 0.0
        return similarity(new.terms, terms)

    return share


def _guarded(new: ComparedText, text: str) -> bool:
    return new.numbers == numbers_of(text) and new.negations == negations_of(text)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower().replace("\u2019", "'")


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    A bit for each term of *one*; Hyyrö's form of the bit-parallel method.
    """
    places: dict[str, int] = {}
    for place, term in enumerate(one):
        places[term] = places.get(term, 0) | 1 << place
    whole = (1 << len(one)) - 1
    row = whole
    for term in other:
        matches = row & places.get(term, 0)
        row = (row + matches | row - matches) & whole
    return len(one) - row.bit_count()
