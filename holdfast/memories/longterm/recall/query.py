"""The parsed query of a recall, its topic, and related stems: `dog` for `pet`.

A query about a person is answered by what matches it. A general one, such as "why is the sky
blue?", is answered only by rows that hold most of its words; a phatic one, such as "thanks", and
one about the text at hand by nothing. Measured with `holdfast eval locomo`: change a number only
with such a run.
"""

import gzip
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from math import inf
from sys import intern
from typing import Final, Literal

from msgspec import Struct

from holdfast.memories.longterm.recall.analyze import (
    UNSPACED,
    WORDS,
    QueryDate,
    analyze,
    dates_in,
    plain,
)
from holdfast.memories.longterm.recall.form import PHRASES, pattern
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
"""Least number of letters of a word that stands for a longer name."""
_TOKEN = re.compile(rf"(?:(?![{UNSPACED}])[^\W_])+(?:'[A-Za-z]+)?")
_UNSPACED_NAME = re.compile(f"[{UNSPACED}]{{2,}}")


class ParsedQuery(Struct, frozen=True, kw_only=True):
    """A parsed query."""

    terms: tuple[str, ...]
    """Distinct terms in order, without names of participants.

    A query of nothing but names has those as terms.
    """
    named: tuple[str, ...] = ()
    """Participants that it names."""
    dates: tuple[QueryDate, ...] = ()
    when: bool = False
    """It asks for a time."""
    asked_of_us: bool = False
    """It asks for something that the assistant said."""


def read(text: str, participants: Iterable[str] = ()) -> ParsedQuery:
    """Parse the query *text* for a collection with these *participants*."""
    query = plain(text)
    names = tuple(participants)
    rest, named = _without_names(query, names) if names else (query, ())
    return ParsedQuery(
        terms=tuple(dict.fromkeys(analyze(rest) or analyze(query))),
        named=named,
        dates=dates_in(query),
        when=_WHEN.match(query) is not None,
        asked_of_us=_ASKED_OF_US.search(query) is not None,
    )


def without_names(text: str, participants: Iterable[str]) -> str:
    """Return the query *text* without names of *participants*, for an embedder.

    By meaning a name is nearest to every greeting of its owner. A query of nothing but names, and
    words that say nothing, is returned as it is.
    """
    names = tuple(participants)
    rest, named = _without_names(plain(text), names) if names else (text, ())
    return " ".join(rest.split()) if named and analyze(rest) else text


def calls(text: str, participant: str) -> bool:
    """Check whether *text* holds a word that is the name of *participant*."""
    callings, query = _callings((participant,)), plain(text)
    return any(_bare(token) in callings.words for token in _TOKEN.findall(query)) or any(
        name in query for name in callings.unspaced
    )


def _without_names(text: str, participants: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return *text* without names of participants, and the participants it names."""
    callings = _callings(participants)
    named: dict[str, None] = {}
    for name, persons in callings.unspaced.items():
        if name in text:
            text = text.replace(name, " ")
            named.update(dict.fromkeys(persons))
    for name, persons in callings.whole:
        text, times = name.subn(" ", text)
        named.update(dict.fromkeys((persons,) if times else ()))
    cased = any(token[0].isupper() for token in _TOKEN.findall(text)[1:])

    def drop(token: re.Match[str]) -> str:
        persons = callings.persons(token[0], first=not token.start(), cased=cased)
        named.update(dict.fromkeys(persons))
        return " " if persons else token[0]

    return _TOKEN.sub(drop, text), tuple(named)


class _Callings(Struct, frozen=True):
    """Participants by the words that name them, in lower case, and by prefixes."""

    words: dict[str, tuple[str, ...]]
    beginnings: dict[str, tuple[str, ...]]
    unspaced: dict[str, tuple[str, ...]]
    """Names in scripts without spaces, which may stand within a longer run."""
    whole: tuple[tuple[re.Pattern[str], str], ...]
    """Patterns of names of several words."""

    def persons(self, token: str, *, first: bool, cased: bool) -> tuple[str, ...]:
        """Return the participants that *token* means.

        The query is *cased* if its names are capitalised. In such a query "car" is not Caroline,
        "will" is not Will, and "and" is not Andrew.
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


TopicKind = Literal["personal", "general", "phatic", "at_hand"]

FEWEST_LETTERS: Final = 3
"""Letters of a word of a user's id that names the user."""

_PERSONAL: Final = pattern(PHRASES.personal)
_ADDRESSED: Final = pattern(PHRASES.addressed)
_AT_HAND: Final = pattern(PHRASES.at_hand)
_PHRASE: Final = pattern(PHRASES.phrase)
_PART: Final = pattern(PHRASES.part)
_PHATIC_TERMS: Final = frozenset(analyze(" ".join(sorted(PHRASES.phatic_query))))
_ASKS: Final = pattern(r"^\W*(?:what|who|where|when|why|how)\b|[?\uff1f]\W*$")
_ABOUT_TURNS: Final = pattern(r"\b(?:did|have) i (?:ask|say|tell|mention)")
_NAME_WORD: Final = re.compile(r"[^\W\d_]+")


class Topic(Struct, frozen=True):
    """The topic of a query, with the terms that a row must hold to answer it."""

    kind: TopicKind = "personal"
    terms: tuple[str, ...] = ()
    """Terms of the query without phatic ones."""


PERSONAL: Final = Topic()


def topic_of(text: str, question: ParsedQuery, user: str) -> Topic:
    """Return the topic of the query *text*, parsed as *question*, of this *user*."""
    query = plain(text)
    about_person = is_personal(query, question, user)
    if is_phatic(query) and not (about_person and _ASKS.search(query)):
        return Topic("phatic")
    if about_person:
        return PERSONAL
    if _AT_HAND.search(query):
        return Topic("at_hand")
    return Topic("general", tuple([term for term in question.terms if term not in _PHATIC_TERMS]))


def is_personal(query: str, question: ParsedQuery, user: str) -> bool:
    """Check whether *query* is about the user, a speaker, or a date."""
    if question.named or question.dates:
        return True
    if _PERSONAL.search(_ADDRESSED.sub(" ", query)):
        return True
    names = _names(user)
    return bool(names) and not names.isdisjoint(_NAME_WORD.findall(query.casefold()))


def is_phatic(query: str) -> bool:
    """Check whether every part of *query* is a set phrase or has no content."""
    parts: Iterable[str] = _PART.findall(query)
    rest = [part for part in parts if not _PHRASE.match(part)]
    return _PHATIC_TERMS.issuperset(analyze(" . ".join(rest)))


def asks_for_turns(query: str, question: ParsedQuery) -> bool:
    """Check whether *query* asks what was said, so that a question may answer it."""
    return question.asked_of_us or _ABOUT_TURNS.search(plain(query)) is not None


@lru_cache(1_024)
def _names(user: str) -> frozenset[str]:
    """Return the words of a user's id that name the user."""
    words = (word for word in _NAME_WORD.findall(plain(user).casefold()))
    return frozenset(
        word
        for word in words
        if len(word) >= FEWEST_LETTERS and word not in ROLE_WORDS and word not in WORDS.stop
    )


# `scripts/make_related.py` made the table of related stems from a model's own words. It is loaded
# on first use and stays in memory: about 60 ms and 8.5 MB, once a process.

TABLE: Final = files("holdfast.memories.longterm.recall").joinpath("related.txt.gz")
LEAST: Final = 0.5
"""Least similarity of two stems in the table; 1 would be the same."""
MOST: Final = 16
"""Related stems of one stem in the table. With 5, recall@10 is .003 lower (docs/recall.md)."""
CHOSEN: Final = 5
"""Related stems of one query term that count: the nearest that the collection holds."""

Related = tuple[tuple[str, float], ...]
"""Stems, each with its similarity, nearest first."""


def related(stem: str) -> Related:
    """Return the stems related to *stem*; none for one that the table lacks."""
    return _table().get(stem, ())


def chosen(stem: str, df: Callable[[str], int], most_rows: float = inf) -> Related:
    """Return the stems related to *stem* that count where *df* rows hold a stem.

    A stem that more than *most_rows* rows hold is left out.
    """
    held = ((other, near) for other, near in related(stem) if 0 < df(other) <= most_rows)
    return tuple(each for each, _ in zip(held, range(CHOSEN), strict=False))


def version_of_table() -> int:
    """Return the version of the analyzer by which the table's stems were made."""
    head = gzip.decompress(TABLE.read_bytes()).partition(b";")[0]
    return int(head.removeprefix(b"# analyzer "))


@cache
def _table() -> dict[str, Related]:
    lines = gzip.decompress(TABLE.read_bytes()).decode().splitlines()[1:]
    shares = {str(number): number / 100 for number in range(101)}
    found: dict[str, Related] = {}
    for line in lines:
        stem, *others = line.split(" ")
        pairs = (other.split(":") for other in others)
        found[stem] = tuple((intern(other), shares[near]) for other, near in pairs)
    return found
