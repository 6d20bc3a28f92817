"""JSON web tokens: three parts in base64url, of which the first is a JSON object."""

import re
from binascii import Error, a2b_base64
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.ground.secrets.normalise import Shadow, Span

_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_-])([A-Za-z0-9_-]{10,4096})\.[A-Za-z0-9_-]{2,16384}\.[A-Za-z0-9_-]{0,4096}"
)
# What base64 makes of a brace, and what may follow it: a quote, white space, the other brace.
_BRACE = re.compile(r"e[wy3]")
_DOTS = 2
_MOST_TRIES = 16


def jwt_spans(shadow: Shadow) -> Iterable[Span]:
    """Give where tokens stand."""
    text = shadow.text
    if not _BRACE.search(text) or text.count(".") < _DOTS:
        return
    for found in _TOKEN.finditer(text):
        for offset in _braces(found[1]):
            if _is_object(found[1][offset:]):
                yield found.start() + offset, found.end()
                break


def _braces(part: str) -> Iterator[int]:
    """Give where an object may begin in *part*: a name may stand before it, joined."""
    for tries, found in enumerate(_BRACE.finditer(part)):
        if tries == _MOST_TRIES:
            return
        yield found.start()


def _is_object(part: str) -> bool:
    padded = part.replace("-", "+").replace("_", "/") + "=" * (-len(part) % 4)
    try:
        return isinstance(msgspec.json.decode(a2b_base64(padded)), dict)
    except (Error, msgspec.DecodeError):
        return False
