"""The query of a recall, parsed."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

from holdfast.memories.longterm.recall.analyze import (
    UNSPACED,
    WORDS,
    AskedDate,
    analyze,
    dates_in,
    plain,
)
from holdfast.memories.longterm.recall.index import ROLE_WORDS

_WHEN = re.compile(
    r"^\s*(when|what (date|year|month|day)|which (year|month)|how long ago)", re.IGNORECASE
)
_ASKED_OF_US = re.compile(
    r"\b(did|have|had) you (ever |already |previously )?"
    r"(suggest|recommend|say|mention|tell|give|provide|explain|advise|propose|list|share|describe"
    r"|outline|write|make)|"
    r"\byou('ve|'d| have| had)?( previously| earlier| once| already)? "
    r"(suggested|recommended|told|said|mentioned|gave|given|provided|explained|advised|listed"
    r"|proposed|shared|described|outlined|wrote|came up with)\b",
    re.IGNORECASE,
)
_A_NAME = 3
"""Letters from which on a word of a longer name is one by itself."""
_TOKEN = re.compile(rf"(?:(?![{UNSPACED}])[^\W_])+(?:'[A-Za-z]+)?")
_UNSPACED_NAME = re.compile(f"[{UNSPACED}]{{2,}}")


class Question(Struct, frozen=True, kw_only=True):
    """A query, read once."""

    terms: tuple[str, ...]
    """Distinct, in order, without the names of those who speak in the collection.

    Unless it has nothing but names: then those are its terms.
    """
    named: tuple[str, ...] = ()
    """Participants that it names."""
    dates: tuple[AskedDate, ...] = ()
    when: bool = False
    """It asks for a time."""
    asked_of_us: bool = False
    """It asks what a machine said."""


def read(text: str, participants: Iterable[str] = ()) -> Question:
    """Return what *text* asks of a collection in which *participants* speak."""
    asked = plain(text)
    rest, named = _without_names(asked, tuple(participants))
    return Question(
        terms=tuple(dict.fromkeys(analyze(rest) or analyze(asked))),
        named=named,
        dates=dates_in(asked),
        when=_WHEN.match(asked) is not None,
        asked_of_us=_ASKED_OF_US.search(asked) is not None,
    )


def calls(text: str, participant: str) -> bool:
    """Tell whether *text* holds a word that is the name of *participant*."""
    callings, told = _callings((participant,)), plain(text)
    return any(_bare(token) in callings.words for token in _TOKEN.findall(told)) or any(
        name in told for name in callings.unspaced
    )


def _without_names(text: str, participants: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return *text* without words that name participants, and those they name."""
    if not participants:
        return text, ()
    callings = _callings(participants)
    named: dict[str, None] = {}
    for name, whose in callings.unspaced.items():
        if name in text:
            text = text.replace(name, " ")
            named.update(dict.fromkeys(whose))
    for name, whose in callings.whole:
        text, times = name.subn(" ", text)
        named.update(dict.fromkeys((whose,) if times else ()))
    cased = any(token[0].isupper() for token in _TOKEN.findall(text)[1:])

    def drop(token: re.Match[str]) -> str:
        whose = callings.whose(token[0], first=not token.start(), cased=cased)
        named.update(dict.fromkeys(whose))
        return " " if whose else token[0]

    return _TOKEN.sub(drop, text), tuple(named)


class _Callings(Struct, frozen=True):
    """Who is meant by which word, in lower case: a name, or the first letters of one."""

    words: dict[str, tuple[str, ...]]
    beginnings: dict[str, tuple[str, ...]]
    unspaced: dict[str, tuple[str, ...]]
    """Names that may stand within a run of others' characters."""
    whole: tuple[tuple[re.Pattern[str], str], ...]
    """Names of several words, for what they are when none is left out."""

    def whose(self, token: str, *, first: bool, cased: bool) -> tuple[str, ...]:
        """Return who is meant by *token*, of a query that is *cased* if names have their capitals.

        Such a query's car is not Caroline; and its will is not Will, nor anybody's and Andrew.
        """
        word, capital = _bare(token), token[0].isupper()
        if word in WORDS.stop:
            return self.words.get(word, ()) if capital and not first else ()
        return self.words.get(word) or (
            self.beginnings.get(word, ()) if capital or not cased else ()
        )


@lru_cache(256)
def _callings(participants: tuple[str, ...]) -> _Callings:
    words: dict[str, tuple[str, ...]] = {}
    beginnings: dict[str, tuple[str, ...]] = {}
    unspaced: dict[str, tuple[str, ...]] = {}
    whole: list[tuple[re.Pattern[str], str]] = []
    for participant in participants:
        name = plain(participant)
        for word in _words(name):
            words[word] = (*words.get(word, ()), participant)
            for beginning in {word[:3], word[:4]}:
                beginnings[beginning] = (*beginnings.get(beginning, ()), participant)
        for run in _UNSPACED_NAME.findall(name):
            unspaced[run] = (*unspaced.get(run, ()), participant)
        if len(parts := _TOKEN.findall(name)) > 1:
            phrase = r"(?<![^\W_])" + r"[\W_]+".join(map(re.escape, parts)) + r"(?![^\W_])"
            whole.append((re.compile(phrase, re.IGNORECASE), participant))
    return _Callings(words, beginnings, unspaced, tuple(whole))


def _words(name: str) -> Iterator[str]:
    found = [_bare(token) for token in _TOKEN.findall(name)]
    if len(found) == 1:
        yield found[0]
        return
    yield from (word for word in found if len(word) >= _A_NAME and word not in ROLE_WORDS)


def _bare(token: str) -> str:
    return token.lower().removesuffix("'s")
