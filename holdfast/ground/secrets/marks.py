"""What stands in a text where a secret was, and the kinds there are."""

import re
from typing import Final, Literal, get_args

Kind = Literal[
    "armour",
    "vendor_key",
    "jwt",
    "url_credentials",
    "header",
    "card",
    "recovery_phrase",
    "one_time_code",
    "assignment",
    "prose",
    "entropy",
]
"""What a secret is by its shape; where shapes overlap, the first of these names the hit."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

FILLER: Final = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands for each character of a mark while a text is searched: no letter, no space, no secret."""

_MARK = re.compile(rf"\[redacted (?:{'|'.join(KINDS)})\]")


def mark(kind: Kind) -> str:
    """Return what is written in the place of a secret of *kind*."""
    return f"[redacted {kind}]"


def without_marks(text: str) -> str:
    """Return *text*, equally long, with its marks made into something that no pattern reads."""
    if "[redacted " not in text:
        return text
    return _MARK.sub(lambda found: FILLER * len(found[0]), text)
