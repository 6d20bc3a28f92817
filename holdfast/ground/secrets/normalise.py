"""Normalised text for the secret scanner, and the list of harmless values.

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


LONGEST: Final = 4096
"""Most characters of a value that are examined."""

_TEMPLATE = re.compile(
    r"\$\{[^{}]{0,80}\}|\{\{[^{}]{0,80}\}\}|\$\([^()]{0,80}\)|<%[^%]{0,80}%>|%[A-Z_]{2,60}%"
    r"|\$[A-Z_][A-Z0-9_]{0,60}(?![A-Za-z0-9])|\$(?:password|passwd|pass|secret|token|key)(?!\w)"
    r"|#?\{[A-Za-z_][\w.]{0,60}\}|<[^<>]{1,80}>"
)
_PLACEHOLDER = re.compile(
    r"(?:[x*.#_\-]{3,256}|(?:your|insert|enter|replace|paste|put)[-_][a-z_-]{2,60}"
    r"|(?-i:[A-Z]{2,20}(?:_[A-Z]{2,20}){0,4}_(?:KEY|TOKEN|SECRET|PASSWORD|PASS))"
    r"|[\w-]{0,12}(?:\.{3,8}|…)|[a-z_-]{2,60}[-_]here|\[[a-z][^\[\]]{0,60}\]?)\Z"
    # Code that reads the secret from the environment, settings or input.
    r"|(?:os\.)?(?:environ\b|getenv\s?\()|process\.env\b|import\.meta\.env\b|ENV(?:\[|\.fetch)"
    r"|System\.getenv|Deno\.env|(?:std::)?env::var|getpass\b|(?:raw_)?input\(|prompt\("
    r"|(?:self|this|args|settings|config|cfg|options|opts|params|request|req|env|secrets)"
    r"\.[A-Za-z_.\[\]\"'()]{1,100}\Z",
    re.IGNORECASE,
)
_OPENING = re.compile(rf"[$<{{%{FILLER}]")
_SHOWN: Final = 256
"""Characters of the longest placeholder."""

_WORDY = re.compile(r"[^\W_]")
_NO_VALUE = (
    "true false none null nil undefined nan string str int integer bool boolean bytes number"
    " secretstr optional required empty blank unset missing redacted hidden masked disabled"
    " enabled mandatory unknown invalid incorrect"
)
_NOTHING = frozenset(_NO_VALUE.split())
_MEASURE = (
    r"[0-9]{1,6}+[-\s]{0,2}+(?:characters?|chars?|bytes?|bits?|digits?|words?|letters?|tokens?|days?"
    r"|hours?|hrs?|minutes?|mins?|seconds?|secs?|ms|weeks?|months?|years?|times?|long|or more|and"
    r" up|percent|%|st|nd|rd|th|kb|mb|gb|mm|cm|km|attempts?|people|users?)(?![a-z0-9])"
)
_SIZE = re.compile(_MEASURE, re.IGNORECASE)
_TECHNICAL = re.compile(
    r"(?:base(?:16|32|58|64|85)|sha-?(?:[123]|224|256|384|512)|aes-?(?:128|192|256)|utf-?(?:8|16|32)"
    r"|md[45]|oauth-?[12](?:\.0)?|rsa-?[0-9]{3,4}|(?:ed|x)25519|(?:hs|rs|es|ps)(?:256|384|512)"
    r"|x\.?509|ipv?[46]|https?/[123]|argon2(?:id|i|d)?|pbkdf2|blake[23][bs]?|ripemd160|crc32|k8s"
    r"|i18n|l10n|s3|ec2|[12]password|auth0|b2b|p2p|web[23]|[23]fa|uuidv?[1-8]|python[23]|py[23]"
    r"|gpt-?[0-9][a-z]?|secp256[kr]1|p-?256|rfc-?[0-9]{3,5}|iso-?[0-9]{3,5})"
    r"(?:[-_]?(?:url|hex|bit|encoded|hashed|encrypted|based|signed|encryption|hash|sum)){0,2}"
    # Dates, times and versions.
    r"|(?:19|20)[0-9]{2}[-/.][0-9]{1,2}(?:[-/.][0-9]{1,2}(?:t[0-9:.]{4,16}z?)?)?"
    r"|[0-9]{1,2}[-/.][0-9]{1,2}[-/.](?:19|20)?[0-9]{2}|[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:[ap]m)?"
    r"|v?[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}(?:[-+.]?[a-z]{1,6}[0-9]{0,4})?"
    rf"|{_MEASURE}",
    re.IGNORECASE,
)
_DIGIT, _LETTER = re.compile(r"[0-9]"), re.compile(r"[A-Za-z]")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")


def is_innocent(value: str) -> bool:
    """Return whether *value* names, hides or fetches a secret and so holds none."""
    if len(value) > _SHOWN:
        return False
    rest = value
    if _OPENING.search(rest):
        rest = _TEMPLATE.sub("", rest).replace(FILLER, "").replace("\\n", "")
    if not _WORDY.search(rest):
        return True
    return rest.lower() in _NOTHING or _PLACEHOLDER.match(rest) is not None


def is_opaque(value: str) -> bool:
    """Return whether *value* has digits among letters, or capitals within words."""
    if _HUMP.search(value):
        return True
    return bool(_DIGIT.search(value) and _LETTER.search(value))


def is_measure(text: str, start: int) -> bool:
    """Return whether a number at *start* of *text* is a quantity with a unit."""
    return _SIZE.match(text, start) is not None


def is_technical(value: str) -> bool:
    """Return whether *value* is the name of a method, a version, a date or a time."""
    return _TECHNICAL.fullmatch(value) is not None
