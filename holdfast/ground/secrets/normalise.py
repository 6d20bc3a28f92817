"""Normalised text for the secret scanner and for orders to a machine.

Compatibility forms become plain, invisible characters are removed, and letters of other scripts
that look like ASCII become ASCII. Every position maps back to the original text.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import accumulate
from typing import Final, Literal, get_args

from holdfast.ground.text import BLANK

Kind = Literal[
    "armour",
    "vendor_key",
    "jwt",
    "url_credentials",
    "header",
    "card",
    "recovery_phrase",
    "one_time_code",
    "assignment",
    "prose",
    "entropy",
]
"""Kind of a secret by its shape; overlapping hits take the first of these."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

FILLER: Final = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Replaces each character of a redaction mark during a search.

It is no letter, no space and no part of a secret.
"""

_MARK = re.compile(rf"\[redacted (?:{'|'.join(KINDS)})\]")


def mark(kind: Kind) -> str:
    """Return the redaction mark for a secret of *kind*."""
    return f"[redacted {kind}]"


def without_marks(text: str) -> str:
    """Return *text* with its redaction marks overwritten by `FILLER`.

    The length stays the same, and no pattern matches the filler.
    """
    if "[redacted " not in text:
        return text
    return _MARK.sub(lambda found: FILLER * len(found[0]), text)


_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")

_MOST_FOLDED = 3
"""Most characters that one may fold to; more is a whole word, not part of a key."""

Span = tuple[int, int]
"""Start and end offsets."""


class Shadow:
    """Normalised text to match patterns against, as `text` and in `lower` case."""

    def __init__(self, text: str, folded: dict[str, str]) -> None:
        self._source, self._folded = text, folded
        self.text = text.translate(str.maketrans(folded)) if folded else text
        lower = self.text.lower()
        same = len(lower) == len(self.text)
        self.lower = lower if same else self.text.translate(_ASCII_LOWER)

    def origin(self, span: Span) -> Span:
        """Return the span of the source that *span* of the shadow covers."""
        if len(self.text) == len(self._source) and self._keeps_places:
            return span
        start, end = span
        return bisect_right(self._ends, start), bisect_right(self._ends, end - 1) + 1

    @cached_property
    def _keeps_places(self) -> bool:
        return all(len(short) == 1 for short in self._folded.values())

    @cached_property
    def _ends(self) -> list[int]:
        """End offset in the shadow of each character of the source."""
        long = {char: len(short) for char, short in self._folded.items()}
        return list(accumulate(long.get(char, 1) for char in self._source))


def shadows(text: str) -> Iterable[Shadow]:
    """Yield the shadow of *text*, and the unfolded text if folding may join words.

    After a folded letter or an invisible character, a key has a letter before it in the shadow
    only.
    """
    plain = without_marks(text)
    folded = {} if plain.isascii() else _foldings(plain)
    yield Shadow(plain, folded)
    if any(not short or any(map(str.isalnum, short)) for short in folded.values()):
        yield Shadow(plain, {})


def _foldings(text: str) -> dict[str, str]:
    """Return the replacement of each character of *text* that is folded."""
    pairs = ((char, _fold(char)) for char in set(text) if char > "\x7f")
    return {char: short for char, short in pairs if short != char}


@lru_cache(maxsize=8192)
def _fold(char: str) -> str:
    """Return the ASCII that *char* looks like, "" if invisible, else *char*."""
    if char in BLANK or unicodedata.category(char) == "Cf":
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
    """Return the ASCII look-alike of letters of other scripts and typographic marks.

    Each line of the file has the code point of one ASCII character, then of what looks like it.
    """
    text = files("holdfast.ground.secrets").joinpath("look_alikes.txt").read_text(encoding="utf-8")
    points = [[int(each, 16) for each in line.split()] for line in text.splitlines()]
    return {other: plain for plain, *others in points for other in others}
