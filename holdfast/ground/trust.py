"""Trust of texts: tiers of who stands behind them, and orders to a machine.

Pure rules, the same for long-term memory, stores and durable memory. A tier follows from who wrote
a text, never from what it says; a pattern only adds a reason to hold a text of a lower tier.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Final, Literal, cast, get_args

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.scope import Actor
from holdfast.ground.secrets.normalise import shadows
from holdfast.ground.validation import check_text

Tier = Literal["said", "confirmed", "assistant", "outside", "imported"]
"""Who stands behind a text: a person, a person by way of a decision, an agent, another source,
another system."""
WriterTier = Literal["said", "assistant", "outside", "imported"]
"""The tiers of writers."""
HeldFor = Literal["instruction"]
"""Why a file of a store or a durable entry is held."""
HELD_TIERS: Final = frozenset[str](("outside", "imported"))
"""The tiers of which a file or an entry that gives orders is held."""
HELD_DAYS: Final = 30
"""Days for which a held text waits for a person; then it is forgotten."""
MOST_ORIGIN_REF: Final = 500
"""Code points of an origin's reference."""

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


def weaker(one: Tier, other: Tier) -> Tier:
    """Return the tier of the lower rank; *one* if they are equal."""
    return one if RANKS[one] <= RANKS[other] else other


class Provenance(Struct, frozen=True, gc=False):
    """Where a text came from: tier, origin, and why it is held, None if it is not."""

    tier: Tier = "said"
    origin_ref: str | None = None
    held: HeldFor | None = None


def provenance(text: str, tier: Tier, origin_ref: str | None = None) -> Provenance:
    """Return the provenance of a new *text* of a writer of *tier*.

    It is held if it gives orders and comes from outside or from an import.
    """
    held = tier in HELD_TIERS and gives_orders(text)
    return Provenance(tier, origin_ref, "instruction" if held else None)


def changed_provenance(text: str, before: Provenance, after: Provenance) -> Provenance:
    """Return the provenance of *text*, of *after*, in place of one of *before*.

    A held text stays held when an agent changes it and it still gives orders.
    """
    freed = before.held is None or after.tier in USERS or after.held is not None
    return after if freed or not gives_orders(text) else before


def tier_of_writer(actor: Actor, tier: Tier | None = None, *, in_run: bool = False) -> Tier:
    """Return the tier of what *actor* writes, or the lower one *tier*.

    Sessions, agents and runs write as assistants.
    """
    by_agent = in_run or actor.kind in {"session", "agent"}
    own: Tier = "assistant" if by_agent else "said"
    return own if tier is None else weaker(own, tier)


def checked_tier(given: object) -> WriterTier:
    """Return *given* if it is the tier of a writer."""
    if given not in get_args(WriterTier):
        reason = "must be said, assistant, outside or imported"
        raise InvalidInput("tier", reason, given=given)
    return cast("WriterTier", given)


def checked_origin_ref(given: object) -> str | None:
    """Return *given*, None or 1 to 500 code points."""
    return None if given is None else check_text("origin_ref", given, least=1, most=MOST_ORIGIN_REF)


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
