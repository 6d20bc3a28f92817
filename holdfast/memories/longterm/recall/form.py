"""Form of a text: a statement, a question, a non-answer, or phatic.

Only a statement tells something, so only statements are worth recalling. A pure rule; a text that
it cannot read, such as one in another language, is a statement. docs/recall.md has what it is
worth; change a list or a number only with a run of `holdfast eval locomo`.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, Literal

import msgspec
from msgspec import Struct

from holdfast.memories.longterm.recall.analyze import analyze, plain

Form = Literal["statement", "question", "non_answer", "phatic"]


class Phrases(Struct, frozen=True):
    """Word lists and patterns for forms and topics, and messages off any topic."""

    phatic: frozenset[str]
    """Words without content in a turn: thanks, okay."""
    phatic_query: frozenset[str]
    """Words without content in a query."""
    phrase: str
    """A part that is a set phrase: see you later."""
    addressed: str
    """Words about the user that speak to the assistant: how do I, give me."""
    at_hand: str
    """Words for what the message itself brings: this text, the following."""
    personal: str
    """Words that show that a query is about a person."""
    non_answer: str
    """The beginning of a sentence that says that something is not known."""
    sentence: str
    part: str
    clause: str
    """What separates two clauses."""
    asks: str
    """The beginning of a question."""
    first_person_clause: str
    """A person says something about themselves."""
    off_topic: tuple[str, ...]
    """Messages that have nothing to do with a conversation, for `eval locomo`."""


PHRASES: Final = msgspec.json.decode(
    files("holdfast.memories.longterm.recall").joinpath("phrases.json").read_bytes(), type=Phrases
)


def pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of `Phrases`, which ignores case."""
    return re.compile(text, re.IGNORECASE)


TOLD: Final = 2
"""Terms of a sentence from which on it is a statement."""
TOLD_OF_SELF: Final = 1
"""The same, if a person says it about themselves: I like tea."""
TOLD_BEFORE: Final = 3
"""Terms of a clause before a question from which on it is a statement."""

_WORD: Final = re.compile(r"[^\W_]+(?:'[a-z]+)?")
_SENTENCE: Final = pattern(PHRASES.sentence)
_CLAUSE: Final = pattern(PHRASES.clause)
_ASKS: Final = pattern(PHRASES.asks)
_NON_ANSWER: Final = pattern(PHRASES.non_answer)
_FIRST_PERSON: Final = pattern(PHRASES.first_person_clause)
_ASKED: Final = re.compile(r"[?\uff1f][.!?\uff1f\uff01\u3002]*\s*$")
LONGEST: Final = 20_000
"""Characters of a text that is read. A longer one is a statement."""
LONGEST_SENTENCE: Final = 2_000
"""Characters of a sentence that is read. A longer one is a statement."""


def form_of(text: str, caption: str | None = None) -> Form:
    """Return the form of *text*; with the *caption* of an image it is a statement."""
    if (caption and caption.strip()) or len(text) > LONGEST:
        return "statement"
    asks = declines = False
    for sentence in _sentences(plain(text)):
        if len(sentence) > LONGEST_SENTENCE:
            return "statement"
        if _ASKED.search(sentence):
            if _tells_on_the_way(sentence):
                return "statement"
            asks = asks or content(sentence) > 0
        elif _NON_ANSWER.match(sentence):
            declines = True
        elif _tells(sentence):
            return "statement"
    return "question" if asks else "non_answer" if declines else "phatic"


def content(text: str) -> int:
    """Return the number of terms of *text* without its phatic words."""
    words = _WORD.findall(text.lower())
    return len(analyze(" ".join(word for word in words if word not in PHRASES.phatic)))


def _sentences(text: str) -> Iterator[str]:
    return (found[0] for found in _SENTENCE.finditer(text))


def _tells(sentence: str) -> bool:
    """Check whether a sentence that is no question tells something."""
    much = content(sentence)
    return much >= TOLD or (much >= TOLD_OF_SELF and _of_self(sentence))


def _tells_on_the_way(question: str) -> bool:
    """Check whether a clause of *question* tells something: I'm away, can you plan it?"""
    clauses = _CLAUSE.split(question)
    for place, clause in enumerate(clauses, 1):
        if _ASKS.match(clause):
            continue
        much = content(clause)
        if much >= TOLD_OF_SELF and _of_self(clause):
            return True
        if place < len(clauses) and much >= TOLD_BEFORE:
            return True
    return False


def _of_self(text: str) -> bool:
    return _FIRST_PERSON.search(text) is not None
