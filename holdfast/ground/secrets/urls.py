"""Credentials within URLs: before the host, and in signed query strings."""

import re
from collections.abc import Iterable, Iterator

from holdfast.ground.secrets.innocent import is_innocent, is_opaque
from holdfast.ground.secrets.normalise import Shadow, Span

_MOST_IN_URL = 768
_USER = re.compile(r"(?<=[A-Za-z0-9+.\-]://)([^\s/@:\[\]\"'<>?#]{0,256})(:?)")
_PASSWORD = re.compile(r"[^\s@\"'<>]{1,512}(?=@)")
# A password that holds an @ itself: what follows up to the next, while no path has begun.
_MORE = re.compile(r"@[^\s/?#@\"'<>]{1,256}(?=@)")
_MOST_AT = 4
_PORT = re.compile(r"[0-9]{1,5}(?:[/?#]|\Z)")
_HOST = re.compile(r"[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}|localhost", re.IGNORECASE)
_LEAST_TOKEN, _SURE_TOKEN = 10, 20
_SIGNED = re.compile(
    r"[?&#;](?:x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|signature|sig"
    r"|access_token|refresh_token|id_token|auth_token|authtoken|api_?key|token|password|secret)"
    r"=([^&\s\"'<>#]{6,4096})"
)


def url_spans(shadow: Shadow) -> Iterable[Span]:
    """Give where passwords, tokens and signatures stand."""
    if "://" in shadow.text:
        yield from _userinfo(shadow.text)
    for found in _SIGNED.finditer(shadow.lower) if "=" in shadow.text else ():
        if not is_innocent(shadow.text[slice(*found.span(1))]):
            yield found.span(1)


def _userinfo(text: str) -> Iterator[Span]:
    """Give each password before an @, and each user that is a token."""
    after = 0
    for found in re.finditer("://", text):
        if found.start() < after or text.find("@", found.end(), found.end() + _MOST_IN_URL) < 0:
            continue
        user = _USER.match(text, found.end())
        if user is None:
            continue
        span = _password(text, user) if user[2] else _token(text, user)
        if span is not None:
            after = span[1]
            yield span


def _password(text: str, user: "re.Match[str]") -> Span | None:
    """Return where the password after *user* stands; a port and a path hold none."""
    found = _PASSWORD.match(text, user.end())
    if found is None or is_innocent(found[0]):
        return None
    if _HOST.fullmatch(user[1]) and _PORT.match(found[0]):
        return None
    end = found.end()
    for _ in range(_MOST_AT):
        more = _MORE.match(text, end)
        if more is None:
            break
        end = more.end()
    return user.end(), end


def _token(text: str, user: "re.Match[str]") -> Span | None:
    """Return where a token before the host stands; a name such as `git` is none."""
    name = user[1]
    if text[user.end() : user.end() + 1] != "@" or is_innocent(name):
        return None
    long = len(name) >= _SURE_TOKEN or (len(name) >= _LEAST_TOKEN and is_opaque(name))
    return user.span(1) if long else None
