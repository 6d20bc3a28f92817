"""Text as it is measured and limited: bytes of UTF-8, code points, normal form."""

import unicodedata
from hashlib import sha256

from holdfast.ground.errors import InvalidInput


def encoded(field: str, text: object) -> bytes:
    """Return *text* as UTF-8; InvalidInput for a lone surrogate, and for what is no text."""
    if not isinstance(text, str):
        raise InvalidInput(field, "must be a string", given=text, next="Give it as text.")
    try:
        return text.encode()
    except UnicodeEncodeError:
        reason = "holds a lone surrogate, which is not text"
        raise InvalidInput(field, reason, next="Give whole characters.") from None


def sha256_hex(content: bytes) -> str:
    """Return the sha256 of *content* as 64 lowercase hex digits."""
    return sha256(content).hexdigest()


def is_nfc(text: str) -> bool:
    """Tell whether *text* is in Normalization Form C."""
    return text.isascii() or unicodedata.is_normalized("NFC", text)


def to_nfc(text: str) -> str:
    """Return *text* in Normalization Form C."""
    return unicodedata.normalize("NFC", text)


def first_of_category(text: str, *categories: str) -> str | None:
    """Return the first character of *text* in one of the Unicode *categories*, or None."""
    if text.isascii() and text.isprintable():
        return None
    return next((char for char in text if unicodedata.category(char) in categories), None)


def within(field: str, text: object, *, most: int, least: int = 0, part: str = "") -> str:
    """Return *text* if it has *least* to *most* code points and is text; else InvalidInput.

    *part* says which part of the field it is, such as "a key ".
    """
    if not isinstance(text, str):
        raise InvalidInput(field, f"{part}must be a string", given=repr(text))
    if not least <= len(text) <= most:
        wanted = f"{least} to {most:,}" if least else f"at most {most:,}"
        reason = f"{part}must have {wanted} characters, has {len(text):,}"
        raise InvalidInput(field, reason, limit=most)
    encoded(field, text)
    if "\0" in text:
        raise InvalidInput(field, f"{part}must not hold the character U+0000")
    return text
