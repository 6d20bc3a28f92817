"""What a query asks besides its words: about whom, about when, of whom."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

from holdfast.memories.longterm.analyze import analyze
from holdfast.memories.longterm.dates import AskedDate, dates_in

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
_TOKEN = re.compile(r"[^\W_]+(?:'[A-Za-z]+)?")


class Question(Struct, frozen=True, kw_only=True):
    """A query, read once."""

    terms: tuple[str, ...]
    """Distinct, in order, without the names of those who speak in the collection."""
    named: tuple[str, ...] = ()
    """Participants that it names."""
    dates: tuple[AskedDate, ...] = ()
    when: bool = False
    """It asks for a time."""
    asked_of_us: bool = False
    """It asks what a machine said."""


def read(text: str, participants: Iterable[str] = ()) -> Question:
    """Return what *text* asks of a collection in which *participants* speak."""
    plain = text if text.isascii() else text.replace("\u2019", "'")
    rest, named = _without_names(plain, tuple(participants))
    return Question(
        terms=tuple(dict.fromkeys(analyze(rest))),
        named=named,
        dates=dates_in(plain),
        when=_WHEN.match(plain) is not None,
        asked_of_us=_ASKED_OF_US.search(plain) is not None,
    )


def _without_names(text: str, participants: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return *text* without words that name participants, and those they name."""
    called = _callings(participants)
    named: dict[str, None] = {}

    def drop(token: re.Match[str]) -> str:
        whose = called.get(token[0].lower().removesuffix("'s"))
        if whose is None:
            return token[0]
        named.update(dict.fromkeys(whose))
        return " "

    return _TOKEN.sub(drop, text), tuple(named)


@lru_cache(256)
def _callings(participants: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return whom each word calls: a name, or its first three or four letters."""
    called: dict[str, tuple[str, ...]] = {}
    for participant in participants:
        for word in _words(participant):
            for calling in {word, word[:3], word[:4]}:
                called[calling] = (*called.get(calling, ()), participant)
    return called


def _words(participant: str) -> Iterator[str]:
    found = [word.lower() for word in _TOKEN.findall(participant)]
    if len(found) == 1:
        yield found[0]
        return
    yield from (word for word in found if len(word) >= _A_NAME)


def calls(text: str, participant: str) -> bool:
    """Tell whether *text* holds a word that is the name of *participant*."""
    words = set(_words(participant))
    return any(token.lower().removesuffix("'s") in words for token in _TOKEN.findall(text))
