"""What a text is about, as terms: the one way in which bodies and queries become comparable.

English words are stemmed; a language without spaces is taken by its characters and their pairs;
any other word is kept whole. `VERSION` is kept with each collection: terms of two versions must
not be compared.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from threading import local
from typing import Protocol, cast

import msgspec
import Stemmer

VERSION = 1
"""Raised with whatever makes a text give other terms than before."""


class Words(msgspec.Struct, frozen=True):
    """The words that are more than their letters."""

    stop: frozenset[str]
    irregular: dict[str, str]
    negations: frozenset[str]


WORDS = msgspec.json.decode(
    files("holdfast.memories.longterm").joinpath("words.json").read_bytes(), type=Words
)


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  (its own name)


_TOKEN = re.compile(r"[^\W_]+(?:'[a-z]+)?")
LONGEST = 64
"""Characters of a word that count: what is longer is no word, and no index takes it."""
UNSPACED = (
    "\u0e00-\u0e7f\u1100-\u11ff\u3005\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters of Thai, Hangul, Kana and Han, for a set of a pattern: words have no spaces there."""
_UNSPACED = re.compile(f"[{UNSPACED}]+")
_stemmers = local()


def analyze(text: str) -> list[str]:
    """Return the terms of *text* in order, each as often as it occurs; none holds white space."""
    if text.isascii():
        found = (_term(token[:LONGEST]) for token in _TOKEN.findall(text.lower()))
    else:
        found = (term for token in _TOKEN.findall(plain(text).lower()) for term in _terms(token))
    return [term for term in found if term]


def plain(text: str) -> str:
    """Return *text* as patterns are written for it."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).replace("\u2019", "'")


def _terms(token: str) -> Iterator[str]:
    """Give the terms of one token of any script."""
    if token.isascii():
        yield _term(token[:LONGEST])
        return
    start = 0
    for run in _UNSPACED.finditer(token):
        yield _word(token[start : run.start()])
        yield from run[0]
        yield from map("".join, zip(run[0], run[0][1:], strict=False))
        start = run.end()
    yield _word(token[start:])


def _word(piece: str) -> str:
    """Return the term of a piece of a token that is written with spaces around it."""
    piece = piece[:LONGEST]
    return _term(piece) if piece.isascii() else piece.removesuffix("'s").partition("'")[0]


@lru_cache(16_384)
def _term(token: str) -> str:
    """Return the term of an ASCII token; nothing for a word that says nothing."""
    if token in WORDS.stop:
        return ""
    word = token.removesuffix("'s").partition("'")[0]
    if not word or word in WORDS.stop:
        return ""
    return _stemmer().stemWord(WORDS.irregular.get(word, word))


def _stemmer() -> _Stemmer:
    # A stemmer must not be used by two threads.
    stemmer: _Stemmer | None = getattr(_stemmers, "english", None)
    if stemmer is None:
        stemmer = _stemmers.english = cast("_Stemmer", Stemmer.Stemmer("english"))  # pyright: ignore[reportUnknownMemberType] (it has no types)
    return stemmer
