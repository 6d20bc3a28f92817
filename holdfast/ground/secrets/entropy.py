"""Tokens too random to be a name, which nothing else tells to be a key."""

import re
from collections import Counter
from collections.abc import Iterable
from math import log2
from typing import Final

from holdfast.ground.secrets.normalise import Shadow, Span

LEAST_BITS: Final = 4.2
"""Shannon entropy of a character, at least: names of many words stay below it, mostly."""

_LEAST_PIECE: Final = 4.0
"""Characters of a word within a name, on average; a random token changes its case sooner."""

_RUN = re.compile(r"(?<![A-Za-z0-9_+/=-])[A-Za-z0-9_+/=-]{32,4096}")
_ENTROPY_CLASSES = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[0-9]"))
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_DIGEST = re.compile(r"[0-9a-fA-F-]+|(?:sha(?:1|224|256|384|512)|md5)[-=].+")
_FILE = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}(?![A-Za-z0-9])")
_CONTEXT = 256


def entropy_spans(shadow: Shadow) -> Iterable[Span]:
    """Give where random tokens stand."""
    text = shadow.text
    for found in _RUN.finditer(text):
        if _is_random(found[0]) and not _names_a_place(text, *found.span()):
            yield found.span()


def _is_random(token: str) -> bool:
    """Tell whether *token* mixes its characters as no name, digest or identity does."""
    if not all(each.search(token) for each in _ENTROPY_CLASSES):
        return False
    pieces = _PIECE.findall(token)
    if _DIGEST.fullmatch(token) or len(token) >= _LEAST_PIECE * len(pieces):
        return False
    shares = [count / len(token) for count in Counter(token).values()]
    return -sum(share * log2(share) for share in shares) >= LEAST_BITS


def _names_a_place(text: str, start: int, end: int) -> bool:
    """Tell whether what stands there is part of a URL, a path, a file's name or a data URL."""
    before = text[max(0, start - _CONTEXT) : start].rsplit(None, 1)
    ahead = before[-1] if before and not text[start - 1 : start].isspace() else ""
    return (
        "://" in ahead + text[start : start + 1]
        or ahead.endswith((".", "~", "base64,"))
        or text[start] == "/"
        or _FILE.match(text, end) is not None
    )
