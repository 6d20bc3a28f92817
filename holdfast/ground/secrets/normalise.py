"""A text as a reader takes it: the shadow in which secrets are looked for.

Compatibility forms are made plain, characters that nobody sees are gone, letters of other scripts
that look like ASCII are ASCII, and every position can be traced back to the text.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import accumulate

from holdfast.ground.secrets.marks import without_marks

# Letters and marks that Unicode draws as nothing, beside those of category Cf.
_UNSEEN = frozenset(
    map(
        chr,
        [
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ],
    )
)
_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")

_MOST_FOLDED = 3
"""Characters that one may become; what stands for more is a whole word, and no part of a key."""

Span = tuple[int, int]
"""Where something begins and ends."""


class Shadow:
    """What patterns are matched against: `text`, and `lower`, the same in lower case."""

    def __init__(self, text: str, folded: dict[str, str]) -> None:
        self._source, self._folded = text, folded
        self.text = text.translate(str.maketrans(folded)) if folded else text
        lower = self.text.lower()
        same = len(lower) == len(self.text)
        self.lower = lower if same else self.text.translate(_ASCII_LOWER)

    def origin(self, span: Span) -> Span:
        """Return where in the source what *span* covers of the shadow stands."""
        if len(self.text) == len(self._source) and self._keeps_places:
            return span
        start, end = span
        return bisect_right(self._ends, start), bisect_right(self._ends, end - 1) + 1

    @cached_property
    def _keeps_places(self) -> bool:
        return all(len(short) == 1 for short in self._folded.values())

    @cached_property
    def _ends(self) -> list[int]:
        """Where in the shadow each character of the source has ended."""
        long = {char: len(short) for char, short in self._folded.items()}
        return list(accumulate(long.get(char, 1) for char in self._source))


def shadows(text: str) -> Iterable[Shadow]:
    """Return the shadow of *text*, and the text as it is where folding may have glued words.

    A key right after a letter that is folded, or after a character that is not seen, has a
    letter before it in the shadow alone.
    """
    plain = without_marks(text)
    folded = {} if plain.isascii() else _foldings(plain)
    yield Shadow(plain, folded)
    if any(not short or any(map(str.isalnum, short)) for short in folded.values()):
        yield Shadow(plain, {})


def _foldings(text: str) -> dict[str, str]:
    """Return what each character of *text* that is folded becomes."""
    pairs = ((char, _fold(char)) for char in set(text) if char > "\x7f")
    return {char: short for char, short in pairs if short != char}


@lru_cache(maxsize=8192)
def _fold(char: str) -> str:
    """Return what a reader takes *char* for; itself unless that is ASCII, or nothing."""
    if char in _UNSEEN or unicodedata.category(char) == "Cf":
        return ""
    short = unicodedata.normalize("NFKC", char).translate(_look_alikes())
    if len(short) <= _MOST_FOLDED and any("!" <= each <= "~" for each in short):
        return short
    if short.isspace():
        return " " if "\n" not in short else "\n"
    digit = unicodedata.decimal(char, None)
    return char if digit is None else str(digit)


@cache
def _look_alikes() -> dict[int, int]:
    """Return the ASCII that letters of other scripts, and the marks that writing aids put, are.

    Each line of the file has the code point of one ASCII character, then of what looks like it.
    """
    text = files("holdfast.ground.secrets").joinpath("look_alikes.txt").read_text(encoding="utf-8")
    points = [[int(each, 16) for each in line.split()] for line in text.splitlines()]
    return {other: plain for plain, *others in points for other in others}
