"""Frames of facts with one value at a time: where somebody lives, works, what they drive.

A pure rule. Two items contradict each other if they fill the same frame of the same subject with
other values. A frame that may have several values, such as "likes", never contradicts.
"""

import re
import unicodedata
from typing import Final

from msgspec import Struct

from holdfast.memories.longterm.recall.analyze import analyze
from holdfast.memories.longterm.recall.dedupe import negations_of

USER: Final = "user"
"""The subject of a sentence about the user."""
_MOST_TEXT: Final = 300
"""Characters of a text that is read; a longer one fills no frame."""

_SUBJECT: Final = (
    r"(?:(?:the |this )?(?P<user>user|i|he|she|they)|(?P<name>[A-Z][\w'-]{1,40}))?(?:'m|'s)?\s*"
)
_OWNER: Final = (
    r"(?:(?P<user>my|his|her|their|(?:the |this )?user's)|(?P<name>[A-Z][\w-]{1,40})'s)?\s*"
)
_ADVERB: Final = r"(?:now |currently |recently |just |has |have |is |am |are )?"
_VALUE: Final = r"(?P<value>[^.;!?\n]{1,120}?)[.!]?\s*$"

_VERBS: Final = (
    ("lives", r"(?:lives?|living) in"),
    ("lives", r"(?:moved|moves|relocated) to"),
    ("works", r"(?:works?|working) (?:at|for)"),
    ("job", r"(?:works?|working) as"),
    ("named", r"(?:called|named)"),
    ("drives", r"drives?"),
    ("married", r"married to"),
)
"""Verbs of the frames; a pattern stands for one frame, and two may stand for the same."""
_FRAMES: Final = (
    *(
        (name, re.compile(rf"^\s*{_SUBJECT}{_ADVERB}(?:{verb})\s+{_VALUE}", re.IGNORECASE))
        for name, verb in _VERBS
    ),
    (
        "birthday",
        re.compile(rf"^\s*{_OWNER}birthday\s+(?:is|was)\s+(?:on\s+)?{_VALUE}", re.IGNORECASE),
    ),
    ("named", re.compile(rf"^\s*{_OWNER}name\s+is\s+{_VALUE}", re.IGNORECASE)),
    (
        "favourite",
        re.compile(
            rf"^\s*{_OWNER}favou?rite\s+(?P<noun>[^\W\d_][\w -]{{0,40}}?)\s+is\s+{_VALUE}",
            re.IGNORECASE,
        ),
    ),
)
_LATER: Final = re.compile(
    r"\b(?:until|since|from|for|because|with|and|but|while|when|after|before|now|these days)\b.*$",
    re.IGNORECASE,
)


class FrameValue(Struct, frozen=True):
    """A text's subject and attribute, and the terms of the value."""

    subject: str
    attribute: str
    value: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Subject and attribute, which have one value at a time."""
        return self.subject, self.attribute


def frame_of(text: str) -> FrameValue | None:
    """Return the frame that *text* fills, or None.

    A text that negates, asks or says more than one thing fills none.
    """
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'").strip()
    if not plain or len(plain) > _MOST_TEXT or "?" in plain or negations_of(plain):
        return None
    for name, pattern in _FRAMES:
        found = pattern.match(plain)
        if found is None:
            continue
        value = tuple(analyze(_LATER.sub("", found["value"])))
        subject = _subject(found)
        if not value or subject is None:
            return None
        noun = found.groupdict().get("noun")
        attribute = f"{name} {' '.join(analyze(noun))}" if noun else name
        return FrameValue(subject, attribute, value)
    return None


def contradict(one: FrameValue | None, other: FrameValue | None) -> bool:
    """Check whether both fill the same frame with values of which neither contains the other."""
    if one is None or other is None or one.key != other.key:
        return False
    first, second = set(one.value), set(other.value)
    return not (first <= second or second <= first)


def _subject(found: re.Match[str]) -> str | None:
    """Return the subject of a match; a name must be written as one."""
    name = found["name"]
    if name is None:
        return USER
    if not name[:1].isupper():
        return None
    plain = name.casefold().removesuffix("'s")
    return USER if plain in {"i", "user", "he", "she", "they", "my"} else plain
