"""Find duplicates by hash, terms and vectors.

Two texts are duplicates if they have nearly the same terms in the same order, and the same numbers
and negations. A pure rule: "tabs over spaces" is not "spaces over tabs".
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import zip_longest
from math import ceil

from msgspec import Struct

from holdfast.memories.longterm.recall.analyze import WORDS, analyze
from holdfast.memories.longterm.vectors.table import among

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
ANY, EVERY = "", 2**31 - 1
"""What every body holds, and more terms than any has."""
SOUGHT = 4
"""Terms of a text, one of which its duplicates hold, that a statement looks for."""
TINY = 1e-9

_LEFT_OUT = frozenset("PZ")
"""The first letters of the categories of punctuation and white space."""
_LOWER = bytes(range(256)).lower()
_MARKS = bytes(
    code
    for code in range(128)
    if unicodedata.category(chr(code))[0] in _LEFT_OUT or chr(code).isspace()
)
"""What `fold_of` leaves out of a text that is ASCII."""


class ComparedText(Struct, frozen=True, kw_only=True, dict=True):
    """A text analysed for comparison."""

    text: str
    terms: tuple[str, ...]
    fold: bytes
    """The same for texts that differ in case, punctuation and white space alone."""

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """The numbers in it, in order, those in words too."""
        return numbers_of(self.text)

    @cached_property
    def negations(self) -> int:
        """How many negations it has."""
        return negations_of(self.text)


class Like(Struct, frozen=True, kw_only=True):
    """An item that may be a duplicate: its number, and its text as stored."""

    number: int
    id: str
    fold: bytes
    body: str
    text: str


def said(text: str) -> ComparedText:
    """Analyse *text* for comparison."""
    return ComparedText(text=text, terms=tuple(analyze(text)), fold=fold_of(text))


def fold_of(text: str) -> bytes:
    """Return a hash of *text* without case, punctuation and white space."""
    if text.isascii():
        return blake2b(text.encode().translate(_LOWER, _MARKS), digest_size=8).digest()
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
    """Bounds that a similar text must meet: number of terms, and what they hold.

    Its body holds a term of each of the two groups `sought`, which have at most `SOUGHT` terms.
    """

    least: int
    most: int
    sought: tuple[tuple[str, ...], tuple[str, ...]] = ((ANY,), (ANY,))

    @property
    def params(self) -> dict[str, int | str | None]:
        """The parameters of a statement."""
        named: dict[str, int | str | None] = {"least": self.least, "most": self.most}
        for group, names in zip(self.sought, _NAMES, strict=True):
            named.update(zip_longest(names, group))
        return named


_NAMES = (("first", "second", "third", "fourth"), ("fifth", "sixth", "seventh", "eighth"))
"""Names of the terms of both groups in a statement."""


def bounds(terms: Sequence[str], least: float) -> SimilarityBounds:
    """Return bounds of all texts that are at least *least* similar to *terms*.

    Such a text shares a number of them, so it holds one of any that are one more than the others.
    The longest are sought, as few texts hold them; if that many are not there, or are more than
    `SOUGHT`, any text may be similar.
    """
    count = len(terms)
    fewest = max(1, ceil(count * least / (2 - least) - TINY))
    most = int(count * (2 - least) / least + TINY)
    shared = ceil(least * (count + fewest) / 2 - TINY)
    needed = count - shared + 1
    longest = sorted(set(terms), key=lambda term: (-len(term), term))
    if not 1 <= needed <= min(SOUGHT, len(longest)):
        return SimilarityBounds(least=fewest, most=most)
    others = longest[needed : 2 * needed]
    second = tuple(others) if len(others) == needed else (ANY,)
    return SimilarityBounds(least=fewest, most=most, sought=(tuple(longest[:needed]), second))


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
    if cosines is None:
        near = _by_terms(new, least)
        shares = [(near(each), each) for each in known]
    else:
        cosines = among(cosines, [each.id for each in known])
        shares = [(cosines.get(each.id, 0.0), each) for each in known]
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
    if text.isascii():
        return text.lower()
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
