"""Topic of a query: about a person, general, phatic, or about something at hand.

A query about a person is answered by what matches it. A general one, such as "why is the sky
blue?", is answered only by rows that hold most of its words; a phatic one, such as "thanks", and
one about the text at hand by nothing. Measured with `holdfast eval locomo`: change a number only
with such a run.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from math import log
from typing import Final, Literal

from msgspec import Struct

from holdfast.memories.longterm.recall.analyze import WORDS, analyze, plain
from holdfast.memories.longterm.recall.form import PHRASES, pattern
from holdfast.memories.longterm.recall.index import ROLE_WORDS, Postings
from holdfast.memories.longterm.recall.query import ParsedQuery
from holdfast.memories.longterm.records import LongTermOptions

TopicKind = Literal["personal", "general", "phatic", "at_hand"]

FEWEST_ROWS: Final = 400
"""A smaller collection counts as this large, so that one rare word of it is evidence."""
FEWEST_LETTERS: Final = 3
"""Letters of a word of a user's id that names the user."""
NEARER: Final = 0.15
"""How much nearer than `min_cosine` a row must be to answer a general query by its meaning."""

_PERSONAL: Final = pattern(PHRASES.personal)
_ADDRESSED: Final = pattern(PHRASES.addressed)
_AT_HAND: Final = pattern(PHRASES.at_hand)
_PHRASE: Final = pattern(PHRASES.phrase)
_PART: Final = pattern(PHRASES.part)
_PHATIC_TERMS: Final = frozenset(analyze(" ".join(sorted(PHRASES.phatic_query))))
_ASKS: Final = pattern(r"^\W*(?:what|who|where|when|why|how)\b|[?\uff1f]\W*$")
_ABOUT_TURNS: Final = pattern(r"\b(?:did|have) i (?:ask|say|tell|mention)")
_WORD: Final = re.compile(r"[^\W\d_]+")


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
    return Topic("general", tuple(term for term in question.terms if term not in _PHATIC_TERMS))


def is_personal(query: str, question: ParsedQuery, user: str) -> bool:
    """Check whether *query* is about the user, a speaker, or a date."""
    if question.named or question.dates:
        return True
    if _PERSONAL.search(_ADDRESSED.sub(" ", query)):
        return True
    names = _names(user)
    return bool(names) and any(word in names for word in _WORD.findall(query.casefold()))


def is_phatic(query: str) -> bool:
    """Check whether every part of *query* is a set phrase or has no content."""
    parts: Iterable[str] = _PART.findall(query)
    return all(_PHRASE.match(part) or _PHATIC_TERMS.issuperset(analyze(part)) for part in parts)


def asks_for_turns(query: str, question: ParsedQuery) -> bool:
    """Check whether *query* asks what was said, so that a question may answer it."""
    return question.asked_of_us or _ABOUT_TURNS.search(plain(query)) is not None


@lru_cache(1_024)
def _names(user: str) -> frozenset[str]:
    """Return the words of a user's id that name the user."""
    words = (word for word in _WORD.findall(plain(user).casefold()))
    return frozenset(
        word
        for word in words
        if len(word) >= FEWEST_LETTERS and word not in ROLE_WORDS and word not in WORDS.stop
    )


class GeneralGate:
    """Decides which rows hold enough telling words of a general query."""

    def __init__(self, postings: Postings, topic: Topic, options: LongTermOptions) -> None:
        self._least = options.min_relevance_general
        self._evidence = options.min_evidence
        self._cosine = options.min_cosine + NEARER
        whole = _weight(postings.count, 1)
        self._terms = [
            (
                postings.weights(term),
                postings.telling(term),
                _weight(postings.count, postings.df(term)) / whole,
            )
            for term in topic.terms
        ]
        telling = sorted((each for _, each, _ in self._terms), reverse=True)
        self._whole = sum(telling[:TELLING]) or 1.0

    def admits(self, row: int, cosine: float) -> bool:
        """Check whether *row*, this near to the query in meaning, answers it."""
        if cosine >= self._cosine:
            return True
        # Coverage is the share of the query's words that the row holds, rare ones counting most;
        # evidence is how rare they are, 1 for a word of no other row.
        coverage = evidence = 0.0
        for rows, telling, weight in self._terms:
            if row in rows:
                coverage += telling
                evidence += weight
        return coverage >= self._least * self._whole and evidence >= self._evidence


TELLING: Final = 4
"""Query terms that a row must hold to cover the query whole."""


def _weight(rows: int, df: int) -> float:
    count = max(rows, FEWEST_ROWS)
    return log(1 + (count - max(df, 1) + 0.5) / (max(df, 1) + 0.5)) ** 2
