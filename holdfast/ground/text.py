"""Sizes, hashes and limits of text, and text that is safe to print."""

import re
import unicodedata
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from holdfast.ground.errors import InvalidInput

INVISIBLE: Final = (
    "\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that render as nothing or change direction, for a regular expression's set.

Unicode's `Default_Ignorable_Code_Point` (DerivedCoreProperties.txt): direction marks, fillers,
variation selectors, tags. Words need the soft hyphen and the joiners U+200C and U+200D: not here.
"""

BLANK: Final = frozenset(
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
"""Letters and marks that render as nothing: fillers, joiners, variation selectors."""

CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""Control characters other than tab and newline, for a regular expression's set."""


def encoded(field: str, text: object) -> bytes:
    """Return *text* as UTF-8; InvalidInput for a lone surrogate or non-text."""
    if not isinstance(text, str):
        raise InvalidInput(field, "must be a string", given=text, next="Give it as text.")
    try:
        return text.encode()
    except UnicodeEncodeError:
        reason = "holds a lone surrogate, which is not text"
        raise InvalidInput(field, reason, next="Give whole characters.") from None


def whole(text: str) -> str:
    """Return *text* with pairs of surrogates joined, and each lone one as U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def sha256_hex(content: bytes) -> str:
    """Return the sha256 of *content* as 64 lowercase hex digits."""
    return sha256(content).hexdigest()


def is_nfc(text: str) -> bool:
    """Return whether *text* is in Normalization Form C."""
    return text.isascii() or unicodedata.is_normalized("NFC", text)


def to_nfc(text: str) -> str:
    """Return *text* in Normalization Form C."""
    return unicodedata.normalize("NFC", text)


def first_of_category(text: str, *categories: str) -> str | None:
    """Return the first character of *text* in a Unicode category, or None.

    *categories* are two-letter general categories.
    """
    if text.isascii() and text.isprintable():
        return None
    return next((char for char in text if unicodedata.category(char) in categories), None)


def nearest(wanted: str, names: Iterable[str]) -> str | None:
    """Return which of *names* is most like *wanted*, case aside; None of no names."""
    # Only an error needs it, and loading it takes longer than many calls.
    from difflib import get_close_matches

    folded = {name.casefold(): name for name in names}
    near = get_close_matches(wanted.casefold(), folded, n=1, cutoff=0.0)
    return folded[near[0]] if near else None


_TEXT = r"[^\x00-\x1f\x7f-\x9f]*"  # up to the next control character, so scanned only once
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, the cursor, modes
    rf"|(?:\x1b\]|\x9d){_TEXT}(?:\x07|\x1b\\|\x9c)"  # titles, links, the clipboard
    rf"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f]){_TEXT}(?:\x1b\\|\x9c)"  # strings to the device
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile(r"[\t\n\u2028\u2029]+")
_LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")


def printable(text: str) -> str:
    """Return *text* without escape sequences, control and direction characters.

    Line feeds and tabs stay, a lone surrogate becomes U+FFFD.
    """
    text = _CONTROLS.sub("", _SEQUENCES.sub("", text.replace("\r\n", "\n")))
    return _LONE_SURROGATES.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return *text* as `printable` does, its lines joined by spaces."""
    return _BREAKS.sub(" ", printable(text)).strip()
