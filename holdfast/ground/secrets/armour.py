"""Private keys in armour: PEM, OpenSSH, PGP, SSH2 and PuTTY."""

import re
from collections.abc import Iterable, Iterator

from holdfast.ground.secrets.normalise import Shadow, Span

_EDGE = re.compile(
    r"-----?[ ]?(BEGIN|END)[ ][A-Za-z0-9 _]{0,40}?PRIVATE KEY(?: BLOCK)?[ ]?-{4,5}", re.IGNORECASE
)
# Headers such as Proc-Type, white space as it is or as JSON spells it, then base64.
_BODY = re.compile(
    r"(?:\s|\\[nrt]|[A-Za-z-]{4,24}: [^\n\\]{1,200}){0,24}[A-Za-z0-9+/=]{16,256}"
    r"[A-Za-z0-9+/=\s\\]{0,32768}"
)
_PUTTY = re.compile(r"PuTTY-User-Key-File-[0-9]:[^\n]{1,100}\n")
_PUTTY_BODY = re.compile(r"[A-Za-z0-9+/=:\s\-,._@]{0,32768}")
_PUTTY_END = re.compile(r"Private-MAC: ?[0-9a-f]{16,128}")


def armour_spans(shadow: Shadow) -> Iterable[Span]:
    """Give where armoured keys stand, whole; one that is cut off, as far as it goes."""
    if "private key" in shadow.lower:
        yield from _armoured(shadow.text)
    if "PuTTY-User-Key-File-" in shadow.text:
        yield from _putty(shadow.text)


def _armoured(text: str) -> Iterator[Span]:
    """Give each beginning with its end, or with what base64 follows it."""
    begun: int | None = None
    body_end = 0
    for edge in _EDGE.finditer(text):
        if edge[1].lower() == "end":
            if begun is not None:
                yield begun, edge.end()
            begun = None
            continue
        if begun is not None and body_end:
            yield begun, body_end
        body = _BODY.match(text, edge.end())
        begun, body_end = edge.start(), body.end() if body else 0
    if begun is not None and body_end:
        yield begun, body_end


def _putty(text: str) -> Iterator[Span]:
    """Give each key file to its closing hash, or as far as it reads like one."""
    last = 0
    for found in _PUTTY.finditer(text):
        if found.start() < last:
            continue
        body = _PUTTY_BODY.match(text, found.end())
        last = body.end() if body else found.end()
        closing = _PUTTY_END.search(text, found.end(), last)
        last = closing.end() if closing else last
        yield found.start(), last
