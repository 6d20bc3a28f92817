"""Trust of rows: tiers of turns, evidence in the user's turns, echoes of a recall.

Pure rules. A tier follows from who said a text, never from what it says.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from typing import Final

from msgspec import Struct

from holdfast.ground.trust import RANKS, USERS, Tier
from holdfast.memories.longterm.recall.analyze import WORDS, analyze
from holdfast.memories.longterm.recall.dedupe import ComparedText, said, similarity
from holdfast.memories.longterm.recall.form import form_of
from holdfast.memories.longterm.records import TIER_OF_ROLE, Turn

FACTORS: Final[Mapping[str, float]] = {
    "said": 1.0,
    "confirmed": 1.0,
    "assistant": 0.85,
    "outside": 0.7,
    "imported": 0.8,
}
"""The share of its score that an item keeps, by tier."""
GROUNDED: Final = 0.5
"""The least share of an item's weight that the turns must hold which it cites."""


def tier_of_turn(turn: Turn, user: str) -> Tier:
    """Return the tier of *turn* in a collection of *user*; of others it is outside."""
    if turn.by is not None and turn.by != user:
        return "outside"
    stated = turn.tier or TIER_OF_ROLE[turn.role]
    return TIER_OF_ROLE[turn.role] if stated == "said" else stated


def may_supersede(new: str, old: str) -> bool:
    """Check whether an item of tier *new* may supersede one of tier *old*."""
    return new != "outside" and RANKS[new] >= RANKS[old]


# An item is grounded if the turns that it cites hold half of its weight. A term weighs as in recall
# (longterm.md 4), so a rare word counts more than a frequent one.

_ROLES: Final = "user human me customer client person assistant ai bot model agent system tool"
_LEFT_OUT: Final = WORDS.stop | {*analyze(_ROLES), *analyze(" ".join(WORDS.negations))}
"""Terms that state nothing: of roles and negations, and stop words in another form."""


def term_weight(df: int, rows: int) -> float:
    """Return the weight of a term that *df* of a collection's *rows* hold."""
    count, found = max(rows, 100), max(df, 1)
    return log(1 + (count - found + 0.5) / (found + 0.5)) ** 2


def names_in(user: str, speakers: Iterable[str | None]) -> frozenset[str]:
    """Return the terms of a user's id and of speakers' names, which are no evidence."""
    words = re.split(r"[\W_]+", user)
    return frozenset(analyze(" ".join((*words, *(each for each in speakers if each)))))


_QUOTED: Final = re.compile(
    r"```.{0,20000}?```"  # code, and what is pasted as code
    r"|^[ ]{0,3}>[^\n]*"  # a quoted line
    r"|^[ ]{0,3}(?:\[t?\d{1,4}\][ ]?)?(?:user|assistant|system|human|ai|tool|model)\b"
    r"[^:\n]{0,40}:[^\n]*"  # a line of a transcript
    r'|"(?:[^"\s]{1,100}\s{1,3}){4,200}?[^"\s]{0,100}"'
    r"|\u201c(?:[^\u201c\u201d\s]{1,100}\s{1,3}){4,200}?[^\u201c\u201d\s]{0,100}\u201d"
    r"|\u201e(?:[^\u201c\u201e\s]{1,100}\s{1,3}){4,200}?[^\u201c\u201e\s]{0,100}\u201c"
    r"|\u00ab(?:[^\u00ab\u00bb\s]{1,100}\s{1,3}){4,200}?[^\u00ab\u00bb\s]{0,100}\u00bb",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
"""What is quoted in a message: lines, code, transcripts, and five words or more in quotation marks.

Shorter ones are names and titles.
"""


def own_words(text: str) -> str:
    """Return *text* of a user without what it quotes."""
    return _QUOTED.sub(" ", text)


def quotations(text: str) -> str:
    """Return what *text* of a user quotes, a line each."""
    return "\n".join(_QUOTED.findall(text))


_NAMES: Final = re.compile(r"(?<=[\w,;)\]*:\"'\u201c] )[^\W\d_][\w'\u2019-]{0,63}")


def names_written(texts: Iterable[str]) -> frozenset[str]:
    """Return the terms of words that *texts* capitalise within a sentence."""
    found = (word for text in texts for word in _NAMES.findall(text) if word[0].isupper())
    return frozenset(analyze(" ".join(found)))


def grounds(texts: Iterable[str]) -> frozenset[str]:
    """Return the terms that statements among *texts* hold, outside of quotations."""
    stated = (own for text in texts if form_of(own := own_words(text)) == "statement")
    return frozenset(term for text in stated for term in analyze(text))


def is_grounded(
    terms: Sequence[str],
    stated: frozenset[str],
    names: frozenset[str],
    weight: Callable[[str], float],
) -> bool:
    """Check whether *stated* terms hold half of the weight of an item's *terms*.

    *names* and words for roles are left out, unless the item has no others.
    """
    distinct = dict.fromkeys(terms)
    counted = [term for term in distinct if term not in names and term not in _LEFT_OUT]
    weights = {term: weight(term) for term in counted or distinct}
    whole = sum(weights.values())
    found = sum(each for term, each in weights.items() if term in stated)
    return whole > 0 and found >= GROUNDED * whole - 1e-9


# What was recalled in a session is not learnt again from it.

_BULLET: Final = re.compile(r"^[\s>*•-]{0,8}(?:\[[^\]\n]{0,300}\])?\s{0,8}")
_DATE: Final = re.compile(r"\s{0,8}\(\d{4}-\d\d-\d\d\)\s{0,8}$")
_MOST_TEXTS: Final = 500
_MOST_EVIDENCE: Final = 200_000
ALIKE: Final = 0.92
"""Share of terms in the same order from which on two texts say the same."""


class _RecalledText(Struct, frozen=True):
    text: ComparedText
    own: bool


class SessionTrust:
    """What the user said in one session, and what was recalled in it."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.said: list[str] = []
        """The user's messages, oldest first."""
        self._recalled: dict[bytes, _RecalledText] = {}

    def add_said(self, text: str) -> None:
        """Add a message of the user."""
        self.said = [*self.said, text][-_MOST_TEXTS:]

    @property
    def evidence(self) -> list[str]:
        """The user's latest messages, within the size of a request."""
        found: list[str] = []
        for text in reversed(self.said):
            found.insert(0, text)
            if sum(map(len, found)) > _MOST_EVIDENCE:
                return found[1:]
        return found

    def add_recalled(self, texts: Iterable[tuple[str, str]]) -> None:
        """Add texts that were recalled, each with its tier."""
        for text, tier in texts:
            compared = said(text)
            self._recalled[compared.fold] = _RecalledText(compared, tier in USERS)
        for fold in list(self._recalled)[:-_MOST_TEXTS]:
            del self._recalled[fold]

    def is_echo(self, text: str, *, of_user: bool = False) -> bool:
        """Check whether *text* only repeats what was recalled, line by line or as a whole.

        A text *of_user* that repeats what the user said before is no echo.
        """
        if not self._recalled or not text.strip():
            return False
        known = [each.text for each in self._recalled.values() if not (of_user and each.own)]
        lines = [_DATE.sub("", _BULLET.sub("", line)).strip() for line in text.splitlines()]
        whole = _repeats(known, text)
        return whole or all(_repeats(known, line) for line in lines if line)


def _repeats(known: Iterable[ComparedText], text: str) -> bool:
    given = said(text)
    return any(
        given.fold == each.fold
        or (
            given.numbers == each.numbers
            and given.negations == each.negations
            and similarity(given.terms, each.terms) >= ALIKE
        )
        for each in known
    )
