"""What can be told of a text when it is written: a question, about oneself, about a time."""

import re
from itertools import chain

from msgspec import Struct

MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip

_FIRST_PERSON = re.compile(r"\b(i|i'm|i've|my|we|our|me)\b")
_TIME = re.compile(
    r"\b(yesterday|today|tonight|tomorrow"
    r"|last (?:week|month|year|night|summer|winter|spring|fall|weekend"
    r"|(?:mon|tue|wed|thu|fri|sat|sun)\w*)"
    r"|next \w+|this (?:week|month|year|weekend|morning)|ago"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    rf"|{'|'.join(MONTHS)}|since|recently|weekend|just|in \d{{4}}|\d{{4}})\b"
)


class Flags(Struct, frozen=True):
    """What a text is, besides its terms."""

    question: bool
    first_person: bool
    time: bool


def flags_of(text: str, caption: str | None = None) -> Flags:
    """Return the flags of *text*, with the *caption* of the image that came with it."""
    whole = " ".join(filter(None, chain((text,), (caption,)))).lower().replace("\u2019", "'")
    return Flags(
        question=text.rstrip().endswith(("?", "\uff1f")),
        first_person=_FIRST_PERSON.search(whole) is not None,
        time=_TIME.search(whole) is not None,
    )
