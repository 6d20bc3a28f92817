"""Recovery phrases of wallets: words of the English list of BIP-39, one after another."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

from holdfast.ground.secrets.shadow import Shadow, Span

LEAST: Final = 12
"""Words of the shortest phrase; a longer run holds one."""

_WORD = re.compile(r"[^\W\d_]{1,64}")
_MOST_BETWEEN: Final = 12
"""Characters between two words: white space, commas, numbers."""


def spans(shadow: Shadow) -> Iterable[Span]:
    """Give where such phrases stand."""
    known_words = words()
    count = start = end = 0
    for found in _WORD.finditer(shadow.lower):
        known = found[0] in known_words
        if count and (not known or found.start() - end > _MOST_BETWEEN):
            if count >= LEAST:
                yield start, end
            count = 0
        if known:
            start = start if count else found.start()
            count, end = count + 1, found.end()
    if count >= LEAST:
        yield start, end


@cache
def words() -> frozenset[str]:
    """Return the 2,048 words (https://github.com/bitcoin/bips, bip-0039/english.txt)."""
    text = files("holdfast.ground.secrets").joinpath("bip39.txt").read_text(encoding="utf-8")
    return frozenset(text.split())
