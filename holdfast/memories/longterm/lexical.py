"""How well each row of a collection answers a question: BM25 in context, and what else tells.

Measured with `holdfast eval locomo`; docs/recall.md has what each cue is worth. A pure function
of the postings, the question, the options and the instant.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest

from msgspec import Struct

from holdfast.memories.longterm.dates import closeness
from holdfast.memories.longterm.postings import Postings
from holdfast.memories.longterm.question import Question
from holdfast.memories.longterm.score import Ranked, Wanted, choose

CANDIDATES = 400
NEAREST = 200
"""Rows that are looked at closely, for their words and for their vectors."""
COMMON = 0.1
RARE_ENOUGH = 3
"""In a large collection terms of more than this share are dropped if so many rarer ones remain."""

FOLLOWED = (0.4, 0.2)
SESSION, SPEAKER, DATE, LINK = 0.30, 0.40, 0.80, 0.30
WHEN, FIRST_PERSON, QUESTION = 0.15, 0.15, -0.05
USER, MACHINE_ASKED = 0.35, 0.20


class Cues(Struct, frozen=True, kw_only=True):
    """What each cue adds, so that its worth can be measured."""

    followed: tuple[float, float] = FOLLOWED
    session: float = SESSION
    speaker: float = SPEAKER
    date: float = DATE
    link: float = LINK
    when: float = WHEN
    first_person: float = FIRST_PERSON
    question: float = QUESTION
    user: float = USER
    machine_asked: float = MACHINE_ASKED


def rare_terms(terms: Sequence[str], postings_df: Mapping[str, int], rows: int) -> tuple[str, ...]:
    """Return *terms* without those that most rows hold, where enough rarer ones remain."""
    rare = tuple(term for term in terms if postings_df[term] <= COMMON * rows)
    return rare if len(rare) >= RARE_ENOUGH else tuple(terms)


def rank(
    postings: Postings,
    question: Question,
    wanted: Wanted,
    *,
    now: int,
    cosines: Mapping[str, float] | None = None,
) -> list[Ranked]:
    """Return the rows that answer *question*, best first, at most `wanted.k`.

    *cosines* are those of rows that have a vector, by id; None where nothing is compared by
    meaning. *now* is in microseconds since 1970.
    """
    raise NotImplementedError
