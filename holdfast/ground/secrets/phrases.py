"""Recovery phrases of wallets: words of the English list of BIP-39, one after another."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from holdfast.ground.secrets.normalise import Shadow, Span

LEAST: Final = 12
"""Words of the shortest phrase; a longer run holds one."""

_PHRASE_WORD = re.compile(r"[^\W\d_]{1,64}")
_MOST_BETWEEN: Final = 12
"""Characters between two words: white space, commas, numbers."""


def phrase_spans(shadow: Shadow) -> Iterable[Span]:
    """Give where such phrases stand; one word over and over is none."""
    known = words()
    run: list[re.Match[str]] = []
    for found in _PHRASE_WORD.finditer(shadow.lower):
        if run and (found[0] not in known or found.start() - run[-1].end() > _MOST_BETWEEN):
            if _is_phrase(run):
                yield run[0].start(), run[-1].end()
            run = []
        if found[0] in known:
            run.append(found)
    if _is_phrase(run):
        yield run[0].start(), run[-1].end()


def _is_phrase(run: Sequence["re.Match[str]"]) -> bool:
    return len(run) >= LEAST and any(found[0] != run[0][0] for found in run)


@cache
def words() -> frozenset[str]:
    """Return the 2,048 words (https://github.com/bitcoin/bips, bip-0039/english.txt)."""
    text = files("holdfast.ground.secrets").joinpath("bip39.txt").read_text(encoding="utf-8")
    return frozenset(text.split())
