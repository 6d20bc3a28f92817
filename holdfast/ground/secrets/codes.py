"""One-time codes: digits or groups beside words that say so."""

import re
from collections.abc import Iterable
from typing import Final

from holdfast.ground.secrets.innocent import is_measure, is_technical
from holdfast.ground.secrets.normalise import Shadow, Span

WITHIN: Final = 24
"""Characters between the words and the code, at most."""

_NAME = re.compile(
    r"(?:verification|verify|security|one[- ]?time|log-?in|sign-?in|authentication|authorization"
    r"|authorisation|authenticator|auth|2fa|mfa|2-step|two-factor|two-step|otp|totp|recovery|backup"
    r"|confirmation|access|unlock|activation|reset)"
    r"[\s_-]{1,3}(?:code|pin|passcode|password)s?(?![a-z0-9])"
    r"|t?otp(?<![a-z0-9]otp)(?<![a-z0-9]totp)(?![a-z0-9])"
)
_CODE_LITERALS = ("code", "pin", "passw", "otp")
_CODE = re.compile(
    r"(?<![A-Za-z0-9.-])(?:[a-z]-)?(?:"
    r"[0-9]{4,10}(?![A-Za-z0-9-])|(?=[a-z-]{0,40}[0-9])[a-z0-9]{4,8}(?:-[a-z0-9]{4,8}){1,7}"
    r"|[0-9]{3}[ -][0-9]{3}|(?=[a-z]{1,11}[0-9]|[0-9]{1,11}[a-z])[a-z0-9]{6,12}"
    r")(?![A-Za-z0-9]|[-.:/][0-9])",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")
_DATED = re.compile(r"(?:in|since|until|by|of|from) \Z", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:rfc|iso|port|error|status|page|section) \Z", re.IGNORECASE)
_CODE_AHEAD: Final = 8


def code_spans(shadow: Shadow) -> Iterable[Span]:
    """Give where codes stand, before the words or after them; a list of them one by one."""
    lower = shadow.lower
    if not any(literal in lower for literal in _CODE_LITERALS):
        return
    names = [name.span() for name in _NAME.finditer(lower)]
    if not names:
        return
    ahead, last = iter([*names, (len(lower) + WITHIN + 1, 0)]), -WITHIN - 1
    name = next(ahead)
    for code in _CODE.finditer(shadow.text):
        start, end = code.span()
        while name[0] < start:
            last, name = max(last, name[1]), next(ahead)
        close = start - last <= WITHIN or name[0] - end <= WITHIN
        if close and start >= last and end <= name[0] and _counts(shadow.text, code):
            last = end
            yield start, end


def _counts(text: str, found: "re.Match[str]") -> bool:
    """Tell whether *found* is a code, not a year, a size or the number of a standard."""
    ahead = text[max(0, found.start() - _CODE_AHEAD) : found.start()]
    if _NUMBERED.search(ahead) or (_YEAR.fullmatch(found[0]) and _DATED.search(ahead)):
        return False
    technical = not found[0].isdigit() and is_technical(found[0])
    return not technical and not is_measure(text, found.start())
