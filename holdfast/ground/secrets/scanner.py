"""Find credentials in a text, and redact them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from holdfast.ground.secrets import patterns
from holdfast.ground.secrets.heuristics import (
    assignment_spans,
    code_spans,
    entropy_spans,
    phrase_spans,
    prose_spans,
)
from holdfast.ground.secrets.normalise import KINDS, Kind, Shadow, Span, mark, shadows
from holdfast.ground.secrets.patterns import (
    armour_spans,
    card_spans,
    header_spans,
    jwt_spans,
    url_spans,
)

SPANS: Final[dict[Kind, Callable[[Shadow], Iterable[Span]]]] = {
    "armour": armour_spans,
    "vendor_key": patterns.key_spans,
    "jwt": jwt_spans,
    "url_credentials": url_spans,
    "header": header_spans,
    "card": card_spans,
    "recovery_phrase": phrase_spans,
    "one_time_code": code_spans,
    "assignment": assignment_spans,
    "prose": prose_spans,
    "entropy": entropy_spans,
}
"""The function that finds the spans of each kind."""

_RANK: Final[dict[Kind, int]] = {kind: rank for rank, kind in enumerate(KINDS)}
_MOST_ROUNDS: Final = 8
"""Times that a text is searched again after redaction marks were inserted."""


class SecretHit(Struct, frozen=True, kw_only=True):
    """A suspected secret of *kind* at `text[start:end]`."""

    kind: Kind
    start: int
    end: int


def find(text: str) -> list[SecretHit]:
    """Return the suspected secrets in *text*, in order, without overlaps.

    >>> find("the staging key is AKIAIOSFODNN7EXAMPLE")
    [SecretHit(kind='vendor_key', start=19, end=39)]
    """
    hits: list[SecretHit] = []
    for hit in sorted(_hits(text), key=lambda hit: (hit.start, -hit.end)):
        if hits and hit.start < hits[-1].end:
            last = hits[-1]
            kind = min(last.kind, hit.kind, key=_RANK.__getitem__)
            hits[-1] = SecretHit(kind=kind, start=last.start, end=max(last.end, hit.end))
        else:
            hits.append(hit)
    return hits


def looks_like_secret(text: str) -> bool:
    """Return whether *text* contains a suspected credential or card number.

    >>> looks_like_secret("my password is hunter2")
    True
    >>> looks_like_secret("Ada prefers tabs over spaces")
    False
    """
    return any(True for _ in _hits(text))


def redact(text: str) -> str:
    """Return *text* with each secret replaced by `[redacted <kind>]`.

    `find` returns nothing for the result.

    >>> redact("my password is hunter2, and I like tea")
    'my password is [redacted prose], and I like tea'
    """
    hits = find(text)
    for _ in range(_MOST_ROUNDS):
        if not hits:
            return text
        parts: list[str] = []
        last = 0
        for hit in hits:
            parts += (text[last : hit.start], mark(hit.kind))
            last = hit.end
        text = "".join([*parts, text[last:]])
        hits = find(text)
    return mark(hits[0].kind) if hits else text


def _hits(text: str) -> Iterator[SecretHit]:
    """Yield every hit of every kind, in the folded text and in the original."""
    for shadow in shadows(text):
        for kind, spans in SPANS.items():
            for span in spans(shadow):
                start, end = shadow.origin(span)
                yield SecretHit(kind=kind, start=start, end=end)
