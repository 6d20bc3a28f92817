"""Trust of rows: tiers, evidence in the user's turns, orders to a machine.

Pure rules. A tier follows from who said a text, never from what it says; a pattern only adds a
reason to hold a row of a lower tier.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from typing import Final

from msgspec import Struct

from holdfast.ground.secrets.normalise import shadows
from holdfast.memories.longterm.recall.analyze import WORDS, analyze
from holdfast.memories.longterm.recall.dedupe import ComparedText, said, similarity
from holdfast.memories.longterm.recall.form import form_of
from holdfast.memories.longterm.records import TIER_OF_ROLE, Tier, Turn

USERS: Final = frozenset[str](("said", "confirmed"))
"""The tiers that may say what the user wants."""
RANKS: Final[Mapping[str, int]] = {
    "said": 3,
    "confirmed": 3,
    "assistant": 2,
    "imported": 1,
    "outside": 0,
}
"""The order of the tiers; a row supersedes those of its own rank and below."""
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


def weaker(one: Tier, other: Tier) -> Tier:
    """Return the tier of the lower rank; *one* if they are equal."""
    return one if RANKS[one] <= RANKS[other] else other


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


def grounds(texts: Iterable[str]) -> frozenset[str]:
    """Return the terms that statements among *texts* of the user hold."""
    stated = (text for text in texts if form_of(text) == "statement")
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


# Orders to a machine, matched on the shadow of a text: look-alikes are ASCII there, and invisible
# characters are gone. All gaps are bounded, so a long text costs its length.

_ORDERS: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b[^.!?\n]{0,40}?"
    r"\b(?:previous|prior|above|earlier|preceding|foregoing|all|any|your|these|system)\b"
    r"[^.!?\n]{0,40}?\b(?:instructions?|rules?|prompts?|guidelines?|directives?|restrictions?)\b"
    r"|\byou (?:must|should|will|shall|are to) (?:now|always|never)\b"
    r"|\bfrom now on\b"
    r"|\b(?:whenever|when|if|each time|every time) (?:the user|a user|any user|users|anyone"
    r"|anybody|someone|asked|you are asked|they ask)\b[^\n]{0,120}?"
    r"\b(?:reply|answer|respond|say|send|call|run|recommend|suggest|use|tell|mention|prefer)\b"
    r"|\b(?:do not|don't|never) (?:tell|mention|reveal|inform|disclose)\b"
    r"|(?:^[^a-z\n]{0,12}|[.!?>][ \t]{0,4})(?:system|developer)[ \t]{0,4}:"
    r"|<[ \t]{0,4}/?[ \t]{0,4}(?:system|developer|assistant|instructions?|recalled-memories)\b"
    r"|\[/?inst\]|<\|[^|<>\n]{0,40}\|>|<<sys>>",
    re.MULTILINE,
)
_BESIDE: Final = 80
"""Characters between a verb of sending and an address that count as beside each other."""
_SENDING: Final = re.compile(
    r"\b(?P<verb>send|sends|post|forward|upload|fetch)\b"
    r"|(?P<place>https?://|\bwww\.|(?<=\w)@(?=[a-z0-9-]{1,63}\.[a-z]))"
)
_RUN: Final = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{201}")
_FLAG: Final = re.compile("\U0001f3f4[\U000e0020-\U000e007f]{1,8}")
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2}")
_JOINERS: Final = frozenset("\u200c\u200d")
_MARKS: Final = frozenset("\u200e\u200f\u061c")
_HARMLESS: Final = frozenset("\u00ad\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2")
_JOINED: Final = frozenset(("So", "Sk", "Mn", "Mc", "Me", "Lo"))
"""Categories of the characters that a joiner may follow: emoji, and letters without case."""


def gives_orders(text: str, caption: str | None = None) -> bool:
    """Check whether a text reads as an order to a machine, or hides something."""
    whole = f"{text}\n{caption}" if caption else text
    if _RUN.search(whole) or has_hidden(whole):
        return True
    return any(
        _ORDERS.search(shadow.lower.replace("\u2019", "'")) or _sends(shadow.lower)
        for shadow in shadows(whole)
    )


def _sends(text: str) -> bool:
    """Check whether a verb of sending stands beside an address."""
    if not any(part in text for part in ("http", "www.", "@")):
        return False
    last: tuple[str, int] | None = None
    for found in _SENDING.finditer(text):
        kind = found.lastgroup or ""
        if last is not None and last[0] != kind and found.start() - last[1] <= _BESIDE:
            return True
        last = kind, found.end()
    return False


def has_hidden(text: str) -> bool:
    """Check whether *text* has format characters that no script or emoji needs."""
    if text.isascii():
        return False
    if _SELECTORS.search(text):
        return True
    plain = _FLAG.sub("", text)
    if not any(unicodedata.category(char) == "Cf" for char in set(plain)):
        return False
    mirrored = any(unicodedata.bidirectional(char) in {"R", "AL"} for char in set(plain))
    return any(
        unicodedata.category(char) == "Cf" and not _is_needed(plain, place, mirrored=mirrored)
        for place, char in enumerate(plain)
        if char > "\x7f"
    )


def _is_needed(text: str, place: int, *, mirrored: bool) -> bool:
    char = text[place]
    if char in _HARMLESS or (char == "\ufeff" and not place):
        return True
    if char in _MARKS:
        return mirrored
    before = text[place - 1] if place else " "
    return char in _JOINERS and unicodedata.category(before) in _JOINED


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
